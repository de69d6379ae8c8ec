"""Whose word counts about outputs: validators with keys, operators who override, owners who resume."""

from pathlib import Path

import pytest
from wire_outputs_world import Scene, lines, play, tasks

from holdfast.core.access import Scope
from holdfast.core.errors import Corrupt, Denied, Invalid, NotFound
from holdfast.core.job import Job
from holdfast.core.outputs import File, Found, Output, Promise
from holdfast.core.state import State
from holdfast.outputs.validator import Validator
from holdfast.wire.remote_inspector import RemoteInspector

WORK = (Scope.SUBMIT, Scope.WORK)
"""What a worker's key may; it also asks for the jobs here."""


async def actor_of(here: Scene, job: Job) -> str | None:
    return (await here.registry.history(job.job_id))[-1].actor


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
def test_a_validator_with_a_key_passes_for_nobody_else(
    tmp_path: Path, said: str, known: str
) -> None:
    async def body(here: Scene) -> None:
        ana = await here.key("ana", *WORK)
        job = await here.run(await here.enqueue(here.promise("curve"), by=ana), by=ana)

        looked = await ana.look(job.job_id, actor=said, done=1)
        await ana.judge(job.job_id, Found(verified=1), actor=said)
        await ana.close()

        assert looked.check is not None
        assert looked.check.by == known
        assert await actor_of(here, job) == known

    play(tmp_path, body, keys=True)


def test_to_override_a_verdict_is_for_administrators_and_under_their_own_name(
    tmp_path: Path,
) -> None:
    async def body(here: Scene) -> None:
        worker, admin = await here.key("w", *WORK), await here.key("root", Scope.ADMIN)
        job = await here.run(await here.enqueue(here.promise("curve"), by=worker), by=worker)
        word, reason = State.SUCCEEDED, "it is on the other disk"

        with pytest.raises(Denied):
            await worker.judge(job.job_id, actor="validator:w", override=word, reason=reason)
        with pytest.raises(Denied):
            await admin.judge(job.job_id, Found(verified=1), actor="validator:w")
        with pytest.raises(Invalid, match="reason"):
            await admin.judge(job.job_id, actor="user:x", override=word)
        judged = await admin.judge(
            job.job_id, actor="validator:server", override=word, reason=reason
        )
        for one in (worker, admin):
            await one.close()

        assert judged.state is State.SUCCEEDED
        assert await actor_of(here, job) == "user:root"

    play(tmp_path, body, keys=True)


def test_a_worker_that_may_only_work_judges_and_is_answered_again(tmp_path: Path) -> None:
    """It does not see what has ended; but a repeat of its own verdict is no question about that."""

    async def body(here: Scene) -> None:
        worker, ana = await here.key("w", Scope.WORK), await here.key("ana", Scope.SUBMIT)
        job = await here.run(await here.enqueue(here.promise("curve"), by=ana), by=worker)

        first = await worker.judge(job.job_id, Found(verified=1), actor="validator:v", op_id="o")
        again = await worker.judge(job.job_id, Found(verified=1), actor="validator:v", op_id="o")
        with pytest.raises(NotFound):
            await worker.get(job.job_id)
        for one in (worker, ana):
            await one.close()

        assert first.state is again.state is State.SUCCEEDED

    play(tmp_path, body, keys=True)


def test_files_and_resumed_outputs_are_judged_by_who_may_only_work(tmp_path: Path) -> None:
    """What a validator has to know is no data: where a job ran, and which job resumed it."""

    async def body(here: Scene) -> None:
        worker, ana = await here.key("w", Scope.WORK), await here.key("ana", Scope.SUBMIT)
        (tmp_path / "one").write_bytes(b"1")
        (tmp_path / "again").mkdir()
        where, again = f"box:{tmp_path}", f"box:{tmp_path / 'again'}"
        promise = Promise(files=(File("one"), File("two")))
        job = await here.enqueue(promise, by=ana, kind="command")
        ended = await here.run(job, where=where, by=worker)
        validator = Validator(worker, None, machine="box", name="w")

        partial = await validator.validate(ended)
        lacking = Promise(files=(File("two"),))
        resumed = await ana.resume(job.job_id, lacking, actor="user:ana")
        (tmp_path / "again" / "two").write_bytes(b"2")
        await validator.validate(await here.run(resumed, where=again, by=worker))
        whole = await here.registry.get(job.job_id)
        seen = await ana.get(resumed.job_id)
        told = [event.attributes for event in await worker.history(resumed.job_id)]
        for one in (worker, ana):
            await one.close()

        assert partial.state is State.PARTIAL_SUCCESS
        assert whole.state is State.SUCCEEDED
        assert seen.submitted_by == "key:ana"
        assert {"where": again} in told
        assert all(set(one) <= {"where", "resumed_as"} for one in told)

    play(tmp_path, body, keys=True)


def test_who_resumes_for_another_does_not_come_to_own_the_job(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        ana, bo = await here.key("ana", *WORK), await here.key("bo", *WORK, Scope.OBSERVE)
        root = await here.key("root", Scope.ADMIN, Scope.SUBMIT)
        promise = here.promise("curve", "table")
        job = await here.run(await here.enqueue(promise, by=ana), "curve", by=ana)
        await RemoteInspector(ana.link).validate(job.job_id, actor="user:ana", force=True)

        with pytest.raises(Denied):
            await RemoteInspector(bo.link).resume(job.job_id, actor="user:bo")
        resumed = await RemoteInspector(root.link).resume(job.job_id, actor="user:x")
        mine = await RemoteInspector(ana.link).resume(job.job_id, actor="user:x")
        for one in (ana, bo, root):
            await one.close()

        assert resumed.job is not None
        assert mine.job is not None
        assert resumed.job.submitted_by == mine.job.submitted_by == "key:ana"
        first = (await here.registry.history(resumed.job.job_id))[0]
        assert first.actor == "user:root"

    play(tmp_path, body, keys=True)


def test_nobody_says_themselves_what_their_job_resumes(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        ana = await here.key("ana", *WORK)

        with pytest.raises(Denied, match="use Replay or Resume"):
            await here.enqueue(here.promise("curve"), by=ana, resumed_from="study")
        await ana.close()

    play(tmp_path, body, keys=True)


def test_a_forged_report_is_refused_and_never_read(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        some = tasks(2)
        sha256, count = await here.inspector.keep(lines(some))
        promise = Promise(manifest=sha256, entries=count, store=here.outputs.store_id)
        victim = await here.run(await here.enqueue(promise))
        await here.put(victim.job_id, some[0])
        await here.inspector.validate(victim.job_id, actor="user:ana", force=True)
        theirs = (await here.registry.get(victim.job_id)).found
        assert theirs is not None
        assert theirs.report is not None
        name = theirs.report.rpartition("/")[2]
        job = await here.run(await here.enqueue(promise))

        for report in (
            theirs.report,
            f"reports/{job.job_id}/../{victim.job_id}/{name}",
            f"reports/{job.job_id}/x/{name}",
            f"manifests/{sha256}.jsonl",
            f"/reports/{job.job_id}/{name}",
            f"reports/{job.job_id}/{name}\n",
        ):
            found = Found(verified=1, missing=1, report=report)
            with pytest.raises(Invalid, match="A report is in the output store"):
                await here.remote.judge(job.job_id, found, actor="validator:v")
        found = Found(verified=1, missing=1, report=theirs.report)
        await here.registry.judge(job.job_id, found, actor="validator:v")  # past the server
        with pytest.raises(Corrupt):
            await here.inspector.outputs(job.job_id)
        planned = await here.inspector.resume(job.job_id, actor="user:ana", dry_run=True)
        assert planned.names == (some[1].name,)  # as it was looked at, not as that report says
        lacking = await here.inspector.outputs(victim.job_id, missing=True)

        assert [one.name for one in lacking.outputs] == [some[1].name]

    play(tmp_path, body)


def test_what_a_key_does_not_see_has_no_outputs_for_it(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        ana = await here.key("ana", *WORK)
        stranger = await here.key("zoe", Scope.SUBMIT)
        job = await here.run(await here.enqueue(here.promise("curve"), by=ana), "curve", by=ana)
        inspector = RemoteInspector(stranger.link)

        for ask in (
            inspector.outputs(job.job_id),
            inspector.validate(job.job_id, actor="user:zoe", force=True),
            inspector.resume(job.job_id, actor="user:zoe"),
        ):
            with pytest.raises(NotFound, match=f"no job {job.job_id}"):
                await ask
        seen = await RemoteInspector(ana.link).outputs(job.job_id)
        for one in (ana, stranger):
            await one.close()

        assert seen.outputs == (Output(name="curve"),)
        assert (await here.registry.get(job.job_id)).state is State.VALIDATING

    play(tmp_path, body, keys=True)


def test_the_evidence_is_listed_for_those_who_may_read_it_in_the_events(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        ana, worker = await here.key("ana", Scope.SUBMIT), await here.key("w", Scope.WORK)
        watcher = await here.key("eve", Scope.OBSERVE)
        reader = await here.key("rex", Scope.OBSERVE, Scope.DATA)
        admin = await here.key("root", Scope.ADMIN)
        made = await here.enqueue(here.promise("curve", "log"), by=ana)
        job = await here.run(made, "curve", by=worker)
        await RemoteInspector(ana.link).validate(job.job_id, actor="user:ana", force=True)

        listed, told = {}, {}
        for one in (ana, worker, watcher, reader, admin):
            events = await one.history(job.job_id)
            told[one] = any("evidence" in event.attributes for event in events)
            try:
                page = await RemoteInspector(one.link).outputs(job.job_id)
                listed[one] = any(output.sha256 for output in page.outputs)
            except Denied:
                listed[one] = False
        with pytest.raises(Denied, match="observe:data"):
            await RemoteInspector(watcher.link).outputs(job.job_id)
        for one in listed:
            await one.close()

        assert list(listed.values()) == [True, False, False, True, True]
        assert listed == told

    play(tmp_path, body, keys=True)
