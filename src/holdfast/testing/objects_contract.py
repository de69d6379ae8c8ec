"""The contract of every `VersionedStore`: compare-and-swap as tests. Subclass it in three lines."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.ports import VersionedStore, VersionToken
from holdfast.testing.contract_tests import contract_test

WRITERS = 16
INCREMENTS = 50


async def version_of(objects: VersionedStore, key: str) -> VersionToken:
    found = await objects.get(key)
    assert found is not None
    return found[1]


async def value_of(objects: VersionedStore, key: str) -> bytes | None:
    found = await objects.get(key)
    return None if found is None else found[0]


async def increment(objects: VersionedStore, key: str) -> int:
    """Add one to a counter, again until it is applied; return the number of conflicts."""
    conflicts = 0
    while True:
        found = await objects.get(key)
        assert found is not None
        if await objects.put(key, str(int(found[0]) + 1).encode(), found[1]):
            return conflicts
        conflicts += 1


@contract_test
@asynccontextmanager
async def with_objects(contract: "VersionedStoreContract", folder: Path) -> AsyncIterator[VersionedStore]:
    yield await contract.open()


class VersionedStoreContract:
    """Set `open` to a function that opens an empty store."""

    open: Callable[[], Awaitable[VersionedStore]]

    @with_objects
    async def test_an_object_that_is_not_there_is_none(self, objects: VersionedStore) -> None:
        assert await objects.get("a") is None

    @with_objects
    async def test_bytes_are_read_back_as_they_were_written(self, objects: VersionedStore) -> None:
        value = bytes(range(256))

        assert await objects.create_if_absent("jobs/a:1/state.json", value)

        assert await value_of(objects, "jobs/a:1/state.json") == value

    @with_objects
    async def test_only_the_first_creation_lands(self, objects: VersionedStore) -> None:
        assert await objects.create_if_absent("a", b"first")

        assert not await objects.create_if_absent("a", b"second")

        assert await value_of(objects, "a") == b"first"

    @with_objects
    async def test_of_many_concurrent_creations_one_lands(self, objects: VersionedStore) -> None:
        landed = await asyncio.gather(
            *(objects.create_if_absent("a", str(n).encode()) for n in range(WRITERS))
        )

        assert sum(landed) == 1
        assert await value_of(objects, "a") == str(landed.index(True)).encode()

    @with_objects
    async def test_a_put_with_the_current_version_lands(self, objects: VersionedStore) -> None:
        await objects.create_if_absent("a", b"1")

        assert await objects.put("a", b"2", await version_of(objects, "a"))

        assert await value_of(objects, "a") == b"2"

    @with_objects
    async def test_a_put_with_a_stale_version_is_false_and_writes_nothing(
        self, objects: VersionedStore
    ) -> None:
        await objects.create_if_absent("a", b"1")
        stale = await version_of(objects, "a")
        await objects.put("a", b"2", stale)

        assert not await objects.put("a", b"3", stale)

        assert await value_of(objects, "a") == b"2"

    @with_objects
    async def test_a_put_on_a_deleted_object_is_false(self, objects: VersionedStore) -> None:
        await objects.create_if_absent("a", b"1")
        version = await version_of(objects, "a")
        await objects.delete("a", version)

        assert not await objects.put("a", b"2", version)

        assert await objects.get("a") is None

    @with_objects
    async def test_a_delete_with_the_current_version_removes(self, objects: VersionedStore) -> None:
        await objects.create_if_absent("a", b"1")
        version = await version_of(objects, "a")

        assert await objects.delete("a", version)

        assert await objects.get("a") is None
        assert await objects.list_keys("") == []

    @with_objects
    async def test_a_delete_with_a_stale_version_is_false_and_removes_nothing(
        self, objects: VersionedStore
    ) -> None:
        await objects.create_if_absent("a", b"1")
        stale = await version_of(objects, "a")
        await objects.put("a", b"2", stale)

        assert not await objects.delete("a", stale)

        assert await value_of(objects, "a") == b"2"

    @with_objects
    async def test_deleting_what_is_gone_is_true(self, objects: VersionedStore) -> None:
        await objects.create_if_absent("a", b"1")
        version = await version_of(objects, "a")
        await objects.delete("a", version)

        assert await objects.delete("a", version)

    @with_objects
    async def test_concurrent_increments_lose_nothing(self, objects: VersionedStore) -> None:
        await objects.create_if_absent("counter", b"0")

        async def writer() -> int:
            return sum([await increment(objects, "counter") for _ in range(INCREMENTS)])

        conflicts = await asyncio.gather(*(writer() for _ in range(WRITERS)))

        assert await value_of(objects, "counter") == str(WRITERS * INCREMENTS).encode()
        assert sum(conflicts) > 0

    @with_objects
    async def test_keys_are_listed_sorted_and_only_under_the_prefix(self, objects: VersionedStore) -> None:
        for key in ("jobs/b", "jobs/a", "job", "jobs/a/log", "locks/a", "jobsx/a"):
            await objects.create_if_absent(key, b"")

        assert await objects.list_keys("jobs/") == ["jobs/a", "jobs/a/log", "jobs/b"]

    @with_objects
    async def test_keys_are_listed_page_by_page(self, objects: VersionedStore) -> None:
        keys = [f"index/{n:03d}" for n in range(25)]
        for key in reversed(keys):
            await objects.create_if_absent(key, b"")
        seen: list[str] = []

        while page := await objects.list_keys("index/", after=seen[-1] if seen else "", limit=10):
            assert len(page) <= 10
            seen += page

        assert seen == keys

    @with_objects
    async def test_after_may_name_a_key_that_is_not_there(self, objects: VersionedStore) -> None:
        for key in ("index/1", "index/3"):
            await objects.create_if_absent(key, b"")

        assert await objects.list_keys("index/", after="index/2") == ["index/3"]
        assert await objects.list_keys("index/", after="a") == ["index/1", "index/3"]
        assert await objects.list_keys("index/", after="z") == []
