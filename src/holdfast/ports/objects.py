"""The versioned-store port: single objects, changed by compare-and-swap."""

from typing import Protocol

from msgspec import Struct


class VersionToken(Struct, frozen=True):
    """Whatever the provider calls the version of an object. Compare it; never look inside."""

    value: str


class VersionedStore(Protocol):
    """Bytes under keys, changed by compare-and-swap. Provider errors that mean none of the below
    propagate as `Unavailable`."""

    async def get(self, key: str) -> tuple[bytes, VersionToken] | None:
        """The value and its version, or None when there is none."""
        ...

    async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
        """Overwrite if the version still is `version`; False when it is not."""
        ...

    async def create_if_absent(self, key: str, value: bytes) -> bool:
        """Create; False when the key exists."""
        ...

    async def list_keys(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[str]:
        """Keys under the prefix, sorted, after the key `after`."""
        ...

    async def delete(self, key: str, version: VersionToken) -> bool:
        """Delete if the version still is `version`; False when it is not. True when it is gone."""
        ...
