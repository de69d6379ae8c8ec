"""The history checker accepts what really happened, and nothing that could not have."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Literal

import pytest
from msgspec.structs import replace

from conftest import STORES, Run
from holdfast.core.errors import Conflict, Fenced, NotFound, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Request
from holdfast.testing.history import Entry, Operation, Shown, check, join
from holdfast.testing.life import NEVER
from holdfast.testing.recorder import LineFile, Recorder, read_lines
from holdfast.testing.world import TRANSIENT, World, output, play
from verify.history import SHORT, Recorded, plant, record, section


class Stage:
    """A small world whose registry is recorded."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.entries: list[Entry] = []
        self.recorder = Recorder(world.registry, world.ids, self.entries.append, process="p")

    async def enqueue(self, job_id: str) -> Job:
        return await self.recorder.enqueue(Request(spec=Spec(), job_id=job_id), actor="user:ana")

    async def log(self, job_id: str) -> list[Event]:
        return await self.world.registry.history(job_id)


async def live(stage: Stage) -> None:
    """Two jobs to whom everything happens, with every kind of repeat and refusal."""
    recorder, world = stage.recorder, stage.world
    with pytest.raises(NotFound):
        await recorder.get("a")
    await stage.enqueue("a")
    [grant] = await recorder.claim(["default"], owner="w1", op_id="claim-a")
    await recorder.heartbeat(grant)
    await recorder.claim(["default"], owner="w1", op_id="claim-a")
    await recorder.publish(grant, [output(1, world=world)])
    await recorder.aggregate(grant)
    await recorder.aggregate(grant)
    await recorder.cancel("a", actor="user:ana")
    await recorder.cancel("a", actor="user:ben")
    await stage.enqueue("a")
    await recorder.release(grant, op_id="release-a")
    await recorder.release(grant, op_id="release-a")
    assert await recorder.claim(["default"], owner="w1") == []

    await stage.enqueue("b")
    zombie = await recorder.acquire("b", owner="w1")
    with pytest.raises(Conflict):
        await recorder.acquire("b", owner="w2")
    world.clock.advance(61)
    grant = await recorder.acquire("b", owner="w2")
    for verb in (recorder.heartbeat, recorder.aggregate, recorder.release):
        with pytest.raises(Fenced):
            await verb(zombie)
    await recorder.complete(grant, TRANSIENT)
    world.clock.advance(61)
    [grant] = await recorder.claim(["default"], owner="w3")
    await recorder.complete(grant, Success(), op_id="complete-b")
    await recorder.complete(grant, Success(), op_id="complete-b")
    assert (await recorder.get("b")).state is State.SUCCEEDED


def test_a_life_with_every_repeat_and_refusal_is_accepted(run: Run) -> None:
    async def body(world: World) -> None:
        stage = Stage(world)

        await live(stage)

        logs = {job_id: await stage.log(job_id) for job_id in ("a", "b")}
        assert check(join(stage.entries), logs) == []

    run(body)


def test_a_life_of_which_any_one_answered_mutation_is_left_out_is_refused(run: Run) -> None:
    async def body(world: World) -> None:
        stage = Stage(world)
        await live(stage)
        operations = join(stage.entries)
        logs = {job_id: await stage.log(job_id) for job_id in ("a", "b")}
        once = [op for op in operations if op.answer == "ok" and op.op_id and op.job_id == "b"]

        for op in once[:-2]:  # the last two are one, sent twice
            rest = [other for other in operations if other is not op]
            assert {v.invariant for v in check(rest, logs)} == {"I11"}, op

    run(body)


def test_a_claim_that_was_sent_again_and_got_another_job_is_refused(run: Run) -> None:
    async def body(world: World) -> None:
        stage = Stage(world)
        for job_id in ("a", "b"):
            await stage.enqueue(job_id)
        for op_id in ("first", "second"):
            await stage.recorder.claim(["default"], owner="w1", op_id=op_id)
        [*enqueued, first, second] = join(stage.entries)
        lost = replace(first, answer="info", end=NEVER, job_id=None)
        [queued, claimed] = await stage.log("b")
        logs = {"a": await stage.log("a"), "b": [queued, replace(claimed, op_id="first")]}

        found = check([*enqueued, lost, replace(second, op_id="first")], logs)

        assert [violation.invariant for violation in found] == ["I29"]

    run(body)


def test_an_answer_is_recorded_with_version_token_and_state(run: Run) -> None:
    async def body(world: World) -> None:
        stage = Stage(world)
        await stage.enqueue("a")
        before = time.monotonic_ns()
        [grant] = await stage.recorder.claim(["default"], owner="w1", op_id="x")
        after = time.monotonic_ns()

        call, answer = stage.entries[-2:]

        assert (call.type, call.verb, call.op_id, call.job_id) == ("invoke", "claim", "x", None)
        assert answer.type == "ok"
        assert answer.shown == (Shown("a", 2, grant.fencing_token, State.ASSIGNED),)
        assert before <= call.at_ns <= answer.at_ns <= after
        assert (call.process, call.number) == (answer.process, answer.number) == ("p", 2)

    run(body)


def test_a_refusal_is_recorded_as_a_failure_at_the_version_it_names(run: Run) -> None:
    async def body(world: World) -> None:
        stage = Stage(world)
        await stage.enqueue("a")
        grant = await world.claim()
        await world.lapse()

        with pytest.raises(Fenced):
            await stage.recorder.release(grant)

        [*_, op] = join(stage.entries)
        assert (op.answer, op.error, op.version, op.token) == ("fail", "Fenced", 3, 1)

    run(body)


def test_a_job_that_is_not_there_is_recorded_at_version_0(run: Run) -> None:
    async def body(world: World) -> None:
        stage = Stage(world)

        with pytest.raises(NotFound):
            await stage.recorder.get("a")

        [op] = join(stage.entries)
        assert (op.answer, op.error, op.job_id, op.version) == ("fail", "NotFound", "a", 0)

    run(body)


def test_a_caller_who_leaves_before_the_answer_is_recorded_as_unknown(run: Run) -> None:
    async def body(world: World) -> None:
        stage = Stage(world)
        await stage.enqueue("a")

        claim = asyncio.create_task(stage.recorder.claim(["default"], owner="w1", op_id="x"))
        await asyncio.sleep(0)
        claim.cancel()
        await asyncio.gather(claim, return_exceptions=True)
        await world.registry.close()

        [*_, op] = join(stage.entries)
        assert (op.verb, op.answer, op.op_id, op.job_id) == ("claim", "info", "x", None)

    run(body)


@pytest.mark.parametrize(("applied", "answer"), [("no", "fail"), ("unknown", "info")])
def test_an_unavailable_store_fails_only_if_it_says_that_nothing_was_applied(
    applied: Literal["no", "unknown"], answer: str
) -> None:
    class Broken:
        async def get(self, job_id: str) -> Job:
            raise Unavailable("gone", applied=applied, version=7)

    entries: list[Entry] = []
    recorder = Recorder(Broken(), None, entries.append, process="p")  # type: ignore[arg-type]

    with pytest.raises(Unavailable):
        asyncio.run(recorder.get("a"))

    [op] = join(entries)
    assert op.answer == answer
    assert op.version == (7 if applied == "no" else None)


def test_lines_of_several_processes_join_and_a_call_without_an_answer_is_unknown(
    tmp_path: Path,
) -> None:
    calls = [Entry(process=p, number=1, at_ns=1, type="invoke", verb="get") for p in "abc"]
    answers = [
        Entry(process=p, number=1, at_ns=2, type="ok", shown=(Shown("j", 1, 0, State.QUEUED),))
        for p in "ab"
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


def test_the_linear_check_says_what_trying_every_order_says(tmp_path: Path) -> None:
    """In both directions: it refuses what no order explains, and only that."""

    async def body(world: World) -> None:
        stage = Stage(world)
        await stage.enqueue("a")
        [grant] = await stage.recorder.claim(["default"], owner="w1")
        await stage.recorder.heartbeat(grant)
        await stage.recorder.heartbeat(grant)
        await stage.recorder.release(grant)
        await stage.recorder.claim(["default"], owner="w2")
        log, operations = await stage.log("a"), join(stage.entries)
        chance = Random(8)
        verdicts = []

        for _ in range(3_000):
            reads = [some_read(log, chance) for _ in range(2)]
            history = [*(moved(op, chance) for op in operations), *reads]
            found = check(history, {"a": log})
            assert {v.invariant for v in found} <= {"I8", "I11"}, found
            assert (not found) == explained(history, 0), (history, found)
            verdicts.append(not found)

        assert 600 < sum(verdicts) < 2_400  # the two verdicts are both well tried

    play(STORES["memory"], tmp_path, body)


def moved(op: Operation, chance: Random) -> Operation:
    """The operation about where it belongs in time, give or take; its answer is lost now and then."""
    middle = 100 + 10 * (op.version or 0) + chance.randint(-8, 8)
    start, end = middle - chance.randint(0, 5), middle + chance.randint(0, 5)
    if chance.random() < 0.15:
        job_id = None if op.verb == "claim" else op.job_id
        return replace(op, answer="info", start=start, end=NEVER, job_id=job_id)
    return replace(op, start=start, end=end)


def some_read(log: Sequence[Event], chance: Random) -> Operation:
    version = chance.randint(0, len(log))
    middle = 100 + 10 * version + 5 + chance.randint(-8, 8)
    read = Operation("get", "fail", middle - 2, middle + 2, job_id="a", version=version)
    return replace(read, error="NotFound" if version == 0 else "Conflict")


def explained(remaining: list[Operation], version: int) -> bool:
    """Whether some order of the operations that respects time makes every answer right.

    Five versions: enqueued, claimed, started by either heartbeat, released, claimed. What nobody was
    answered may have happened at any time since it began, and a heartbeat perhaps not at all.
    """
    if not [op for op in remaining if op.answer != "info" or op.verb != "heartbeat"]:
        return version == 5
    first_end = min(op.end for op in remaining)
    for op in remaining:
        if op.start > first_end:
            continue
        rest = [other for other in remaining if other is not op]
        if any(explained(rest, after) for after in reached(op, version)):
            return True
    return False


def reached(op: Operation, version: int) -> list[int]:
    """The versions that the operation may leave behind, none if its answer would be wrong."""
    if op.verb == "heartbeat":
        return [3] if version in (2, 3) else []
    if op.verb == "get":
        return [version] if version == op.version else []
    return [version + 1] if version + 1 == op.version else []


@pytest.mark.slow
def test_what_64_claimers_in_4_processes_were_told_has_one_order_and_every_fault_in_it_is_found(
    tmp_path: Path,
) -> None:
    page, holds = section(SHORT, record(tmp_path, SHORT))

    assert holds, page


def test_a_history_in_which_nothing_went_wrong_proves_nothing(run: Run) -> None:
    async def body(world: World) -> None:
        stage = Stage(world)
        await stage.enqueue("a")
        [grant] = await stage.recorder.claim(["default"], owner="w1")
        await stage.recorder.complete(grant, Success())

        page, holds = section(SHORT, Recorded(stage.entries, {"a": await stage.log("a")}, True))

        assert not holds
        assert "the run saw none of: refusals of stale tokens" in page

    run(body)


def test_a_checker_that_finds_nothing_is_found_out(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(world: World) -> None:
        stage = Stage(world)
        await live(stage)
        logs = {job_id: await stage.log(job_id) for job_id in ("a", "b")}
        monkeypatch.setattr("verify.history.check", lambda operations, logs: [])

        results = plant(join(stage.entries), logs, places=3)

        assert sum(result.planted for result in results.values()) > 30
        assert not any(result.found for result in results.values())

    run(body)
