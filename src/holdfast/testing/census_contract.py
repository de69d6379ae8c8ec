"""The contract of a store: what a census counts."""

from datetime import timedelta

from holdfast.core.lifecycle import Success
from holdfast.core.state import State
from holdfast.testing.world import LEASE, Opener, World, in_world


class CensusContract:
    open: Opener

    @in_world
    async def test_a_census_counts_queues_owners_and_what_waits_longest(self, world: World) -> None:
        empty = await world.store.census(10)
        began = world.clock.now()
        await world.enqueue("a", priority=9)
        world.clock.advance(10)
        await world.enqueue("b", priority=0)
        await world.enqueue("c", queue="images", delay=timedelta(days=1))
        await world.enqueue("d", queue="films", ttl=timedelta(hours=1))
        await world.enqueue("e", queue="films")
        await world.claim(owner="worker-1", lease=LEASE)
        two = await world.registry.claim(["films"], owner="worker-2", limit=2, lease=LEASE)
        await world.registry.complete(two[1], Success())
        await world.enqueue("f", priority=0)

        found = await world.store.census(10)
        fewer = await world.store.census(1)

        assert (empty.queues, empty.ready, empty.owners, empty.due_at) == ({}, {}, 0, None)
        assert found.queues == {
            "default": {State.QUEUED: 2, State.ASSIGNED: 1},
            "images": {State.QUEUED: 1},
            "films": {State.ASSIGNED: 1, State.SUCCEEDED: 1},
        }
        assert found.ready == {
            "default": began,
            "images": began + timedelta(days=1, seconds=10),
        }
        assert (found.owners, found.suspected) == (2, 0)
        assert found.due_at == began + timedelta(seconds=70)
        assert (fewer.queues, list(fewer.ready)) == (found.queues, ["default"])

    @in_world
    async def test_a_census_counts_the_owners_that_missed_their_heartbeats(self, world: World) -> None:
        for n in range(3):
            await world.enqueue(f"job-{n}")
        often = timedelta(seconds=10)
        await world.claim(owner="worker-1", limit=1, heartbeat_interval=often)
        alive = await world.claim(owner="worker-1", limit=1, heartbeat_interval=often)
        await world.claim(owner="worker-2", limit=1, lease=LEASE)
        world.clock.advance(15)
        await world.registry.heartbeat(alive)
        world.clock.advance(6)
        await world.registry.expire()

        found = await world.store.census(10)

        assert (found.owners, found.suspected) == (2, 1)
