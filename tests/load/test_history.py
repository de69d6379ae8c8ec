"""The history checker accepts what really happened, and nothing that could not have."""

from pathlib import Path

import pytest
from history_stage import Stage, live
from msgspec.structs import replace

from conftest import Run
from holdfast.core.lifecycle import Success
from holdfast.testing.history import check, join
from holdfast.testing.life import NEVER
from holdfast.testing.world import World
from verify.history import SHORT, Recorded, plant, record, section


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
