"""The versioned-store port: single objects, changed by compare-and-swap."""

from typing import Protocol

from msgspec import Struct


class VersionToken(Struct, frozen=True):
    """The provider's version of an object. Opaque: compare it only."""

    value: str


class VersionedStore(Protocol):
    """Bytes under keys, changed by compare-and-swap. All other errors of a provider are raised as
    `Unavailable`."""

    async def get(self, key: str) -> tuple[bytes, VersionToken] | None:
        """Return the value and its version, or None when the key does not exist."""
        ...

    async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
        """Overwrite if the version still is `version`; return False when it is not."""
        ...

    async def create_if_absent(self, key: str, value: bytes) -> bool:
        """Create the object; return False when the key exists."""
        ...

    async def list_keys(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[str]:
        """Return the keys under the prefix, sorted, after the key `after`."""
        ...

    async def delete(self, key: str, version: VersionToken) -> bool:
        """Delete if the version still is `version`; return False when it is not, True if the object is
        gone."""
        ...
