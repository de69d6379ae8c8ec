"""Validation by the server itself: in the background, holding up no call, and stopped with the server."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.core.errors import Exhausted
from holdfast.core.job import Job
from holdfast.core.outputs import OWNER_GRACE, VALIDATION_TIMEOUT, OutputPromise
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs.lazy import no_outputs
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.server import server_outputs
from holdfast.server.limits import WAIT_SECONDS_MAX
from holdfast.server.server_outputs import ServerOutputs
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import CountingIds, ManualClock
from tests.server.outputs_server import (
    HELD_SECONDS,
    QUEUE,
    HeldOutputs,
    OutputsServer,
    lines,
    open_outputs_server,
    tasks,
)


async def test_a_server_judges_what_is_due_and_leaves_the_rest_to_whoever_ran_it(
    with_outputs: OutputsServer,
) -> None:
    server_outputs = with_outputs.server.app.context.outputs
    job = await with_outputs.run(await with_outputs.enqueue(with_outputs.promise("curve")), "curve")

    early = await server_outputs.sweep()
    with_outputs.clock.advance(OWNER_GRACE.total_seconds())
    due = await server_outputs.sweep()
    after = await server_outputs.sweep()

    assert (early, due, after) == (0, 1, 0)
    judged = await with_outputs.registry.status(job.job_id)
    assert judged.state is State.SUCCEEDED
    [verdict] = (await with_outputs.registry.history(job.job_id))[-1:]
    assert (verdict.actor or "").startswith("validator:server-")


async def test_a_server_sweeps_every_half_minute_until_it_is_stopped(tmp_path: Path) -> None:
    clock, ids = ManualClock(), CountingIds()
    registry = LocalRegistry(MemoryStore(clock, ids), ids)
    server = ServerOutputs(registry, clock, ids, no_outputs)
    swept, counts = 0, list[int]()

    async def sweep() -> int:
        nonlocal swept
        swept += 1
        return 0

    server.sweep = sweep  # type: ignore[method-assign]
    loop = asyncio.create_task(server.sweep_forever())
    for seconds in (0.0, 20.0, 17.5, 37.5, 37.5):
        clock.advance(seconds)
        for _turn in range(10):
            await asyncio.sleep(0)
        counts.append(swept)
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop
    await registry.close()

    assert counts == [0, 0, 1, 2, 3]


async def test_who_asks_for_a_validation_waits_for_a_while_and_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_outputs, "WAIT_SECONDS_MAX", 0.05)

    store = await HeldOutputs.make(tmp_path)
    async with open_outputs_server(tmp_path, shown=store) as here:
        job = await here.run(await here.enqueue(here.promise("curve")), "curve")
        store.go_on.clear()

        asked = await here.inspector.validate(job.job_id, actor="user:ana", force=True)
        await store.begun.wait()
        again = await here.inspector.validate(job.job_id, actor="user:bo", force=True)
        store.go_on.set()
        judged = await here.registry.wait(job.job_id, timeout=HELD_SECONDS)

        assert asked.state is again.state is State.VALIDATING
        assert again.check is not None
        assert (again.check.by or "").endswith("for user:ana")
        assert judged.state is State.SUCCEEDED


async def test_who_asks_for_what_is_looked_for_already_waits_for_the_same_answer(
    tmp_path: Path,
) -> None:
    store = await HeldOutputs.make(tmp_path)
    async with open_outputs_server(tmp_path, shown=store) as here:
        job = await here.run(await here.enqueue(here.promise("curve")), "curve")
        store.go_on.clear()

        first = asyncio.create_task(here.inspector.validate(job.job_id, actor="user:ana", force=True))
        await store.begun.wait()
        second = asyncio.create_task(here.inspector.validate(job.job_id, actor="user:bo", force=True))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.shield(second)
        store.go_on.set()
        answers = await asyncio.gather(first, second)

        assert [one.state for one in answers] == [State.SUCCEEDED] * 2


async def test_only_so_many_validations_wait_at_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_outputs, "WAIT_SECONDS_MAX", 0.05)
    monkeypatch.setattr(server_outputs, "VALIDATIONS_WAITING_MAX", 1)

    async def let_in(here: OutputsServer, job_id: str) -> Job:
        """What a validation says once there is room for it: the verdict is seen a moment before."""
        async with asyncio.timeout(HELD_SECONDS):
            while True:
                with suppress(Exhausted):
                    return await here.inspector.validate(job_id, actor="user:ana", force=True)

    store = await HeldOutputs.make(tmp_path)
    async with open_outputs_server(tmp_path, shown=store) as here:
        jobs = [await here.run(await here.enqueue(here.promise("curve"))) for _ in range(2)]
        store.go_on.clear()

        await here.inspector.validate(jobs[0].job_id, actor="user:ana", force=True)
        with pytest.raises(Exhausted, match="try again later"):
            await here.inspector.validate(jobs[1].job_id, actor="user:ana", force=True)
        store.go_on.set()
        await here.registry.wait(jobs[0].job_id, timeout=HELD_SECONDS)
        monkeypatch.setattr(server_outputs, "WAIT_SECONDS_MAX", HELD_SECONDS)
        judged = await let_in(here, jobs[1].job_id)

        assert judged.state is State.FAILED


async def test_a_server_that_stops_waits_for_no_validation_and_another_takes_it_up(
    tmp_path: Path,
) -> None:
    store = await HeldOutputs.make(tmp_path)
    async with open_outputs_server(tmp_path, shown=store) as here:
        context = here.server.app.context
        job = await here.run(await here.enqueue(here.promise("curve")), "curve")
        store.go_on.clear()
        asking = asyncio.create_task(here.inspector.validate(job.job_id, actor="user:ana", force=True))
        await store.begun.wait()

        context.stop()
        async with asyncio.timeout(WAIT_SECONDS_MAX / 2):
            answer = await asking
        await context.close()
        store.go_on.set()
        left = await here.registry.status(job.job_id)
        here.clock.advance(VALIDATION_TIMEOUT.total_seconds() + 1)
        other = ServerOutputs(here.registry, here.clock, SystemIds(), here.opening)
        swept = await other.sweep()
        await other.close()

        assert answer.state is left.state is State.VALIDATING
        assert left.check is not None
        assert left.check.tries == 0
        assert store.closed == 1
        assert swept == 1
        assert (await here.registry.status(job.job_id)).state is State.SUCCEEDED


async def test_reuse_that_takes_too_long_to_look_for_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_outputs, "REUSE_SECONDS", 0.2)

    store = await HeldOutputs.make(tmp_path)
    async with open_outputs_server(tmp_path, shown=store) as here:
        some = tasks()
        sha256, count = await here.inspector.store_manifest(lines(some))
        await here.put("earlier", *some)
        spec = Spec(queue=QUEUE, kind="sweep", outputs=OutputPromise(manifest=sha256, entries=count))
        store.go_on.clear()

        made = await here.inspector.submit(JobRequest(spec=spec, job_id="study"), actor="user:ana")
        store.go_on.set()
        again = await here.inspector.submit(JobRequest(spec=spec, job_id="study"), actor="user:ana")

        assert (made.job_id, made.state) == ("study", State.QUEUED)
        assert again == made
