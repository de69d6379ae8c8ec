"""The recorder writes down what was asked and answered, and when."""

import asyncio
import time
from pathlib import Path
from typing import Literal

import pytest

from holdfast.core.errors import Fenced, NotFound, Unavailable
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.testing.history import Entry, Shown, join
from holdfast.testing.job_timeline import NEVER
from holdfast.testing.recorder import LineFile, read_lines, recorded
from holdfast.testing.world import World
from tests.testing.recorded_history import RecordedWorld


async def test_an_answer_is_recorded_with_version_token_and_state(world: World) -> None:
    recording = RecordedWorld(world)
    await recording.enqueue("a")
    before = time.monotonic_ns()
    [grant] = await recording.recorder.claim(["default"], owner="w1", op_id="x")
    after = time.monotonic_ns()

    call, answer = recording.entries[-2:]

    assert (call.type, call.verb, call.op_id, call.job_id) == ("invoke", "claim", "x", None)
    assert answer.type == "ok"
    assert answer.shown == (Shown("a", 2, grant.fencing_token, State.ASSIGNED),)
    assert before <= call.at_ns <= answer.at_ns <= after
    assert (call.process, call.number) == (answer.process, answer.number) == ("p", 2)


async def test_a_refusal_is_recorded_as_a_failure_at_the_version_it_names(world: World) -> None:
    recording = RecordedWorld(world)
    await recording.enqueue("a")
    grant = await world.claim()
    await world.lapse()

    with pytest.raises(Fenced):
        await recording.recorder.release(grant)

    [*_, op] = join(recording.entries)
    assert (op.answer, op.error, op.version, op.token) == ("fail", "Fenced", 3, 1)


async def test_a_job_that_is_not_there_is_recorded_at_version_0(world: World) -> None:
    recording = RecordedWorld(world)

    with pytest.raises(NotFound):
        await recording.recorder.status("a")

    [op] = join(recording.entries)
    assert (op.answer, op.error, op.job_id, op.version) == ("fail", "NotFound", "a", 0)


async def test_a_caller_who_leaves_before_the_answer_is_recorded_as_unknown(world: World) -> None:
    recording = RecordedWorld(world)
    await recording.enqueue("a")

    claim = asyncio.create_task(recording.recorder.claim(["default"], owner="w1", op_id="x"))
    await asyncio.sleep(0)
    claim.cancel()
    await asyncio.gather(claim, return_exceptions=True)
    await world.registry.close()

    [*_, op] = join(recording.entries)
    assert (op.verb, op.answer, op.op_id, op.job_id) == ("claim", "info", "x", None)


@pytest.mark.parametrize(("applied", "answer"), [("no", "fail"), ("unknown", "info")])
def test_an_unavailable_store_fails_only_if_it_says_that_nothing_was_applied(
    applied: Literal["no", "unknown"], answer: str
) -> None:
    class Broken:
        async def status(self, job_id: str) -> Job:
            raise Unavailable("gone", applied=applied, version=7)

    entries: list[Entry] = []
    recorder = recorded(Broken(), None, entries.append, process="p")  # type: ignore[arg-type]

    with pytest.raises(Unavailable):
        asyncio.run(recorder.status("a"))

    [op] = join(entries)
    assert op.answer == answer
    assert op.version == (7 if applied == "no" else None)


def test_lines_of_several_processes_join_and_a_call_without_an_answer_is_unknown(
    tmp_path: Path,
) -> None:
    calls = [Entry(process=p, number=1, at_ns=1, type="invoke", verb="status") for p in "abc"]
    answers = [
        Entry(process=p, number=1, at_ns=2, type="ok", shown=(Shown("j", 1, 0, State.QUEUED),)) for p in "ab"
    ]
    for n, entries in enumerate([[calls[0], calls[1], answers[1]], [calls[2], answers[0]]]):
        lines = LineFile(tmp_path / f"{n}.jsonl")
        for entry in entries:
            lines.keep(entry)
        lines.close()

    joined = join(read_lines(sorted(tmp_path.glob("*.jsonl"))))

    assert [(op.answer, op.start, op.end) for op in joined] == [
        ("ok", 1, 2),
        ("ok", 1, 2),
        ("info", 1, NEVER),
    ]
