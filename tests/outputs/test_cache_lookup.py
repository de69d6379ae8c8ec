"""Reusing: what is there already is not made again, and nothing is reused on trust alone."""

from hashlib import sha256

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.core.limits import ID_CHARACTERS_MAX
from holdfast.core.manifest import Task
from holdfast.core.outputs import File, OutputPromise
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs import reports, scan
from holdfast.outputs.results import ResultAuthor
from holdfast.ports import JobRequest
from tests.outputs.outputs_world import OutputsWorld


def asking(world: OutputsWorld, *files: File, cwd: str | None = None) -> JobRequest:
    command = ProcessSpec(argv=("./train.sh",), cwd=cwd or str(world.folder))
    return JobRequest(spec=Spec(payload=encode_process_spec(command), outputs=OutputPromise(files=files)))


async def test_plain_files_are_reused_when_somebody_says_so(world: OutputsWorld) -> None:
    (world.folder / "a").write_bytes(b"a")
    inspector = world.inspector()
    request = asking(world, File("a"))

    ran = await inspector.submit(request, actor="user:ana")
    reused = await inspector.submit(request, actor="user:ana", reuse=True)
    lacking = await inspector.submit(asking(world, File("b")), actor="user:ana", reuse=True)
    elsewhere = asking(world, File("a"), cwd="/nowhere")
    gone = await inspector.submit(elsewhere, actor="user:ana", reuse=True)
    server = world.inspector(machine=None)
    unseen = await server.submit(request, actor="user:ana", reuse=True)

    assert [job.state for job in (ran, lacking, gone, unseen)] == [State.QUEUED] * 4
    assert reused.state is State.SUCCEEDED
    assert reused.submitted_by == "user:ana"
    page = await inspector.list_outputs(reused.job_id)
    assert [(one.name, one.missing, one.reused) for one in page.outputs] == [("a", None, True)]
    assert page.checked


async def test_plain_files_with_checksums_say_what_they_are(world: OutputsWorld) -> None:
    (world.folder / "a").write_bytes(b"a")
    (world.folder / "b").write_bytes(b"b")
    inspector = world.inspector()
    a, b = (File(name, sha256=sha256(name.encode()).hexdigest()) for name in "ab")

    known = await inspector.submit(asking(world, a, b), actor="user:ana")
    half = await inspector.submit(asking(world, a, File("b")), actor="user:ana")
    (world.folder / "b").write_bytes(b"changed")
    changed = await inspector.submit(asking(world, a, b), actor="user:ana")

    assert known.job_id.startswith("cached-")
    assert [half.state, changed.state] == [State.QUEUED, State.QUEUED]


async def test_managed_outputs_are_never_reused(world: OutputsWorld) -> None:
    tasks = world.tasks(sets=1)
    await world.write(ResultAuthor("another", 1), tasks)
    promise = replace(await world.promise(tasks), names=("model.pt",))

    job = await world.inspector().submit(JobRequest(spec=Spec(outputs=promise)), actor="user:ana", reuse=True)

    assert job.state is State.QUEUED


async def test_a_store_that_cannot_be_seen_reuses_nothing(world: OutputsWorld) -> None:
    tasks = world.tasks(sets=1)
    await world.write(ResultAuthor("another", 1), tasks)
    request = JobRequest(spec=Spec(outputs=await world.promise(tasks)))
    world.outputs.down = "the bucket does not answer"

    job = await world.inspector().submit(request, actor="user:ana")

    assert job.state is State.QUEUED


async def test_what_was_written_of_a_report_that_is_not_needed_is_removed(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "PART_ROWS", 2)
    monkeypatch.setattr(scan, "BATCH_TASKS", 1)
    tasks = world.tasks()
    await world.write(ResultAuthor("another", 1), tasks[:-1])
    spec = Spec(outputs=await world.promise(tasks))

    job = await world.inspector().submit(JobRequest(spec=spec), actor="user:ana")

    assert job.state is State.QUEUED
    assert [path async for path, _ in world.outputs.list("reports")] == []


async def test_a_manifest_that_nobody_kept_is_refused(world: OutputsWorld) -> None:
    promise = world.promise_of(manifest="0" * 64, entries=1)

    with pytest.raises(Invalid, match="Store it first"):
        await world.inspector().submit(JobRequest(spec=Spec(outputs=promise)), actor="user:ana")


async def test_a_promise_that_names_no_store_means_this_one(world: OutputsWorld) -> None:
    promise = replace(await world.promise(world.tasks()), store=None, place=None)

    job = await world.inspector().submit(JobRequest(spec=Spec(outputs=promise)), actor="user:ana")

    assert job.spec.outputs is not None
    assert job.spec.outputs.store == world.outputs.store_id


async def test_a_job_with_the_longest_id_can_be_cached(world: OutputsWorld) -> None:
    tasks: list[Task] = world.tasks(sets=1)
    await world.write(ResultAuthor("another", 1), tasks)
    spec = Spec(outputs=await world.promise(tasks))
    request = JobRequest(spec=spec, job_id="x" * ID_CHARACTERS_MAX)

    first = await world.inspector().submit(request, actor="user:ana")
    again = await world.inspector().submit(request, actor="user:ana")

    assert first.job_id.startswith("cached-")
    assert (again.job_id, again.state) == (first.job_id, State.SUCCEEDED)


async def test_a_job_that_promises_nothing_is_simply_enqueued(world: OutputsWorld) -> None:
    job = await world.inspector().submit(JobRequest(spec=Spec()), actor="user:ana")

    assert job.state is State.QUEUED
