"""Calls on an open file: refused after the close, cancelled in the queue, and what they may carry."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.job import Failure, Job, Progress
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobRequest
from holdfast.sdk.open import open_registry
from holdfast.testing.world import World, open_world, output
from tests.conftest import sqlite_store


async def test_a_call_after_the_close_is_refused(tmp_path: Path) -> None:
    registry = await open_registry(f"sqlite:///{tmp_path / 'jobs.db'}")
    await registry.close()

    with pytest.raises(Unavailable, match="closed"):
        await registry.status("job-1")


async def test_megabytes_are_watched_to_their_end(tmp_path: Path) -> None:
    async with open_world(sqlite_store, tmp_path) as world:
        await world.enqueue("job-1")
        grant = await world.claim()
        for batch in range(20):
            events = [output(batch * 10 + n, "x" * 60_000, world=world) for n in range(1, 11)]
            await world.registry.publish(grant, events)
        await world.registry.complete(grant, Success())

        seen = [event async for event in world.registry.watch("job-1")]

        assert sum(len(event.data or b"") for event in seen) == 200 * 60_000
        assert seen[-1].event_type == "job_succeeded"


async def test_what_could_not_be_read_back_is_never_written(world: World) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()
    broken = Failure(message="x", stage="training")  # type: ignore[arg-type]

    for call in (
        world.registry.heartbeat(grant, progress=Progress(done=0.5)),  # type: ignore[arg-type]
        world.registry.complete(grant, broken),
        world.registry.complete(grant, Success(), op_id="x" * 5_000_000),
        world.enqueue("job-2", promised_outputs=1.5),
        world.registry.cancel("job-1", actor="ana"),
    ):
        with pytest.raises(Invalid):
            await call

    assert (await world.registry.status("job-1")).state is State.ASSIGNED


async def test_a_caller_that_has_left_claims_nothing(tmp_path: Path) -> None:
    async with open_world(sqlite_store, tmp_path) as world:
        await world.enqueue("job-1")
        busy = [asyncio.create_task(world.enqueue(f"other-{n}", queue="other")) for n in range(3)]
        await asyncio.sleep(0)
        leaver = asyncio.create_task(world.registry.acquire("job-1", owner="leaver"))
        await asyncio.sleep(0)
        leaver.cancel()
        await asyncio.gather(*busy, leaver, return_exceptions=True)

        job: Job = await world.registry.status("job-1")

        assert job.state is State.QUEUED


async def test_a_payload_with_spaces_around_is_the_same_request(tmp_path: Path) -> None:
    async with open_world(sqlite_store, tmp_path) as world:
        registry = world.registry
        spec = Spec(payload=msgspec.Raw(b' {"a": 1}\n'))
        request = JobRequest(spec=spec, request_id="r")

        first = await registry.enqueue(request, actor="user:ana")
        again = await registry.enqueue(request, actor="user:ana")

        assert again.job_id == first.job_id
