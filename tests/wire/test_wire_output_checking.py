"""What a server does by itself about outputs: it looks, never in anybody's way, and leaves off when told."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from wire_outputs_world import QUEUE, STRANGER_STORE, Scene, lines, play, tasks

from holdfast.core.errors import Denied, Exhausted, Unavailable
from holdfast.core.job import Job
from holdfast.core.outputs import GRACE, LOOK, File, Promise
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs import validation
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.lazily import no_outputs
from holdfast.ports import Outputs, Request
from holdfast.registry.local import LocalRegistry
from holdfast.server import checking
from holdfast.server.checking import Checking
from holdfast.server.limits import WAIT_SECONDS_MAX
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import CountingIds, ManualClock

HELD_SECONDS = 30.0


class Held(DirectoryOutputs):
    """An output store that a test may take away, or let wait."""

    away = False
    refused = False
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

    async def verify(self) -> None:
        if self.refused:
            raise Denied("We are not let in at s3://secret")
        await super().verify()

    async def get_many(self, paths: Sequence[str]) -> "list[bytes | None]":
        if self.refused:
            raise Denied("We are not let in at s3://secret")
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
        monkeypatch.setattr(checking, "WAIT_SECONDS_MAX", HELD_SECONDS)
        judged = await let_in(here, jobs[1].job_id)

        assert judged.state is State.FAILED

    async def let_in(here: Scene, job_id: str) -> Job:
        """What a validation says once there is room for it: the verdict is seen a moment before."""
        async with asyncio.timeout(HELD_SECONDS):
            while True:
                with suppress(Exhausted):
                    return await here.inspector.validate(job_id, actor="user:ana", force=True)

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


def told_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the server warned of about its output store."""
    return [
        one.getMessage()
        for one in caplog.records
        if one.levelno == logging.WARNING and one.getMessage().startswith("the output store")
    ]


async def reason_of(here: Scene, job_id: str) -> str | None:
    check = (await here.registry.get(job_id)).check
    return None if check is None else check.reason


@pytest.mark.parametrize("seen_before", [False, True])
def test_while_the_output_store_is_away_the_jobs_that_wait_for_it_say_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, seen_before: bool
) -> None:
    place, elsewhere = tmp_path / "outputs", tmp_path / "moved"

    async def opening(create: bool) -> Outputs | None:
        return await DirectoryOutputs.open(place, create=create)

    async def body(here: Scene) -> None:
        server = Checking(here.registry, here.clock, SystemIds(), opening)
        if seen_before:
            await server.sweep()
        job = await here.run(await here.enqueue(here.promise("curve")), "curve")
        files = await here.enqueue(Promise(files=(File("a"),)), kind="command")
        await here.run(files, where="box:/tmp")
        theirs = Promise(names=("curve",), store=STRANGER_STORE)
        stranger = await here.run(await here.enqueue(theirs))
        place.rename(elsewhere)

        await server.sweep()
        early = await reason_of(here, job.job_id)
        here.clock.advance(GRACE.total_seconds())
        for _ in range(5):
            await server.sweep()
            here.clock.advance(30.0)
        unseen = (await here.registry.get(job.job_id)).check
        reasons = [await reason_of(here, one.job_id) for one in (files, stranger)]
        why = await here.registry.why(job.job_id)
        elsewhere.rename(place)
        here.clock.advance(3600)
        judged = await server.sweep()
        await server.close()

        assert early is None
        assert unseen is not None
        assert unseen.reason is not None
        assert str(place) in unseen.reason
        assert unseen.tries > 1
        assert unseen.reason.rstrip(".") in why
        assert reasons[0] is None
        assert (reasons[1] is None) is seen_before, "of another store only what is known is told"
        assert judged == 1
        assert (await here.registry.get(job.job_id)).state is State.SUCCEEDED

    play(tmp_path, body)

    warned = told_in(caplog)
    assert len(warned) == len(set(warned)) <= 2, "once per change"
    assert all(str(place) in one for one in warned)
    assert warned


def test_what_others_look_for_already_is_left_to_them_while_the_store_is_away(
    tmp_path: Path,
) -> None:
    async def opening(_: bool) -> Outputs | None:
        raise Unavailable("It is away.")

    async def body(here: Scene) -> None:
        server = Checking(here.registry, here.clock, SystemIds(), opening)
        job = await here.run(await here.enqueue(here.promise("curve")))
        here.clock.advance(GRACE.total_seconds())
        await here.registry.look(job.job_id, actor="validator:other", done=0, total=1)

        await server.sweep()
        looked = await here.registry.get(job.job_id)
        here.clock.advance(LOOK.total_seconds() + 1)
        await server.sweep()
        await server.close()

        assert looked.check is not None
        assert (looked.check.by, looked.check.reason) == ("validator:other", None)
        assert await reason_of(here, job.job_id) == "It is away."

    play(tmp_path, body)


def test_only_a_page_of_jobs_is_told_at_once_and_the_rest_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "PAGE", 2)

    async def opening(_: bool) -> Outputs | None:
        raise Unavailable("It is away.")

    async def body(here: Scene) -> None:
        server = Checking(here.registry, here.clock, SystemIds(), opening)
        jobs = [await here.run(await here.enqueue(here.promise("curve"))) for _ in range(5)]
        here.clock.advance(GRACE.total_seconds())
        counts = []
        for _ in range(3):
            await server.sweep()
            counts.append(sum([bool(await reason_of(here, one.job_id)) for one in jobs]))
        await server.close()

        assert counts == [2, 4, 5]

    play(tmp_path, body)


def test_a_bucket_that_does_not_let_the_server_in_is_no_fault_of_who_submits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def opening(_: bool) -> Outputs | None:
        raise Denied("We are not let in at s3://secret")

    async def body(here: Scene) -> None:
        checking = here.served.app.context.checking
        named = here.promise("curve")
        request = Request(spec=Spec(queue=QUEUE, kind="sweep", outputs=named))
        made = await here.inspector.submit(request, actor="user:ana", reuse=True)
        unplaced = Spec(queue=QUEUE, kind="sweep", outputs=Promise(names=("curve",)))
        for refused in (
            here.inspector.submit(Request(spec=unplaced), actor="user:ana"),
            here.inspector.keep(lines(tasks())),
            here.inspector.outputs(made.job_id),
        ):
            with pytest.raises(Unavailable, match="its output store, does not answer") as said:
                await refused
            assert "secret" not in str(said.value)
        await here.run(made)
        here.clock.advance(GRACE.total_seconds())
        for _ in range(3):
            await checking.sweep()

        assert made.state is State.QUEUED
        assert await reason_of(here, made.job_id) == "We are not let in at s3://secret"

    play(tmp_path, body, opening=opening)

    assert told_in(caplog) == ["the output store cannot be seen: We are not let in at s3://secret"]


def test_a_bucket_that_no_longer_lets_the_server_in_is_told_and_seen_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(here: Scene) -> None:
        checking = here.served.app.context.checking
        some = tasks()
        sha256, count = await here.inspector.keep(lines(some))
        await here.put("earlier", *some)
        spec = Spec(queue=QUEUE, kind="sweep", outputs=Promise(manifest=sha256, entries=count))

        store.refused = True
        made = await here.inspector.submit(Request(spec=spec), actor="user:ana", reuse=True)
        await here.run(made)
        here.clock.advance(GRACE.total_seconds())
        await checking.sweep()
        reason = await reason_of(here, made.job_id)
        store.refused = False
        here.clock.advance(3600)
        await checking.sweep()

        assert made.state is State.QUEUED
        assert reason == "We are not let in at s3://secret"
        assert (await here.registry.get(made.job_id)).state is State.SUCCEEDED

    store = held(tmp_path)
    play(tmp_path, body, shown=store)

    assert len(told_in(caplog)) == 1
