"""Reusing: what is there already is not made again, and nothing is reused on trust alone."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from judging_world import Body, OutputsWorld, playing
from msgspec.structs import replace

from holdfast.core.command import Command, encode_command
from holdfast.core.errors import Invalid
from holdfast.core.limits import ID_CHARACTERS_MAX
from holdfast.core.manifest import Task
from holdfast.core.outputs import File, Promise
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs import examining, reports
from holdfast.outputs.results import Writer
from holdfast.ports import Request

Play = Callable[[Body], None]


@pytest.fixture
def outputs_world(tmp_path: Path) -> Play:
    return playing("memory", "directory", tmp_path)


def asking(world: OutputsWorld, *files: File, cwd: str | None = None) -> Request:
    command = Command(argv=("./train.sh",), cwd=cwd or str(world.folder))
    return Request(spec=Spec(payload=encode_command(command), outputs=Promise(files=files)))


def test_plain_files_are_reused_when_somebody_says_so(outputs_world: Play) -> None:
    async def body(world: OutputsWorld) -> None:
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
        page = await inspector.outputs(reused.job_id)
        assert [(one.name, one.missing, one.reused) for one in page.outputs] == [("a", None, True)]
        assert page.checked

    outputs_world(body)


def test_plain_files_with_checksums_say_what_they_are(outputs_world: Play) -> None:
    async def body(world: OutputsWorld) -> None:
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

    outputs_world(body)


def test_managed_outputs_are_never_reused(outputs_world: Play) -> None:
    async def body(world: OutputsWorld) -> None:
        tasks = world.tasks(sets=1)
        await world.write(Writer("another", 1), tasks)
        promise = replace(await world.promise(tasks), names=("model.pt",))

        job = await world.inspector().submit(
            Request(spec=Spec(outputs=promise)), actor="user:ana", reuse=True
        )

        assert job.state is State.QUEUED

    outputs_world(body)


def test_a_store_that_cannot_be_seen_reuses_nothing(outputs_world: Play) -> None:
    async def body(world: OutputsWorld) -> None:
        tasks = world.tasks(sets=1)
        await world.write(Writer("another", 1), tasks)
        request = Request(spec=Spec(outputs=await world.promise(tasks)))
        world.outputs.down = "the bucket does not answer"

        job = await world.inspector().submit(request, actor="user:ana")

        assert job.state is State.QUEUED

    outputs_world(body)


def test_what_was_written_of_a_report_that_is_not_needed_is_removed(
    outputs_world: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(world: OutputsWorld) -> None:
        monkeypatch.setattr(reports, "PART_ROWS", 2)
        monkeypatch.setattr(examining, "TOGETHER", 1)
        tasks = world.tasks()
        await world.write(Writer("another", 1), tasks[:-1])
        spec = Spec(outputs=await world.promise(tasks))

        job = await world.inspector().submit(Request(spec=spec), actor="user:ana")

        assert job.state is State.QUEUED
        assert [path async for path, _ in world.outputs.list("reports")] == []

    outputs_world(body)


def test_a_manifest_that_nobody_kept_is_refused(outputs_world: Play) -> None:
    async def body(world: OutputsWorld) -> None:
        promise = world.promise_of(manifest="0" * 64, entries=1)

        with pytest.raises(Invalid, match="Keep it first"):
            await world.inspector().submit(Request(spec=Spec(outputs=promise)), actor="user:ana")

    outputs_world(body)


def test_a_promise_that_names_no_store_means_this_one(outputs_world: Play) -> None:
    async def body(world: OutputsWorld) -> None:
        promise = replace(await world.promise(world.tasks()), store=None, place=None)

        job = await world.inspector().submit(Request(spec=Spec(outputs=promise)), actor="user:ana")

        assert job.spec.outputs is not None
        assert job.spec.outputs.store == world.outputs.store_id

    outputs_world(body)


def test_a_job_with_the_longest_id_can_be_cached(outputs_world: Play) -> None:
    async def body(world: OutputsWorld) -> None:
        tasks: list[Task] = world.tasks(sets=1)
        await world.write(Writer("another", 1), tasks)
        spec = Spec(outputs=await world.promise(tasks))
        request = Request(spec=spec, job_id="x" * ID_CHARACTERS_MAX)

        first = await world.inspector().submit(request, actor="user:ana")
        again = await world.inspector().submit(request, actor="user:ana")

        assert first.job_id.startswith("cached-")
        assert (again.job_id, again.state) == (first.job_id, State.SUCCEEDED)

    outputs_world(body)


def test_a_job_that_promises_nothing_is_simply_enqueued(outputs_world: Play) -> None:
    async def body(world: OutputsWorld) -> None:
        job = await world.inspector().submit(Request(spec=Spec()), actor="user:ana")

        assert job.state is State.QUEUED

    outputs_world(body)
