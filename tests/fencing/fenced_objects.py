"""Fences, the two forms of a fenced put, and reads of what it left."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import TypeAlias

import obstore
from obstore.store import LocalStore, MemoryStore, S3Store

from holdfast.fencing.buckets import mark, put, put_blocking
from holdfast.fencing.fence import Fence, Mark

Store: TypeAlias = S3Store | MemoryStore | LocalStore
Put: TypeAlias = Callable[..., None]
SOURCE = "lock:account-17"
_numbers = count()


def fence(token: int, lock: str | None = "account-17") -> Fence:
    return Fence(resource="account-17", token=token, job_id="job-1", lock=lock)


def put_in_a_loop(
    store: Store, path: str, body: bytes, one: Fence, attributes: Mapping[str, str] | None = None
) -> None:
    asyncio.run(put(store, path, body, one, attributes=attributes))


def read(store: Store, path: str) -> tuple[bytes, Mark | None]:
    body = bytes(obstore.get(store, path).bytes())
    return body, asyncio.run(mark(store, path))


FORMS: dict[str, Put] = {"async": put_in_a_loop, "blocking": put_blocking}


def new_path() -> str:
    """A path that no other test uses."""
    return f"folder/object-{next(_numbers)}"
