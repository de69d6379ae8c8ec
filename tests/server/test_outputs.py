"""Outputs by Connect: validators elsewhere, and what a server lists, validates and resumes itself."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.core.errors import Conflict, Exhausted, Invalid, NotFound
from holdfast.core.job import job_bytes
from holdfast.core.lifecycle import Success
from holdfast.core.outputs import File, Output, OutputPromise, ValidationResult
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs import manifests
from holdfast.outputs.validator import Validator
from holdfast.ports import Inspector, JobRequest, Registry
from holdfast.system import machine_name
from holdfast.wire import remote_inspector
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.values import JOB_REQUEST
from tests.server.outputs_server import (
    QUEUE,
    STRANGER_STORE,
    OutputsServer,
    lines,
    tasks,
)


async def test_a_validator_elsewhere_finds_what_a_handler_has_left(
    with_outputs: OutputsServer,
) -> None:
    job = await with_outputs.enqueue(with_outputs.promise("curve", "table"))
    ended = await with_outputs.run(job, "curve", "table")
    validator = Validator(with_outputs.remote, with_outputs.outputs, machine=None, name="w-7")

    judged = await validator.validate(ended)

    assert ended.state is State.VALIDATING
    assert judged.state is State.SUCCEEDED
    assert judged.found == ValidationResult(verified=2)
    [verdict] = (await with_outputs.remote.history(job.job_id))[-1:]
    assert verdict.actor == "validator:w-7"
    evidence = msgspec.convert(verdict.attributes["evidence"], list[Output])
    assert [(one.name, one.size) for one in evidence] == [("curve", 5), ("table", 5)]


async def test_where_a_command_ran_goes_over_the_wire_and_its_files_are_found_there(
    tmp_path: Path, with_outputs: OutputsServer
) -> None:
    (tmp_path / "model.pt").write_bytes(b"weights")
    promise = OutputPromise(files=(File("model.pt", size=7), File("log.txt")))
    job = await with_outputs.enqueue(promise, kind="command")
    ended = await with_outputs.run(job, where=f"box:{tmp_path}")
    elsewhere = Validator(with_outputs.remote, None, machine="other", name="o")

    unseen = await elsewhere.validate(ended)
    judged = await Validator(with_outputs.remote, None, machine="box", name="b").validate(ended)

    assert ended.check is not None
    assert ended.check.where == f"box:{tmp_path}"
    assert unseen.state is State.VALIDATING
    assert judged.state is State.PARTIAL_SUCCESS
    assert judged.found == ValidationResult(verified=1, missing=1, names=("log.txt",))


async def test_who_looks_keeps_others_away_and_trouble_says_when_to_look_again(
    with_outputs: OutputsServer,
) -> None:
    job = await with_outputs.run(await with_outputs.enqueue(with_outputs.promise("curve")))
    job_id = job.job_id

    looked = await with_outputs.remote.report_validation(job_id, actor="validator:a", done=1, total=4)
    with pytest.raises(Conflict, match="validator:a is validating"):
        await with_outputs.remote.report_validation(job_id, actor="validator:b")
    troubled = await with_outputs.remote.report_validation(job_id, actor="validator:a", trouble="not mounted")
    with pytest.raises(Conflict, match="validation was completed since"):
        await with_outputs.remote.report_validation(job_id, actor="validator:b", version=1)

    assert looked.check is not None
    assert (looked.check.by, looked.check.done, looked.check.total) == ("validator:a", 1, 4)
    assert troubled.check is not None
    assert (troubled.check.reason, troubled.check.tries) == ("not mounted", 1)
    assert troubled.check.next_at is not None
    assert troubled == await with_outputs.registry.status(job_id)


async def test_a_verdict_that_is_sent_again_is_answered_as_before(
    with_outputs: OutputsServer,
) -> None:
    job = await with_outputs.run(await with_outputs.enqueue(with_outputs.promise("curve")))
    found, lack = (
        ValidationResult(missing=1, names=("curve",)),
        Output(name="curve", missing="no"),
    )

    for _ in range(2):
        judged = await with_outputs.remote.complete_validation(
            job.job_id, found, actor="validator:v", op_id="once", evidence=[lack]
        )
        assert (judged.state, judged.found) == (State.FAILED, found)
    other = await with_outputs.run(await with_outputs.enqueue(with_outputs.promise("curve")))
    with pytest.raises(Invalid, match="2 verified and 0 missing"):
        await with_outputs.remote.complete_validation(
            other.job_id, ValidationResult(verified=2), actor="validator:v"
        )

    assert len(await with_outputs.registry.history(job.job_id)) == job.version + 1


async def test_a_server_lists_validates_and_resumes_what_is_in_its_output_store(
    with_outputs: OutputsServer,
) -> None:
    inspector: Inspector = with_outputs.inspector
    some = tasks(5)
    sha256, count = await inspector.store_manifest(lines(some))
    asked = Spec(queue=QUEUE, kind="sweep", outputs=OutputPromise(manifest=sha256, entries=count))
    job = await inspector.submit(JobRequest(spec=asked, job_id="study"), actor="user:ana")
    await with_outputs.put("study", *some[:3])
    await with_outputs.run(job)
    before = await inspector.list_outputs("study")

    judged = await inspector.validate("study", actor="user:ana", force=True)
    every = await inspector.list_outputs("study", limit=2)
    rest = await inspector.list_outputs("study", after=every.next)
    lacking = await inspector.list_outputs("study", missing=True)
    planned = await inspector.resume("study", actor="user:ana", dry_run=True)
    resumed = await inspector.resume("study", actor="user:ana", resume_id="r-1")
    again = await inspector.resume("study", actor="user:ana", resume_id="r-1")

    names = [task.name for task in some]
    assert job.spec.outputs is not None
    assert job.spec.outputs.store == with_outputs.outputs.store_id
    assert ([one.name for one in before.outputs], before.checked) == (names, False)
    assert judged.state is State.PARTIAL_SUCCESS
    assert [one.name for one in (*every.outputs, *rest.outputs)] == names
    assert (len(every.outputs), rest.next) == (2, None)
    assert [one.name for one in lacking.outputs] == names[3:]
    assert (planned.missing, planned.job) == (2, None)
    assert resumed.job is not None
    assert resumed.job.spec.resumed_from == "study"
    assert resumed.job.spec.promised_outputs == 2
    assert again == resumed


async def test_nothing_is_run_when_the_server_finds_every_output(
    with_outputs: OutputsServer,
) -> None:
    some = tasks()
    sha256, count = await with_outputs.inspector.store_manifest(lines(some))
    asked = Spec(queue=QUEUE, kind="sweep", outputs=OutputPromise(manifest=sha256, entries=count))
    first = await with_outputs.inspector.submit(JobRequest(spec=asked), actor="user:ana")
    await with_outputs.put(first.job_id, *some)

    request = JobRequest(spec=asked, request_id="again")
    cached = await with_outputs.inspector.submit(request, actor="user:ana")
    repeated = await with_outputs.inspector.submit(request, actor="user:ana")
    plain = await with_outputs.remote.enqueue(JobRequest(spec=first.spec), actor="user:ana")

    assert first.state is State.QUEUED
    assert cached.state is State.SUCCEEDED
    assert cached.job_id.startswith("cached-")
    assert cached.found is not None
    assert (cached.found.verified, cached.found.reused) == (3, 3)
    assert repeated.job_id == cached.job_id
    assert plain.state is State.QUEUED


async def test_a_server_looks_at_no_plain_path_whatever_a_job_says(
    tmp_path: Path, with_outputs: OutputsServer
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"x")
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    promise = OutputPromise(files=(File(str(secret), sha256=digest),))
    payload = encode_process_spec(ProcessSpec(argv=("true",), cwd=str(tmp_path)))
    spec = Spec(queue=QUEUE, payload=payload, outputs=promise)
    made = await with_outputs.inspector.submit(JobRequest(spec=spec), actor="user:ana", reuse=True)
    for name in ("", "box", "localhost", machine_name()):
        job = await with_outputs.enqueue(promise, kind="command")
        await with_outputs.run(job, where=f"{name}:{tmp_path}")

        seen = await with_outputs.inspector.validate(job.job_id, actor="user:ana", force=True)
        with_outputs.clock.advance(3600)
        await with_outputs.server.app.context.outputs.sweep()
        page = await with_outputs.inspector.list_outputs(job.job_id)

        assert seen.check is not None
        assert (seen.state, seen.found) == (State.VALIDATING, None)
        assert seen.check.reason is not None
        assert (await with_outputs.registry.status(job.job_id)).state is State.VALIDATING
        assert page.outputs == (Output(name=str(secret)),)
        assert not page.checked
    assert made.state is State.QUEUED


async def test_outputs_in_another_store_are_not_for_this_server(
    with_outputs: OutputsServer,
) -> None:
    promise = OutputPromise(names=("curve",), store=STRANGER_STORE, place="s3://bucket/results")
    job = await with_outputs.run(await with_outputs.enqueue(promise))

    for ask in (
        with_outputs.inspector.list_outputs(job.job_id),
        with_outputs.inspector.validate(job.job_id, actor="user:ana"),
    ):
        with pytest.raises(Conflict, match=f"{STRANGER_STORE}, and this server has"):
            await ask
    assert (await with_outputs.registry.status(job.job_id)).state is State.VALIDATING


async def test_all_requests_are_checked_before_any_is_made_also_to_reuse(
    with_outputs: OutputsServer,
) -> None:
    good = Spec(queue=QUEUE, kind="sweep", outputs=with_outputs.promise("curve"))
    wrong = replace(good, outputs=with_outputs.promise("curve", "curve"))
    requests = [JOB_REQUEST.encode(JobRequest(spec=one)) for one in (good, wrong)]

    with pytest.raises(Invalid, match="promised twice"):
        await with_outputs.remote.connection.call("enqueue", pb.EnqueueRequest(requests=requests, reuse=True))

    assert (await with_outputs.registry.list_jobs()).jobs == ()


async def test_what_a_job_promises_is_part_of_its_size(with_outputs: OutputsServer) -> None:
    files = tuple(File(f"{number:03}-{'x' * 1000}") for number in range(15))
    job = await with_outputs.enqueue(OutputPromise(files=files), kind="command")

    assert job_bytes(job) > 15_000


async def test_a_manifest_is_refused_with_its_line_and_one_that_is_too_large_before_it_is_sent(
    monkeypatch: pytest.MonkeyPatch, with_outputs: OutputsServer
) -> None:
    some = tasks()

    with pytest.raises(Invalid, match="Lines 1 and 3"):
        await with_outputs.inspector.store_manifest(lines([some[0], some[1], some[0]]))
    with pytest.raises(Invalid, match="at least one"):
        await with_outputs.inspector.store_manifest(lines([]))
    sha256, _ = await with_outputs.inspector.store_manifest(lines(some))
    kept = [task async for task in manifests.read_tasks(with_outputs.outputs, sha256)]
    monkeypatch.setattr(remote_inspector, "MESSAGE_BYTES", 400)
    with pytest.raises(Exhausted, match="--outputs"):
        await with_outputs.inspector.store_manifest(lines(some))

    assert kept == some


async def test_a_validator_of_its_own_judges_and_resumes_by_words_alone(
    with_outputs: OutputsServer,
) -> None:
    """A job that promises a number: nobody but its caller knows which outputs these are."""
    registry: Registry = with_outputs.remote
    spec = Spec(queue=QUEUE, kind="mine", promised_outputs=4)
    job = await registry.enqueue(JobRequest(spec=spec), actor="user:ana")
    grant = await registry.acquire(job.job_id, owner="w-7")
    await registry.complete(grant, Success())

    await registry.complete_validation(
        job.job_id, ValidationResult(verified=3, missing=1), actor="validator:mine"
    )
    promise = OutputPromise(names=("fourth",), store="of-mine")
    resumed = await registry.resume(job.job_id, promise, actor="user:ana")
    with pytest.raises(Conflict, match="not resumable"):
        await registry.resume(resumed.job_id, promise, actor="user:ana")
    with pytest.raises(NotFound):
        await registry.resume("nobody", promise, actor="user:ana")

    assert resumed.spec.resumed_from == job.job_id
    assert resumed.spec.outputs is not None
    assert resumed.spec.outputs.names == ("fourth",)
