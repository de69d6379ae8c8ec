"""The linear check agrees with a check that tries every order of the operations."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

from msgspec.structs import replace

from holdfast.core.event import Event
from holdfast.testing.history import Operation, check, join
from holdfast.testing.job_timeline import NEVER
from holdfast.testing.world import open_world
from tests.conftest import STORES
from tests.testing.recorded_history import RecordedWorld


async def test_the_linear_check_says_what_trying_every_order_says(tmp_path: Path) -> None:
    """In both directions: it refuses what no order explains, and only that."""

    async with open_world(STORES["memory"], tmp_path) as world:
        recording = RecordedWorld(world)
        await recording.enqueue("a")
        [grant] = await recording.recorder.claim(["default"], owner="w1")
        await recording.recorder.heartbeat(grant)
        await recording.recorder.heartbeat(grant)
        await recording.recorder.release(grant)
        await recording.recorder.claim(["default"], owner="w2")
        log, operations = await recording.log("a"), join(recording.entries)
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
    read = Operation("status", "fail", middle - 2, middle + 2, job_id="a", version=version)
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
    if op.verb == "status":
        return [version] if version == op.version else []
    return [version + 1] if version + 1 == op.version else []
