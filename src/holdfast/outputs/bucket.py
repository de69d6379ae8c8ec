"""An output store in a bucket: S3, Azure Blob Storage or Google Cloud Storage, by `obstore`.

An object store has no folders and no partial objects: an object is there as a whole, or not at all. It
does not tell a missing object from a missing bucket, and we do: before we report that an object is
missing, the identity of the store is read. S3 reports a missing object as denied to a client that may
not list the bucket: workers and validators need that right.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from holdfast.core.errors import Invalid, NotFound
from holdfast.outputs.bucket_connection import connect_bucket, translate_errors
from holdfast.outputs.files import open_source
from holdfast.outputs.identity import (
    IDENTITY,
    another_store,
    check_path,
    check_prefix,
    decode_identity,
    encode_identity,
    new_identity,
    no_store,
)
from holdfast.ports import Digest

if TYPE_CHECKING:
    from obstore import GetResult
    from obstore.store import ObjectStore

CONCURRENCY = 64
PREFIX_BYTES_MAX = 120
STREAM_BYTES = 1024 * 1024
_PART_BYTES_MIN, _PARTS_MAX = 8 * 1024 * 1024, 9_000

T = TypeVar("T")
Many: TypeAlias = list[T | None]


class BucketOutputs:
    """See `holdfast.ports.Outputs`."""

    def __init__(self, store: "ObjectStore", place: str, store_id: str) -> None:
        self._store = store
        self._place = place
        self._store_id = store_id

    @classmethod
    async def open(cls, scheme: str, bucket: str, prefix: str, *, create: bool) -> "BucketOutputs":
        """Open the store below `prefix`; with `create`, create the store if needed, not the bucket."""
        folder = check_prefix(prefix)
        if len(folder.encode()) > PREFIX_BYTES_MAX:
            raise Invalid(f"A prefix in a bucket has at most {PREFIX_BYTES_MAX} bytes.")
        place = f"{scheme}://{bucket}" + (f"/{folder}" if folder else "")
        store = connect_bucket(scheme, bucket, folder)
        found = await _identity(store, place)
        if found is None and create:
            found = await _create(store, place)
        if found is None:
            raise no_store(place)
        return cls(store, place, found)

    @property
    def store_id(self) -> str:
        return self._store_id

    @property
    def place(self) -> str:
        return self._place

    async def put(self, path: str, body: bytes) -> None:
        from obstore import put_async

        with translate_errors(f"{self._place}/{check_path(path)}", "unknown"):
            await put_async(self._store, path, body, use_multipart=False)

    async def create(self, path: str, body: bytes) -> bool:
        if await _put_if_absent(self._store, check_path(path), body, self._place):
            return True
        return await self.get(path) == body

    async def put_file(self, path: str, source: Path) -> None:
        from obstore import put_async

        size = await asyncio.to_thread(_size, source)
        part_bytes = max(_PART_BYTES_MIN, -(-size // _PARTS_MAX))
        with translate_errors(f"{self._place}/{check_path(path)}", "unknown"):
            await put_async(self._store, path, source, chunk_size=part_bytes, max_concurrency=4)

    async def get(self, path: str) -> bytes | None:
        return (await self.get_many([path]))[0]

    async def get_many(self, paths: Sequence[str]) -> Many[bytes]:
        return await self._read_each(paths, _read_all)

    async def digests(self, paths: Sequence[str]) -> Many[Digest]:
        return await self._read_each(paths, _digest)

    async def read(self, path: str) -> AsyncIterator[bytes]:
        result = await self._get_result(check_path(path))
        if result is None:
            await self.check_available()
            raise NotFound(f"There is no {path} in the output store {self._place}.")
        stream = result.stream(STREAM_BYTES)
        while True:
            with translate_errors(f"{self._place}/{path}", "no"):
                try:
                    part = bytes(await anext(stream))
                except StopAsyncIteration:
                    return
            if part:
                yield part

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        import obstore

        folder = check_prefix(prefix)
        await self.check_available()
        pages = aiter(obstore.list(self._store, folder or None))
        while True:
            with translate_errors(f"{self._place}/{folder}", "no"):
                try:
                    page = await anext(pages)
                except StopAsyncIteration:
                    return
            for one in page:
                if one["path"] != IDENTITY:
                    yield one["path"], one["size"]

    async def delete(self, path: str) -> None:
        from obstore import delete_async

        with translate_errors(f"{self._place}/{check_path(path)}", "unknown"):
            try:
                await delete_async(self._store, path)
            except FileNotFoundError:
                await self.check_available()

    async def check_available(self) -> None:
        found = await _identity(self._store, self._place)
        if found is None:
            raise no_store(self._place)
        if found != self._store_id:
            raise another_store(self._place, found, self._store_id)

    async def close(self) -> None:
        """Do nothing: connections close by themselves."""

    async def _read_each(self, paths: Sequence[str], read: "Callable[[GetResult], Awaitable[T]]") -> Many[T]:
        checked = [check_path(path) for path in paths]
        slots = asyncio.Semaphore(CONCURRENCY)

        async def one(path: str) -> T | None:
            async with slots:
                result = await self._get_result(path)
                if result is None:
                    return None
                with translate_errors(f"{self._place}/{path}", "no"):
                    return await read(result)

        found = await _gather([one(path) for path in checked])
        if any(some is None for some in found):
            await self.check_available()
        return found

    async def _get_result(self, path: str) -> "GetResult | None":
        return await _get(self._store, path, self._place)


async def _gather(calls: Sequence[Coroutine[None, None, T]]) -> list[T]:
    """Return the results of all calls. When one fails, cancel the others."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _read_all(result: "GetResult") -> bytes:
    return bytes(await result.bytes_async())


async def _digest(result: "GetResult") -> Digest:
    if result.meta["size"] < STREAM_BYTES:
        body = await _read_all(result)
        return Digest(len(body), sha256(body).hexdigest())
    checksum, size = sha256(), 0
    async for part in result.stream(STREAM_BYTES):
        size += len(part)
        await asyncio.to_thread(checksum.update, part)
    return Digest(size, checksum.hexdigest())


async def _identity(store: "ObjectStore", place: str) -> str | None:
    result = await _get(store, IDENTITY, place)
    if result is None:
        return None
    with translate_errors(f"{place}/{IDENTITY}", "no"):
        return decode_identity(await _read_all(result), place).store_id


async def _create(store: "ObjectStore", place: str) -> str | None:
    """Create the store and return its id. If another process was faster, return the id that it wrote."""
    await _put_if_absent(store, IDENTITY, encode_identity(new_identity()), place)
    return await _identity(store, place)


async def _put_if_absent(store: "ObjectStore", path: str, body: bytes, place: str) -> bool:
    """Write unless there is an object. False may also mean our own object, when obstore sent it twice."""
    from obstore import put_async
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    with translate_errors(f"{place}/{path}", "unknown"):
        try:
            await put_async(store, path, body, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
    return True


async def _get(store: "ObjectStore", path: str, place: str) -> "GetResult | None":
    from obstore import get_async

    with translate_errors(f"{place}/{path}", "no"):
        try:
            return await get_async(store, path)
        except FileNotFoundError:
            return None


def _size(source: Path) -> int:
    with open_source(source) as file:
        return os.fstat(file.fileno()).st_size
