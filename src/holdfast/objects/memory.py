"""Objects in memory: exact compare-and-swap, the reference for bucket adapters."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Generator

from holdfast.ports import VersionToken


class _Turn:
    """Let every other task run once, as a request to a bucket would."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class MemoryObjects:
    """A dictionary behind the port. Each call yields to the event loop once, so that callers interleave."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[bytes, VersionToken]] = {}
        self._keys: list[str] = []
        self._writes = 0

    async def get(self, key: str) -> tuple[bytes, VersionToken] | None:
        await _Turn()
        return self._objects.get(key)

    async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
        await _Turn()
        if not self._has_version(key, version):
            return False
        self._objects[key] = (value, self._next())
        return True

    async def create_if_absent(self, key: str, value: bytes) -> bool:
        await _Turn()
        if key in self._objects:
            return False
        self._objects[key] = (value, self._next())
        insort(self._keys, key)
        return True

    async def list_keys(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[str]:
        await _Turn()
        start = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after))
        found: list[str] = []
        for key in self._keys[start:] if limit is None else self._keys[start : start + limit]:
            if not key.startswith(prefix):
                break
            found.append(key)
        return found

    async def delete(self, key: str, version: VersionToken) -> bool:
        await _Turn()
        if key not in self._objects:
            return True
        if not self._has_version(key, version):
            return False
        del self._objects[key]
        del self._keys[bisect_left(self._keys, key)]
        return True

    def _has_version(self, key: str, version: VersionToken) -> bool:
        stored = self._objects.get(key)
        return stored is not None and stored[1] == version

    def _next(self) -> VersionToken:
        """Return a new version: equal bytes written twice are two versions."""
        self._writes += 1
        return VersionToken(str(self._writes))
