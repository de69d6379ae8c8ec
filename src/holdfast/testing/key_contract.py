"""The contract of a store: API keys are stored completely, replaced by their id, and never deleted."""

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from holdfast.core.access import Key, Scope
from holdfast.core.lifecycle import Success
from holdfast.testing.fakes import EPOCH
from holdfast.testing.world import Opener, World, in_world

KEY = Key(
    key_id="0123456789ab",
    name="reports",
    digest="5f" * 32,
    scopes=(Scope.SUBMIT, Scope.DATA),
    queues=("reports-*", "mail"),
    regions=("eu-west",),
    created_at=EPOCH + timedelta(microseconds=1),
    expires_at=EPOCH + timedelta(days=90),
    created_by="user:ana",
)


def numbered(number: int, minutes: int) -> Key:
    return replace(KEY, key_id=f"{number:012x}", created_at=EPOCH + timedelta(minutes=minutes))


class KeyContract:
    open: Opener

    @in_world
    async def test_a_new_store_has_no_keys(self, world: World) -> None:
        await world.enqueue("job-1")

        assert await world.store.list_keys() == []

    @in_world
    async def test_keys_are_read_back_whole_and_the_oldest_first(self, world: World) -> None:
        plain = replace(numbered(1, 9), queues=("*",), regions=())
        keys = [numbered(2, 5), KEY, plain, numbered(3, 1), numbered(4, 1)]
        for key in keys:
            await world.store.put_key(key)

        assert await world.store.list_keys() == [KEY, keys[3], keys[4], keys[0], plain]

    @in_world
    async def test_a_key_takes_the_place_of_the_one_with_its_id(self, world: World) -> None:
        other, revoked = numbered(1, 1), replace(KEY, revoked_at=EPOCH + timedelta(days=1))
        for key in (KEY, other, revoked, revoked):
            await world.store.put_key(key)

        assert await world.store.list_keys() == [revoked, other]

    @in_world
    async def test_keys_that_are_put_at_once_are_all_kept(self, world: World) -> None:
        keys = [numbered(n, n) for n in range(1, 21)]
        await asyncio.gather(*map(world.store.put_key, keys))
        revoked = [replace(key, revoked_at=EPOCH) for key in keys for _ in range(2)]
        await asyncio.gather(*map(world.store.put_key, revoked))

        assert await world.store.list_keys() == revoked[::2]

    @in_world
    async def test_pruning_leaves_every_key(self, world: World) -> None:
        gone = replace(numbered(1, 1), revoked_at=EPOCH + timedelta(minutes=2))
        for key in (KEY, gone):
            await world.store.put_key(key)
        await world.enqueue("job-1")
        await world.registry.complete(await world.claim(), Success())
        world.clock.advance(days=1000)

        pruned = await world.registry.prune(older_than=timedelta())

        assert pruned.jobs == 1
        assert await world.store.list_keys() == [KEY, gone]

    @in_world
    async def test_a_key_that_is_put_moves_the_mark(self, world: World) -> None:
        mark = world.store.change_mark()
        await world.store.put_key(KEY)

        assert world.store.change_mark() != mark
