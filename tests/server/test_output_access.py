"""Who may decide about outputs: validators with keys, operators who override, owners who resume."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.core.access import Scope
from holdfast.core.errors import Corrupt, Denied, Invalid, NotFound
from holdfast.core.job import Job
from holdfast.core.outputs import File, Output, OutputPromise, ValidationResult
from holdfast.core.state import State
from holdfast.outputs.validator import Validator
from holdfast.wire.remote_inspector import RemoteInspector
from tests.server.outputs_server import OutputsServer, lines, open_outputs_server, tasks

WORK = (Scope.SUBMIT, Scope.WORK)
"""What a worker's key may; it also asks for the jobs here."""


async def actor_of(here: OutputsServer, job: Job) -> str | None:
    return (await here.registry.history(job.job_id))[-1].actor


@pytest.fixture
async def keyed_outputs(tmp_path: Path) -> AsyncIterator[OutputsServer]:
    """A server with keys and an output store."""
    async with open_outputs_server(tmp_path, keys=True) as keyed_outputs:
        yield keyed_outputs


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("validator:w-7", "validator:w-7@ana"),
        ("validator:w-7@bo", "validator:w-7-bo@ana"),
        ("validator:bo", "validator:bo@ana"),
        ("user:bo", "validator:bo@ana"),
        ("system:expire", "validator:expire@ana"),
        ("validator:" + "x" * 118, "validator:" + "x" * 114 + "@ana"),
        ("", "validator:ana"),
    ],
)
async def test_a_validator_with_a_key_passes_for_nobody_else(
    said: str, known: str, keyed_outputs: OutputsServer
) -> None:
    ana = await keyed_outputs.key("ana", *WORK)
    job = await keyed_outputs.run(await keyed_outputs.enqueue(keyed_outputs.promise("curve"), by=ana), by=ana)

    looked = await ana.report_validation(job.job_id, actor=said, done=1)
    await ana.complete_validation(job.job_id, ValidationResult(verified=1), actor=said)
    await ana.close()

    assert looked.check is not None
    assert looked.check.by == known
    assert await actor_of(keyed_outputs, job) == known


async def test_to_override_a_verdict_is_for_administrators_and_under_their_own_name(
    keyed_outputs: OutputsServer,
) -> None:
    worker, admin = (
        await keyed_outputs.key("w", *WORK),
        await keyed_outputs.key("root", Scope.ADMIN),
    )
    job = await keyed_outputs.run(
        await keyed_outputs.enqueue(keyed_outputs.promise("curve"), by=worker), by=worker
    )
    word, reason = State.SUCCEEDED, "it is on the other disk"

    with pytest.raises(Denied):
        await worker.complete_validation(job.job_id, actor="validator:w", override=word, reason=reason)
    with pytest.raises(Denied):
        await admin.complete_validation(job.job_id, ValidationResult(verified=1), actor="validator:w")
    with pytest.raises(Invalid, match="reason"):
        await admin.complete_validation(job.job_id, actor="user:x", override=word)
    judged = await admin.complete_validation(
        job.job_id, actor="validator:server", override=word, reason=reason
    )
    for one in (worker, admin):
        await one.close()

    assert judged.state is State.SUCCEEDED
    assert await actor_of(keyed_outputs, job) == "user:root"


async def test_a_worker_that_may_only_work_judges_and_is_answered_again(
    keyed_outputs: OutputsServer,
) -> None:
    """It does not see what has ended; but a repeat of its own verdict is no question about that."""
    worker, ana = (
        await keyed_outputs.key("w", Scope.WORK),
        await keyed_outputs.key("ana", Scope.SUBMIT),
    )
    job = await keyed_outputs.run(
        await keyed_outputs.enqueue(keyed_outputs.promise("curve"), by=ana), by=worker
    )

    first = await worker.complete_validation(
        job.job_id, ValidationResult(verified=1), actor="validator:v", op_id="o"
    )
    again = await worker.complete_validation(
        job.job_id, ValidationResult(verified=1), actor="validator:v", op_id="o"
    )
    with pytest.raises(NotFound):
        await worker.status(job.job_id)
    for one in (worker, ana):
        await one.close()

    assert first.state is again.state is State.SUCCEEDED


async def test_files_and_resumed_outputs_are_judged_by_who_may_only_work(
    tmp_path: Path, keyed_outputs: OutputsServer
) -> None:
    """What a validator has to know is no data: where a job ran, and which job resumed it."""
    worker, ana = (
        await keyed_outputs.key("w", Scope.WORK),
        await keyed_outputs.key("ana", Scope.SUBMIT),
    )
    (tmp_path / "one").write_bytes(b"1")
    (tmp_path / "again").mkdir()
    where, again = f"box:{tmp_path}", f"box:{tmp_path / 'again'}"
    promise = OutputPromise(files=(File("one"), File("two")))
    job = await keyed_outputs.enqueue(promise, by=ana, kind="command")
    ended = await keyed_outputs.run(job, where=where, by=worker)
    validator = Validator(worker, None, machine="box", name="w")

    partial = await validator.validate(ended)
    lacking = OutputPromise(files=(File("two"),))
    resumed = await ana.resume(job.job_id, lacking, actor="user:ana")
    (tmp_path / "again" / "two").write_bytes(b"2")
    await validator.validate(await keyed_outputs.run(resumed, where=again, by=worker))
    whole = await keyed_outputs.registry.status(job.job_id)
    seen = await ana.status(resumed.job_id)
    told = [event.attributes for event in await worker.history(resumed.job_id)]
    for one in (worker, ana):
        await one.close()

    assert partial.state is State.PARTIAL_SUCCESS
    assert whole.state is State.SUCCEEDED
    assert seen.submitted_by == "key:ana"
    assert {"where": again} in told
    assert all(set(one) <= {"where", "resumed_as"} for one in told)


async def test_who_resumes_for_another_does_not_come_to_own_the_job(
    keyed_outputs: OutputsServer,
) -> None:
    ana, bo = (
        await keyed_outputs.key("ana", *WORK),
        await keyed_outputs.key("bo", *WORK, Scope.OBSERVE),
    )
    root = await keyed_outputs.key("root", Scope.ADMIN, Scope.SUBMIT)
    promise = keyed_outputs.promise("curve", "table")
    job = await keyed_outputs.run(await keyed_outputs.enqueue(promise, by=ana), "curve", by=ana)
    await RemoteInspector(ana.connection).validate(job.job_id, actor="user:ana", force=True)

    with pytest.raises(Denied):
        await RemoteInspector(bo.connection).resume(job.job_id, actor="user:bo")
    resumed = await RemoteInspector(root.connection).resume(job.job_id, actor="user:x")
    mine = await RemoteInspector(ana.connection).resume(job.job_id, actor="user:x")
    for one in (ana, bo, root):
        await one.close()

    assert resumed.job is not None
    assert mine.job is not None
    assert resumed.job.submitted_by == mine.job.submitted_by == "key:ana"
    first = (await keyed_outputs.registry.history(resumed.job.job_id))[0]
    assert first.actor == "user:root"


async def test_nobody_says_themselves_what_their_job_resumes(keyed_outputs: OutputsServer) -> None:
    ana = await keyed_outputs.key("ana", *WORK)

    with pytest.raises(Denied, match="use Replay or Resume"):
        await keyed_outputs.enqueue(keyed_outputs.promise("curve"), by=ana, resumed_from="study")
    await ana.close()


async def test_a_forged_report_is_refused_and_never_read(with_outputs: OutputsServer) -> None:
    some = tasks(2)
    sha256, count = await with_outputs.inspector.store_manifest(lines(some))
    promise = OutputPromise(manifest=sha256, entries=count, store=with_outputs.outputs.store_id)
    victim = await with_outputs.run(await with_outputs.enqueue(promise))
    await with_outputs.put(victim.job_id, some[0])
    await with_outputs.inspector.validate(victim.job_id, actor="user:ana", force=True)
    theirs = (await with_outputs.registry.status(victim.job_id)).found
    assert theirs is not None
    assert theirs.report is not None
    name = theirs.report.rpartition("/")[2]
    job = await with_outputs.run(await with_outputs.enqueue(promise))

    for report in (
        theirs.report,
        f"reports/{job.job_id}/../{victim.job_id}/{name}",
        f"reports/{job.job_id}/x/{name}",
        f"manifests/{sha256}.jsonl",
        f"/reports/{job.job_id}/{name}",
        f"reports/{job.job_id}/{name}\n",
    ):
        found = ValidationResult(verified=1, missing=1, report=report)
        with pytest.raises(Invalid, match="A report must be in the output store"):
            await with_outputs.remote.complete_validation(job.job_id, found, actor="validator:v")
    found = ValidationResult(verified=1, missing=1, report=theirs.report)
    await with_outputs.registry.complete_validation(job.job_id, found, actor="validator:v")  # past the server
    with pytest.raises(Corrupt):
        await with_outputs.inspector.list_outputs(job.job_id)
    planned = await with_outputs.inspector.resume(job.job_id, actor="user:ana", dry_run=True)
    assert planned.names == (some[1].name,)  # as it was looked at, not as that report says
    lacking = await with_outputs.inspector.list_outputs(victim.job_id, missing=True)

    assert [one.name for one in lacking.outputs] == [some[1].name]


async def test_what_a_key_does_not_see_has_no_outputs_for_it(keyed_outputs: OutputsServer) -> None:
    ana = await keyed_outputs.key("ana", *WORK)
    stranger = await keyed_outputs.key("zoe", Scope.SUBMIT)
    job = await keyed_outputs.run(
        await keyed_outputs.enqueue(keyed_outputs.promise("curve"), by=ana), "curve", by=ana
    )
    inspector = RemoteInspector(stranger.connection)

    for ask in (
        inspector.list_outputs(job.job_id),
        inspector.validate(job.job_id, actor="user:zoe", force=True),
        inspector.resume(job.job_id, actor="user:zoe"),
    ):
        with pytest.raises(NotFound, match=f"no job {job.job_id}"):
            await ask
    seen = await RemoteInspector(ana.connection).list_outputs(job.job_id)
    for one in (ana, stranger):
        await one.close()

    assert seen.outputs == (Output(name="curve"),)
    assert (await keyed_outputs.registry.status(job.job_id)).state is State.VALIDATING


async def test_the_evidence_is_listed_for_those_who_may_read_it_in_the_events(
    keyed_outputs: OutputsServer,
) -> None:
    ana, worker = (
        await keyed_outputs.key("ana", Scope.SUBMIT),
        await keyed_outputs.key("w", Scope.WORK),
    )
    watcher = await keyed_outputs.key("eve", Scope.OBSERVE)
    reader = await keyed_outputs.key("rex", Scope.OBSERVE, Scope.DATA)
    admin = await keyed_outputs.key("root", Scope.ADMIN)
    made = await keyed_outputs.enqueue(keyed_outputs.promise("curve", "log"), by=ana)
    job = await keyed_outputs.run(made, "curve", by=worker)
    await RemoteInspector(ana.connection).validate(job.job_id, actor="user:ana", force=True)

    listed, told = {}, {}
    for one in (ana, worker, watcher, reader, admin):
        events = await one.history(job.job_id)
        told[one] = any("evidence" in event.attributes for event in events)
        try:
            page = await RemoteInspector(one.connection).list_outputs(job.job_id)
            listed[one] = any(output.sha256 for output in page.outputs)
        except Denied:
            listed[one] = False
    with pytest.raises(Denied, match="observe:data"):
        await RemoteInspector(watcher.connection).list_outputs(job.job_id)
    for one in listed:
        await one.close()

    assert list(listed.values()) == [True, False, False, True, True]
    assert listed == told
