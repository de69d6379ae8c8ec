"""The executor of functions: attempts that stop, time out, or find no runner."""

import asyncio
from math import inf
from pathlib import Path

import pytest

from holdfast.core.errors import Invalid
from holdfast.core.job import Failure
from holdfast.core.limits import NOT_STARTED_MAX
from holdfast.worker.executor import RETURNED, Ending
from holdfast.worker.frames import EmittedEvent, Ended, Returned
from holdfast.worker.runner_attempt import RunnerAttempt
from tests.worker.fake_runner import AttemptSetup, claim_job
from tests.worker.live_processes import PATIENCE_SECONDS


@pytest.mark.parametrize(("after", "failed"), [(0.9, False), (1.1, True)])
async def test_what_ended_in_time_and_was_heard_late_has_not_timed_out(
    tmp_path: Path, after: float, failed: bool
) -> None:
    async with AttemptSetup(tmp_path) as setup:
        assert setup.hold.begun_at is not None
        setup.hold.time_out()
        setup.report_ended(Ending(), at=setup.hold.begun_at + after)

        [(_, ending)] = setup.host.endings
        assert (ending.failure is not None) is failed


@pytest.mark.parametrize("when", ["before", "during"])
async def test_an_attempt_that_ends_as_it_is_stopped_is_not_taken_for_stuck(
    tmp_path: Path, when: str
) -> None:
    async with AttemptSetup(tmp_path) as setup:
        setup.hold.time_out()
        if when == "during":
            await setup.wait_for_stop()
        setup.report_ended(Ending())
        stopping = setup.attempt.stopping
        assert stopping is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            await stopping

        assert setup.child.signals == []
        assert not setup.connection.retired
        assert len(setup.host.endings) == 1


async def test_a_runner_that_has_something_to_stop_is_heard_however_much_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.worker.output.UNSENT_BYTES_MAX", 10)

    async with AttemptSetup(tmp_path) as setup:
        said = EmittedEvent(setup.attempt.number, "output", 1.0, "stdout", b"x" * 100)
        setup.functions.received(setup.connection, [said])
        assert not setup.is_read()
        setup.hold.time_out()
        await setup.wait_for_stop()
        assert setup.is_read()
        setup.functions.received(setup.connection, [said])
        assert setup.is_read()


async def test_a_compensation_that_no_runner_can_be_had_for_has_failed_in_the_end(
    tmp_path: Path,
) -> None:
    async with AttemptSetup(tmp_path) as setup:
        failed = Ending(failure=Failure(message="no"))
        for attempt in (
            RunnerAttempt(setup.hold, failed, NOT_STARTED_MAX - 1),
            RunnerAttempt(setup.hold),
            RunnerAttempt(setup.hold, failed),
        ):
            setup.functions.no_runner(attempt, Invalid("no app"))

        first, second = [ending for _, ending in setup.host.endings]
        assert (first.failure, first.compensated) == (failed.failure, False)
        assert second.machine


async def test_the_endings_of_one_frame_are_told_at_once_and_each_only_once(tmp_path: Path) -> None:
    async with AttemptSetup(tmp_path) as setup:
        attempts = [RunnerAttempt(await claim_job(setup.registry)) for _ in range(3)]
        setup.functions.begin(setup.connection, attempts)
        told: list[int] = []
        setup.host.told = told.append
        first, second, third = (attempt.number for attempt in attempts)
        said = EmittedEvent(third, "output", 1.0, "stdout", b"said before the end")

        setup.functions.received(
            setup.connection,
            [Returned([first, second], [1.0, 2.0]), said, Ended(third, Ending(result=b"3"), 3.0)],
        )
        setup.functions.received(setup.connection, [Returned([first, third], [4.0, 4.0])])

        assert told == [3]
        assert [ending for _, ending in setup.host.endings] == [RETURNED, RETURNED, Ending(result=b"3")]
        assert attempts[2].held in setup.host.outputs
        assert list(setup.connection.attempts) == [setup.attempt.number]


@pytest.mark.parametrize(("after", "failed"), [(0.9, False), (1.1, True)])
async def test_what_returned_in_time_among_others_has_not_timed_out(
    tmp_path: Path, after: float, failed: bool
) -> None:
    async with AttemptSetup(tmp_path) as setup:
        assert setup.hold.begun_at is not None
        other = RunnerAttempt(await claim_job(setup.registry))
        setup.functions.begin(setup.connection, [other])
        setup.hold.time_out()

        numbers = [other.number, setup.attempt.number]
        at = [setup.hold.begun_at + 5, setup.hold.begun_at + after]
        setup.functions.received(setup.connection, [Returned(numbers, at)])

        endings = dict(setup.host.endings)
        assert (endings[setup.hold].failure is not None) is failed
        assert endings[other.held] is RETURNED


async def test_a_job_in_an_idle_runner_begins_without_a_word_to_the_process_supervisor(
    tmp_path: Path,
) -> None:
    async with AttemptSetup(tmp_path) as setup:
        setup.report_ended(Ending())
        setup.connection.deadline = inf
        setup.functions._set_deadline(setup.connection)
        lifetimes = setup.child.lifetimes
        idle = lifetimes[-1]
        lifetimes.clear()

        setup.functions._set_deadline(setup.connection)
        setup.functions.begin(setup.connection, [RunnerAttempt(await claim_job(setup.registry))])
        assert idle < 30
        assert lifetimes == []

        setup.functions._set_deadline(setup.connection)  # it runs for longer: its lease counts
        assert [idle < lifetime < 31 for lifetime in lifetimes] == [True]

        short = RunnerAttempt(await claim_job(setup.registry))
        short.held.deadline = setup.host.clock.monotonic() + 2
        setup.functions.begin(setup.connection, [short])
        assert 1 < lifetimes[-1] <= 2
