"""The history checker accepts what really happened, and nothing that could not have."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.core.lifecycle import Success
from holdfast.testing.history import check, join
from holdfast.testing.job_timeline import NEVER
from holdfast.testing.world import World
from tests.testing.recorded_history import RecordedWorld, run_two_jobs
from verify.history import SHORT, Recorded, plant, record, section


async def test_a_life_with_every_repeat_and_refusal_is_accepted(world: World) -> None:
    recording = RecordedWorld(world)

    await run_two_jobs(recording)

    logs = {job_id: await recording.log(job_id) for job_id in ("a", "b")}
    assert check(join(recording.entries), logs) == []


async def test_a_life_of_which_any_one_answered_mutation_is_left_out_is_refused(
    world: World,
) -> None:
    recording = RecordedWorld(world)
    await run_two_jobs(recording)
    operations = join(recording.entries)
    logs = {job_id: await recording.log(job_id) for job_id in ("a", "b")}
    once = [op for op in operations if op.answer == "ok" and op.op_id and op.job_id == "b"]

    for op in once[:-2]:  # the last two are one, sent twice
        rest = [other for other in operations if other is not op]
        assert {v.invariant for v in check(rest, logs)} == {"I11"}, op


async def test_a_claim_that_was_sent_again_and_got_another_job_is_refused(world: World) -> None:
    recording = RecordedWorld(world)
    for job_id in ("a", "b"):
        await recording.enqueue(job_id)
    for op_id in ("first", "second"):
        await recording.recorder.claim(["default"], owner="w1", op_id=op_id)
    [*enqueued, first, second] = join(recording.entries)
    lost = replace(first, answer="info", end=NEVER, job_id=None)
    [queued, claimed] = await recording.log("b")
    logs = {"a": await recording.log("a"), "b": [queued, replace(claimed, op_id="first")]}

    found = check([*enqueued, lost, replace(second, op_id="first")], logs)

    assert [violation.invariant for violation in found] == ["I29"]


@pytest.mark.slow
def test_what_64_claimers_in_4_processes_were_told_has_one_order_and_every_fault_in_it_is_found(
    tmp_path: Path,
) -> None:
    page, holds = section(SHORT, record(tmp_path, SHORT))

    assert holds, page


async def test_a_history_in_which_nothing_went_wrong_proves_nothing(world: World) -> None:
    recording = RecordedWorld(world)
    await recording.enqueue("a")
    [grant] = await recording.recorder.claim(["default"], owner="w1")
    await recording.recorder.complete(grant, Success())

    page, holds = section(SHORT, Recorded(recording.entries, {"a": await recording.log("a")}, True))

    assert not holds
    assert "the run saw none of: refusals of stale tokens" in page


async def test_a_checker_that_finds_nothing_is_found_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = RecordedWorld(world)
    await run_two_jobs(recording)
    logs = {job_id: await recording.log(job_id) for job_id in ("a", "b")}
    monkeypatch.setattr("verify.history.check", lambda operations, logs: [])

    results = plant(join(recording.entries), logs, places=3)

    assert sum(result.planted for result in results.values()) > 30
    assert not any(result.found for result in results.values())
