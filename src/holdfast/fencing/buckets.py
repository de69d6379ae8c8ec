"""A fence in the same conditional put as the bytes, for object stores: S3, Azure, GCS, by `obstore`.

The object carries the token that wrote it, in its metadata. A put replaces exactly the object whose
token it has compared, or nothing.

Azure and GCS number every write. On S3 the number is a hash of the bytes (the ETag; a bucket's versions
do not change that), so a stale put that has compared before a newer owner wrote **the same bytes again**
still succeeds, and sets the mark back. On S3, include the token in the bytes, for example as a field; or
give each attempt a path of its own, and fence a small manifest that names it.

Deleting an object deletes its mark: the next write under any token is a first one.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from holdfast.core.errors import Corrupt, Denied, Invalid, NotFound, Unavailable
from holdfast.fencing.fence import Fence, Mark, admit, check_fence
from holdfast.system import SystemIds

if TYPE_CHECKING:
    from obstore import GetResult, PutMode, UpdateVersion
    from obstore.store import ObjectStore

METADATA = "holdfast"
"""The metadata field: token, source and the id of the write. One word: every store keeps it unchanged."""

TRIES = 20
_PARTS = 3


class StoredObject(Struct, frozen=True):
    """An object in the store: its version and, if a fenced write made it, its mark."""

    mark: Mark | None
    write_id: str | None
    version: "UpdateVersion"


async def put(
    store: "ObjectStore",
    path: str,
    body: bytes,
    fence: Fence,
    *,
    attributes: Mapping[str, str] | None = None,
) -> None:
    """Write the object if the token is not below the one that wrote it last: `Fenced`, or `Conflict`.

    `attributes` are the object's other metadata, such as Content-Type. An object that was written
    without a fence is replaced. `Unavailable` if the store does not answer, or if other writers were
    always faster: call it again with the same fence. The store's own retries may be on: a put of ours that
    succeeded although its response was lost is recognised as ours.
    """
    from obstore import put_async

    write = _Write(path, body, fence, attributes)
    for _ in range(TRIES):
        mode = write.mode(await _find(store, path))
        if mode is None:
            return
        try:
            with _translated(path, "unknown"):
                await put_async(store, path, body, attributes=write.attributes, mode=mode)
            return
        except _Overtaken:
            continue
    raise write.contended()


def put_blocking(
    store: "ObjectStore",
    path: str,
    body: bytes,
    fence: Fence,
    *,
    attributes: Mapping[str, str] | None = None,
) -> None:
    """As `put`, for code that blocks."""
    import obstore

    write = _Write(path, body, fence, attributes)
    for _ in range(TRIES):
        mode = write.mode(_find_blocking(store, path))
        if mode is None:
            return
        try:
            with _translated(path, "unknown"):
                obstore.put(store, path, body, attributes=write.attributes, mode=mode)
            return
        except _Overtaken:
            continue
    raise write.contended()


async def mark(store: "ObjectStore", path: str) -> Mark | None:
    """Return the mark of the object; None if there is no object, or if it was written without a fence."""
    found = await _find(store, path)
    return found.mark if found else None


class _Write:
    """One write, with an id that tells it from a write of the same bytes by another client."""

    def __init__(self, path: str, body: bytes, fence: Fence, attributes: Mapping[str, str] | None) -> None:
        if not path.strip("/"):
            raise Invalid("An object has a path.")
        if not isinstance(body, bytes):
            raise Invalid(f"The body of an object is bytes, not {type(body).__name__}.")
        self._fence = check_fence(fence)
        self._id = SystemIds().new()
        stamp = f"{fence.token} {fence.source} {self._id}"
        self.attributes = {**(attributes or {}), METADATA: stamp}

    def mode(self, found: StoredObject | None) -> "PutMode | None":
        """Return the condition of the put, or None if this write is there already; raise the refusal."""
        if found is None:
            return "create"
        if found.write_id == self._id:
            return None
        admit(self._fence, found.mark)
        return found.version

    def contended(self) -> Unavailable:
        return Unavailable(
            f"Other clients wrote to {self._fence.resource} first, {TRIES} times in a row.",
            applied="unknown",
            job_id=self._fence.job_id,
        )


async def _find(store: "ObjectStore", path: str) -> StoredObject | None:
    from obstore import get_async

    with _translated(path, "no"):
        try:
            return _found(await get_async(store, path, options={"head": True}))
        except FileNotFoundError:
            return None


def _find_blocking(store: "ObjectStore", path: str) -> StoredObject | None:
    import obstore

    with _translated(path, "no"):
        try:
            return _found(obstore.get(store, path, options={"head": True}))
        except FileNotFoundError:
            return None


def _found(result: "GetResult") -> StoredObject:
    version: UpdateVersion = {}
    if (e_tag := result.meta["e_tag"]) is not None:
        version["e_tag"] = e_tag
    if (number := result.meta["version"]) is not None:
        version["version"] = number
    stamp = result.attributes.get(METADATA)
    if stamp is None:
        return StoredObject(None, None, version)
    parts = stamp.split(" ")
    if len(parts) != _PARTS or not parts[0].isdecimal():
        path = result.meta["path"]
        raise Corrupt(f"The metadata {METADATA} of {path} is not a holdfast mark: {stamp!r:.200}.")
    return StoredObject(Mark(parts[1], int(parts[0])), parts[2], version)


class _Overtaken(Exception):
    """The object changed since it was read: by another client, or by our own put whose response was lost."""


@contextmanager
def _translated(path: str, applied: Literal["no", "unknown"]) -> Iterator[None]:
    from obstore import exceptions as theirs

    try:
        yield
    except (theirs.AlreadyExistsError, theirs.PreconditionError) as error:
        raise _Overtaken from error
    except FileNotFoundError as error:
        raise NotFound(f"There is no such bucket for {path}.") from error
    except (ValueError, theirs.InvalidPathError) as error:
        raise Invalid(f"{path!r:.200} is not a valid path: {error!s:.200}") from error
    except (NotImplementedError, theirs.NotSupportedError) as error:
        raise Invalid(f"This store has no conditional put: {error!s:.200}") from error
    except (theirs.PermissionDeniedError, theirs.UnauthenticatedError) as error:
        raise Denied(f"Access to {path} is denied: {error!s:.200}") from error
    except theirs.BaseError as error:
        raise Unavailable(
            f"The store has not answered for {path}: {error!s:.200}", applied=applied
        ) from error
