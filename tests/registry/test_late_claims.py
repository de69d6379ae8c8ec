"""A claim that comes in late, after its own repeat was granted and given back, is not granted again."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.core.errors import Conflict, Unavailable
from holdfast.core.event import Event
from holdfast.testing.world import World


async def test_a_late_twin_of_an_acquisition_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, histories = world.registry, world.store.histories
    slow, answered = asyncio.Event(), asyncio.Event()

    async def once_slow(job_ids: Sequence[str]) -> list[list[Event]]:
        monkeypatch.setattr(world.store, "histories", histories)
        found = await histories(job_ids)
        slow.set()
        await answered.wait()
        return found

    await world.enqueue("job-1")
    monkeypatch.setattr(world.store, "histories", once_slow)
    late = asyncio.create_task(registry.acquire("job-1", owner="w-1", op_id="op-1"))
    await slow.wait()
    await registry.release(await registry.acquire("job-1", owner="w-1", op_id="op-1"))
    await registry.release(await registry.acquire("job-1", owner="w-2", op_id="op-2"))
    answered.set()

    with pytest.raises(Conflict, match="granted before"):
        await late

    claims = [e.op_id for e in await registry.history("job-1") if e.to_state == "assigned"]
    assert claims == ["op-1", "op-2"]


async def test_a_job_that_never_stands_still_is_not_acquired_by_a_guess(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories = world.store.histories

    async def always_behind(job_ids: Sequence[str]) -> list[list[Event]]:
        found = await histories(job_ids)
        return [chain[:-1] for chain in found]

    await world.enqueue("job-1")
    monkeypatch.setattr(world.store, "histories", always_behind)

    with pytest.raises(Unavailable, match=r"too fast|again") as caught:
        await world.registry.acquire("job-1", owner="w-1", op_id="op-1")

    assert caught.value.applied == "no"
    assert (await world.registry.status("job-1")).state == "queued"
