"""What a server does by itself about outputs: it looks, never in anybody's way, and leaves off when told."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from wire_outputs_world import QUEUE, Scene, lines, play, tasks

from holdfast.core.errors import Exhausted, Unavailable
from holdfast.core.outputs import GRACE, LOOK, Promise
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.ports import Request
from holdfast.registry.local import LocalRegistry
from holdfast.server import checking
from holdfast.server.checking import Checking, no_outputs
from holdfast.server.limits import WAIT_SECONDS_MAX
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import CountingIds, ManualClock

HELD_SECONDS = 30.0


class Held(DirectoryOutputs):
    """An output store that a test may take away, or let wait."""

    away = False
    begun: asyncio.Event
    go_on: asyncio.Event
    closed = 0

    @classmethod
    async def make(cls, folder: Path) -> "Held":
        made = await cls.open(folder / "outputs", create=True)
        assert isinstance(made, Held)
        made.begun, made.go_on = asyncio.Event(), asyncio.Event()
        made.go_on.set()
        return made

    async def get_many(self, paths: Sequence[str]) -> "list[bytes | None]":
        if self.away:
            raise Unavailable("nfs://secret-host does not answer")
        self.begun.set()
        async with asyncio.timeout(HELD_SECONDS):
            await self.go_on.wait()
        return await super().get_many(paths)

    async def close(self) -> None:
        self.closed += 1
        await super().close()


def held(folder: Path) -> Held:
    return asyncio.run(Held.make(folder))


def test_a_server_judges_what_is_due_and_leaves_the_rest_to_whoever_ran_it(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        checking = here.served.app.context.checking
        job = await here.run(await here.enqueue(here.promise("curve")), "curve")

        early = await checking.sweep()
        here.clock.advance(GRACE.total_seconds())
        due = await checking.sweep()
        after = await checking.sweep()

        assert (early, due, after) == (0, 1, 0)
        judged = await here.registry.get(job.job_id)
        assert judged.state is State.SUCCEEDED
        [verdict] = (await here.registry.history(job.job_id))[-1:]
        assert (verdict.actor or "").startswith("validator:server-")

    play(tmp_path, body)


def test_a_server_sweeps_every_half_minute_until_it_is_stopped(tmp_path: Path) -> None:
    async def main() -> None:
        clock, ids = ManualClock(), CountingIds()
        registry = LocalRegistry(MemoryStore(clock, ids), ids)
        server = Checking(registry, clock, ids, no_outputs)
        swept, counts = 0, list[int]()

        async def sweep() -> int:
            nonlocal swept
            swept += 1
            return 0

        server.sweep = sweep  # type: ignore[method-assign]
        loop = asyncio.create_task(server.sweep_for_ever())
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

    asyncio.run(main())


def test_who_asks_for_a_validation_waits_for_a_while_and_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "WAIT_SECONDS_MAX", 0.05)

    async def body(here: Scene) -> None:
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

    store = held(tmp_path)
    play(tmp_path, body, shown=store)


def test_who_asks_for_what_is_looked_for_already_waits_for_the_same_answer(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        job = await here.run(await here.enqueue(here.promise("curve")), "curve")
        store.go_on.clear()

        first = asyncio.create_task(
            here.inspector.validate(job.job_id, actor="user:ana", force=True)
        )
        await store.begun.wait()
        second = asyncio.create_task(
            here.inspector.validate(job.job_id, actor="user:bo", force=True)
        )
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.shield(second)
        store.go_on.set()
        answers = await asyncio.gather(first, second)

        assert [one.state for one in answers] == [State.SUCCEEDED] * 2

    store = held(tmp_path)
    play(tmp_path, body, shown=store)


def test_only_so_many_validations_wait_at_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "WAIT_SECONDS_MAX", 0.05)
    monkeypatch.setattr(checking, "VALIDATIONS_WAITING_MAX", 1)

    async def body(here: Scene) -> None:
        jobs = [await here.run(await here.enqueue(here.promise("curve"))) for _ in range(2)]
        store.go_on.clear()

        await here.inspector.validate(jobs[0].job_id, actor="user:ana", force=True)
        with pytest.raises(Exhausted, match="ask again later"):
            await here.inspector.validate(jobs[1].job_id, actor="user:ana", force=True)
        store.go_on.set()
        await here.registry.wait(jobs[0].job_id, timeout=HELD_SECONDS)
        judged = await here.inspector.validate(jobs[1].job_id, actor="user:ana", force=True)

        assert judged.state is State.FAILED

    store = held(tmp_path)
    play(tmp_path, body, shown=store)


def test_a_server_that_stops_waits_for_no_validation_and_another_takes_it_up(
    tmp_path: Path,
) -> None:
    async def body(here: Scene) -> None:
        context = here.served.app.context
        job = await here.run(await here.enqueue(here.promise("curve")), "curve")
        store.go_on.clear()
        asking = asyncio.create_task(
            here.inspector.validate(job.job_id, actor="user:ana", force=True)
        )
        await store.begun.wait()

        context.stop()
        async with asyncio.timeout(WAIT_SECONDS_MAX / 2):
            answer = await asking
        await context.close()
        store.go_on.set()
        left = await here.registry.get(job.job_id)
        here.clock.advance(LOOK.total_seconds() + 1)
        other = Checking(here.registry, here.clock, SystemIds(), here.opening)
        swept = await other.sweep()
        await other.close()

        assert answer.state is left.state is State.VALIDATING
        assert left.check is not None
        assert left.check.tries == 0
        assert store.closed == 1
        assert swept == 1
        assert (await here.registry.get(job.job_id)).state is State.SUCCEEDED

    store = held(tmp_path)
    play(tmp_path, body, shown=store)


def test_an_output_store_that_is_away_keeps_nobody_from_making_jobs(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        some = tasks()
        sha256, count = await here.inspector.keep(lines(some))
        promise = Promise(manifest=sha256, entries=count, store=here.outputs.store_id)
        await here.put("earlier", *some)
        request = Request(spec=Spec(queue=QUEUE, kind="sweep", outputs=promise))

        store.away = True
        made = await here.inspector.submit(request, actor="user:ana")
        await here.run(made)
        unseen = await here.inspector.validate(made.job_id, actor="user:ana", force=True)
        store.away = False
        here.clock.advance(3600)
        await here.served.app.context.checking.sweep()

        assert made.state is State.QUEUED
        assert unseen.state is State.VALIDATING
        assert unseen.check is not None
        assert "does not answer" in (unseen.check.reason or "")
        assert (await here.registry.get(made.job_id)).state is State.SUCCEEDED

    store = held(tmp_path)
    play(tmp_path, body, shown=store)


def test_reuse_that_takes_too_long_to_look_for_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "REUSE_SECONDS", 0.2)

    async def body(here: Scene) -> None:
        some = tasks()
        sha256, count = await here.inspector.keep(lines(some))
        await here.put("earlier", *some)
        spec = Spec(queue=QUEUE, kind="sweep", outputs=Promise(manifest=sha256, entries=count))
        store.go_on.clear()

        made = await here.inspector.submit(Request(spec=spec, job_id="study"), actor="user:ana")
        store.go_on.set()
        again = await here.inspector.submit(Request(spec=spec, job_id="study"), actor="user:ana")

        assert (made.job_id, made.state) == ("study", State.QUEUED)
        assert again == made

    store = held(tmp_path)
    play(tmp_path, body, shown=store)
