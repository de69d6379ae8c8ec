"""Outputs over the wire: validators elsewhere, and what a server answers about what it sees itself."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from wire_outputs_world import QUEUE, STRANGER_STORE, Scene, lines, play, tasks

from holdfast.core.command import Command, encode_command
from holdfast.core.errors import Conflict, Exhausted, Invalid, NotFound
from holdfast.core.job import job_bytes
from holdfast.core.lifecycle import Success
from holdfast.core.outputs import File, Found, Output, Promise
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs import manifests
from holdfast.outputs.validator import Validator
from holdfast.ports import Inspector, Registry, Request
from holdfast.system import machine
from holdfast.wire import remote_inspector
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.values import REQUEST


def test_a_validator_elsewhere_finds_what_a_handler_has_left(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        job = await here.enqueue(here.promise("curve", "table"))
        ended = await here.run(job, "curve", "table")
        validator = Validator(here.remote, here.outputs, machine=None, name="w-7")

        judged = await validator.validate(ended)

        assert ended.state is State.VALIDATING
        assert judged.state is State.SUCCEEDED
        assert judged.found == Found(verified=2)
        [verdict] = (await here.remote.history(job.job_id))[-1:]
        assert verdict.actor == "validator:w-7"
        evidence = msgspec.convert(verdict.attributes["evidence"], list[Output])
        assert [(one.name, one.size) for one in evidence] == [("curve", 5), ("table", 5)]

    play(tmp_path, body)


def test_where_a_command_ran_goes_over_the_wire_and_its_files_are_found_there(
    tmp_path: Path,
) -> None:
    async def body(here: Scene) -> None:
        (tmp_path / "model.pt").write_bytes(b"weights")
        promise = Promise(files=(File("model.pt", size=7), File("log.txt")))
        job = await here.enqueue(promise, kind="command")
        ended = await here.run(job, where=f"box:{tmp_path}")
        elsewhere = Validator(here.remote, None, machine="other", name="o")

        unseen = await elsewhere.validate(ended)
        judged = await Validator(here.remote, None, machine="box", name="b").validate(ended)

        assert ended.check is not None
        assert ended.check.where == f"box:{tmp_path}"
        assert unseen.state is State.VALIDATING
        assert judged.state is State.PARTIAL_SUCCESS
        assert judged.found == Found(verified=1, missing=1, names=("log.txt",))

    play(tmp_path, body)


def test_who_looks_keeps_others_away_and_trouble_says_when_to_look_again(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        job = await here.run(await here.enqueue(here.promise("curve")))
        job_id = job.job_id

        looked = await here.remote.look(job_id, actor="validator:a", done=1, total=4)
        with pytest.raises(Conflict, match="validator:a is looking"):
            await here.remote.look(job_id, actor="validator:b")
        troubled = await here.remote.look(job_id, actor="validator:a", trouble="not mounted")
        with pytest.raises(Conflict, match="judged it since"):
            await here.remote.look(job_id, actor="validator:b", version=1)

        assert looked.check is not None
        assert (looked.check.by, looked.check.done, looked.check.total) == ("validator:a", 1, 4)
        assert troubled.check is not None
        assert (troubled.check.reason, troubled.check.tries) == ("not mounted", 1)
        assert troubled.check.next_at is not None
        assert troubled == await here.registry.get(job_id)

    play(tmp_path, body)


def test_a_verdict_that_is_sent_again_is_answered_as_before(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        job = await here.run(await here.enqueue(here.promise("curve")))
        found, lack = Found(missing=1, names=("curve",)), Output(name="curve", missing="no")

        for _ in range(2):
            judged = await here.remote.judge(
                job.job_id, found, actor="validator:v", op_id="once", evidence=[lack]
            )
            assert (judged.state, judged.found) == (State.FAILED, found)
        other = await here.run(await here.enqueue(here.promise("curve")))
        with pytest.raises(Invalid, match="2 verified and 0 missing"):
            await here.remote.judge(other.job_id, Found(verified=2), actor="validator:v")

        assert len(await here.registry.history(job.job_id)) == job.version + 1

    play(tmp_path, body)


def test_a_server_lists_validates_and_resumes_what_is_in_its_output_store(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        inspector: Inspector = here.inspector
        some = tasks(5)
        sha256, count = await inspector.keep(lines(some))
        asked = Spec(queue=QUEUE, kind="sweep", outputs=Promise(manifest=sha256, entries=count))
        job = await inspector.submit(Request(spec=asked, job_id="study"), actor="user:ana")
        await here.put("study", *some[:3])
        await here.run(job)
        before = await inspector.outputs("study")

        judged = await inspector.validate("study", actor="user:ana", force=True)
        every = await inspector.outputs("study", limit=2)
        rest = await inspector.outputs("study", after=every.next)
        lacking = await inspector.outputs("study", missing=True)
        planned = await inspector.resume("study", actor="user:ana", dry_run=True)
        resumed = await inspector.resume("study", actor="user:ana", resume_id="r-1")
        again = await inspector.resume("study", actor="user:ana", resume_id="r-1")

        names = [task.name for task in some]
        assert job.spec.outputs is not None
        assert job.spec.outputs.store == here.outputs.store_id
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

    play(tmp_path, body)


def test_nothing_is_run_when_the_server_finds_every_output(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        some = tasks()
        sha256, count = await here.inspector.keep(lines(some))
        asked = Spec(queue=QUEUE, kind="sweep", outputs=Promise(manifest=sha256, entries=count))
        first = await here.inspector.submit(Request(spec=asked), actor="user:ana")
        await here.put(first.job_id, *some)

        request = Request(spec=asked, request_id="again")
        cached = await here.inspector.submit(request, actor="user:ana")
        repeated = await here.inspector.submit(request, actor="user:ana")
        plain = await here.remote.enqueue(Request(spec=first.spec), actor="user:ana")

        assert first.state is State.QUEUED
        assert cached.state is State.SUCCEEDED
        assert cached.job_id.startswith("cached-")
        assert cached.found is not None
        assert (cached.found.verified, cached.found.reused) == (3, 3)
        assert repeated.job_id == cached.job_id
        assert plain.state is State.QUEUED

    play(tmp_path, body)


def test_a_server_looks_at_no_plain_path_whatever_a_job_says(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        secret = tmp_path / "secret"
        secret.write_bytes(b"x")
        digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
        promise = Promise(files=(File(str(secret), sha256=digest),))
        payload = encode_command(Command(argv=("true",), cwd=str(tmp_path)))
        spec = Spec(queue=QUEUE, payload=payload, outputs=promise)
        made = await here.inspector.submit(Request(spec=spec), actor="user:ana", reuse=True)
        for name in ("", "box", "localhost", machine()):
            job = await here.enqueue(promise, kind="command")
            await here.run(job, where=f"{name}:{tmp_path}")

            seen = await here.inspector.validate(job.job_id, actor="user:ana", force=True)
            here.clock.advance(3600)
            await here.served.app.context.checking.sweep()
            page = await here.inspector.outputs(job.job_id)

            assert seen.check is not None
            assert (seen.state, seen.found) == (State.VALIDATING, None)
            assert seen.check.reason is not None
            assert (await here.registry.get(job.job_id)).state is State.VALIDATING
            assert page.outputs == (Output(name=str(secret)),)
            assert not page.checked
        assert made.state is State.QUEUED

    play(tmp_path, body)


def test_outputs_in_another_store_are_not_for_this_server(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        promise = Promise(names=("curve",), store=STRANGER_STORE, place="s3://bucket/results")
        job = await here.run(await here.enqueue(promise))

        for ask in (
            here.inspector.outputs(job.job_id),
            here.inspector.validate(job.job_id, actor="user:ana"),
        ):
            with pytest.raises(Conflict, match=f"{STRANGER_STORE}, and this server has"):
                await ask
        assert (await here.registry.get(job.job_id)).state is State.VALIDATING

    play(tmp_path, body)


def test_all_requests_are_checked_before_any_is_made_also_to_reuse(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        good = Spec(queue=QUEUE, kind="sweep", outputs=here.promise("curve"))
        wrong = replace(good, outputs=here.promise("curve", "curve"))
        requests = [REQUEST.encode(Request(spec=one)) for one in (good, wrong)]

        with pytest.raises(Invalid, match="promised twice"):
            await here.remote.link.call("enqueue", pb.EnqueueRequest(requests=requests, reuse=True))

        assert (await here.registry.list_jobs()).jobs == ()

    play(tmp_path, body)


def test_what_a_job_promises_is_part_of_its_size(tmp_path: Path) -> None:
    async def body(here: Scene) -> None:
        files = tuple(File(f"{number:03}-{'x' * 1000}") for number in range(15))
        job = await here.enqueue(Promise(files=files), kind="command")

        assert job_bytes(job) > 15_000

    play(tmp_path, body)


def test_a_manifest_is_refused_with_its_line_and_one_that_is_too_large_before_it_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(here: Scene) -> None:
        some = tasks()

        with pytest.raises(Invalid, match="Lines 1 and 3"):
            await here.inspector.keep(lines([some[0], some[1], some[0]]))
        with pytest.raises(Invalid, match="at least one"):
            await here.inspector.keep(lines([]))
        sha256, _ = await here.inspector.keep(lines(some))
        kept = [task async for task in manifests.tasks(here.outputs, sha256)]
        monkeypatch.setattr(remote_inspector, "MESSAGE_BYTES", 400)
        with pytest.raises(Exhausted, match="--outputs"):
            await here.inspector.keep(lines(some))

        assert kept == some

    play(tmp_path, body)


def test_a_validator_of_its_own_judges_and_resumes_by_words_alone(tmp_path: Path) -> None:
    """A job that promises a number: nobody but its caller knows which outputs these are."""

    async def body(here: Scene) -> None:
        registry: Registry = here.remote
        spec = Spec(queue=QUEUE, kind="mine", promised_outputs=4)
        job = await registry.enqueue(Request(spec=spec), actor="user:ana")
        grant = await registry.acquire(job.job_id, owner="w-7")
        await registry.complete(grant, Success())

        await registry.judge(job.job_id, Found(verified=3, missing=1), actor="validator:mine")
        promise = Promise(names=("fourth",), store="of-mine")
        resumed = await registry.resume(job.job_id, promise, actor="user:ana")
        with pytest.raises(Conflict, match="not resumable"):
            await registry.resume(resumed.job_id, promise, actor="user:ana")
        with pytest.raises(NotFound):
            await registry.resume("nobody", promise, actor="user:ana")

        assert resumed.spec.resumed_from == job.job_id
        assert resumed.spec.outputs is not None
        assert resumed.spec.outputs.names == ("fourth",)

    play(tmp_path, body)
