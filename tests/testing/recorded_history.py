"""A world whose registry is recorded, and two jobs that meet every verb, repeat and refusal."""

import pytest

from holdfast.core.errors import Conflict, Fenced, NotFound
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobRequest
from holdfast.testing.history import Entry
from holdfast.testing.recorder import recorded
from holdfast.testing.world import TRANSIENT, World, output


class RecordedWorld:
    """A world whose registry is recorded, each call an entry."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.entries: list[Entry] = []
        self.recorder = recorded(world.registry, world.ids, self.entries.append, process="p")

    async def enqueue(self, job_id: str) -> Job:
        return await self.recorder.enqueue(JobRequest(spec=Spec(), job_id=job_id), actor="user:ana")

    async def log(self, job_id: str) -> list[Event]:
        return await self.world.registry.history(job_id)


async def run_two_jobs(recorded_world: RecordedWorld) -> None:
    """Take two jobs through every verb, with every kind of repeat and refusal."""
    recorder, world = recorded_world.recorder, recorded_world.world
    with pytest.raises(NotFound):
        await recorder.status("a")
    await recorded_world.enqueue("a")
    [grant] = await recorder.claim(["default"], owner="w1", op_id="claim-a")
    await recorder.heartbeat(grant)
    await recorder.claim(["default"], owner="w1", op_id="claim-a")
    await recorder.publish(grant, [output(1, world=world)])
    await recorder.aggregate(grant)
    await recorder.aggregate(grant)
    await recorder.cancel("a", actor="user:ana")
    await recorder.cancel("a", actor="user:ben")
    await recorded_world.enqueue("a")
    await recorder.release(grant, op_id="release-a")
    await recorder.release(grant, op_id="release-a")
    assert await recorder.claim(["default"], owner="w1") == []

    await recorded_world.enqueue("b")
    zombie = await recorder.acquire("b", owner="w1")
    with pytest.raises(Conflict):
        await recorder.acquire("b", owner="w2")
    world.clock.advance(61)
    grant = await recorder.acquire("b", owner="w2")
    for verb in (recorder.heartbeat, recorder.aggregate, recorder.release):
        with pytest.raises(Fenced):
            await verb(zombie)
    await recorder.complete(grant, TRANSIENT)
    world.clock.advance(61)
    [grant] = await recorder.claim(["default"], owner="w3")
    await recorder.complete(grant, Success(), op_id="complete-b")
    await recorder.complete(grant, Success(), op_id="complete-b")
    assert (await recorder.status("b")).state is State.SUCCEEDED
