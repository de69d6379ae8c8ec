"""An output store that is away, or does not let the server in: what jobs, submitters and the log are told."""

import logging
from pathlib import Path

import pytest

from holdfast.core.errors import Denied, Unavailable
from holdfast.core.outputs import OWNER_GRACE, VALIDATION_TIMEOUT, File, OutputPromise
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs import validation
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.ports import JobRequest, Outputs
from holdfast.server.server_outputs import ServerOutputs
from holdfast.system import SystemIds
from tests.server.outputs_server import (
    QUEUE,
    STRANGER_STORE,
    HeldOutputs,
    OutputsServer,
    lines,
    open_outputs_server,
    tasks,
)


async def test_an_output_store_that_is_away_keeps_nobody_from_making_jobs(tmp_path: Path) -> None:
    store = await HeldOutputs.make(tmp_path)
    async with open_outputs_server(tmp_path, shown=store) as here:
        some = tasks()
        sha256, count = await here.inspector.store_manifest(lines(some))
        promise = OutputPromise(manifest=sha256, entries=count, store=here.outputs.store_id)
        await here.put("earlier", *some)
        request = JobRequest(spec=Spec(queue=QUEUE, kind="sweep", outputs=promise))

        store.away = True
        made = await here.inspector.submit(request, actor="user:ana")
        await here.run(made)
        unseen = await here.inspector.validate(made.job_id, actor="user:ana", force=True)
        store.away = False
        here.clock.advance(3600)
        await here.server.app.context.outputs.sweep()

        assert made.state is State.QUEUED
        assert unseen.state is State.VALIDATING
        assert unseen.check is not None
        assert "does not answer" in (unseen.check.reason or "")
        assert (await here.registry.status(made.job_id)).state is State.SUCCEEDED


def told_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the server warned of about its output store."""
    return [
        one.getMessage()
        for one in caplog.records
        if one.levelno == logging.WARNING and one.getMessage().startswith("the output store")
    ]


async def reason_of(here: OutputsServer, job_id: str) -> str | None:
    check = (await here.registry.status(job_id)).check
    return None if check is None else check.reason


@pytest.mark.parametrize("seen_before", [False, True])
async def test_while_the_output_store_is_away_the_jobs_that_wait_for_it_say_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, seen_before: bool
) -> None:
    place, elsewhere = tmp_path / "outputs", tmp_path / "moved"

    async def opening(create: bool) -> Outputs | None:
        return await DirectoryOutputs.open(place, create=create)

    async with open_outputs_server(tmp_path) as here:
        server = ServerOutputs(here.registry, here.clock, SystemIds(), opening)
        if seen_before:
            await server.sweep()
        job = await here.run(await here.enqueue(here.promise("curve")), "curve")
        files = await here.enqueue(OutputPromise(files=(File("a"),)), kind="command")
        await here.run(files, where="box:/tmp")
        theirs = OutputPromise(names=("curve",), store=STRANGER_STORE)
        stranger = await here.run(await here.enqueue(theirs))
        place.rename(elsewhere)

        await server.sweep()
        early = await reason_of(here, job.job_id)
        here.clock.advance(OWNER_GRACE.total_seconds())
        for _ in range(5):
            await server.sweep()
            here.clock.advance(30.0)
        unseen = (await here.registry.status(job.job_id)).check
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
        assert (await here.registry.status(job.job_id)).state is State.SUCCEEDED

    warned = told_in(caplog)
    assert len(warned) == len(set(warned)) <= 2, "once per change"
    assert all(str(place) in one for one in warned)
    assert warned


async def test_what_others_look_for_already_is_left_to_them_while_the_store_is_away(
    with_outputs: OutputsServer,
) -> None:
    async def opening(_: bool) -> Outputs | None:
        raise Unavailable("It is away.")

    server = ServerOutputs(with_outputs.registry, with_outputs.clock, SystemIds(), opening)
    job = await with_outputs.run(await with_outputs.enqueue(with_outputs.promise("curve")))
    with_outputs.clock.advance(OWNER_GRACE.total_seconds())
    await with_outputs.registry.report_validation(job.job_id, actor="validator:other", done=0, total=1)

    await server.sweep()
    looked = await with_outputs.registry.status(job.job_id)
    with_outputs.clock.advance(VALIDATION_TIMEOUT.total_seconds() + 1)
    await server.sweep()
    await server.close()

    assert looked.check is not None
    assert (looked.check.by, looked.check.reason) == ("validator:other", None)
    assert await reason_of(with_outputs, job.job_id) == "It is away."


async def test_only_a_page_of_jobs_is_told_at_once_and_the_rest_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "PAGE", 2)

    async def opening(_: bool) -> Outputs | None:
        raise Unavailable("It is away.")

    async with open_outputs_server(tmp_path) as here:
        server = ServerOutputs(here.registry, here.clock, SystemIds(), opening)
        jobs = [await here.run(await here.enqueue(here.promise("curve"))) for _ in range(5)]
        here.clock.advance(OWNER_GRACE.total_seconds())
        counts = []
        for _ in range(3):
            await server.sweep()
            counts.append(sum([bool(await reason_of(here, one.job_id)) for one in jobs]))
        await server.close()

        assert counts == [2, 4, 5]


async def test_a_bucket_that_does_not_let_the_server_in_is_no_fault_of_who_submits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def opening(_: bool) -> Outputs | None:
        raise Denied("We are not let in at s3://secret")

    async with open_outputs_server(tmp_path, opening=opening) as here:
        server_outputs = here.server.app.context.outputs
        named = here.promise("curve")
        request = JobRequest(spec=Spec(queue=QUEUE, kind="sweep", outputs=named))
        made = await here.inspector.submit(request, actor="user:ana", reuse=True)
        unplaced = Spec(queue=QUEUE, kind="sweep", outputs=OutputPromise(names=("curve",)))
        for refused in (
            here.inspector.submit(JobRequest(spec=unplaced), actor="user:ana"),
            here.inspector.store_manifest(lines(tasks())),
            here.inspector.list_outputs(made.job_id),
        ):
            with pytest.raises(Unavailable, match="its output store, is not available") as said:
                await refused
            assert "secret" not in str(said.value)
        await here.run(made)
        here.clock.advance(OWNER_GRACE.total_seconds())
        for _ in range(3):
            await server_outputs.sweep()

        assert made.state is State.QUEUED
        assert await reason_of(here, made.job_id) == "We are not let in at s3://secret"

    assert told_in(caplog) == ["the output store cannot be seen: We are not let in at s3://secret"]


async def test_a_bucket_that_no_longer_lets_the_server_in_is_told_and_seen_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await HeldOutputs.make(tmp_path)
    async with open_outputs_server(tmp_path, shown=store) as here:
        server_outputs = here.server.app.context.outputs
        some = tasks()
        sha256, count = await here.inspector.store_manifest(lines(some))
        await here.put("earlier", *some)
        spec = Spec(queue=QUEUE, kind="sweep", outputs=OutputPromise(manifest=sha256, entries=count))

        store.refused = True
        made = await here.inspector.submit(JobRequest(spec=spec), actor="user:ana", reuse=True)
        await here.run(made)
        here.clock.advance(OWNER_GRACE.total_seconds())
        await server_outputs.sweep()
        reason = await reason_of(here, made.job_id)
        store.refused = False
        here.clock.advance(3600)
        await server_outputs.sweep()

        assert made.state is State.QUEUED
        assert reason == "We are not let in at s3://secret"
        assert (await here.registry.status(made.job_id)).state is State.SUCCEEDED

    assert len(told_in(caplog)) == 1
