"""The executor of functions: attempts that stop, time out, or find no runner."""

import asyncio
from pathlib import Path

import pytest

from holdfast.core.errors import Invalid
from holdfast.core.job import Failure
from holdfast.core.limits import NOT_STARTED_MAX
from holdfast.worker.executor import Ending
from holdfast.worker.frames import (
    EmittedEvent,
)
from holdfast.worker.runner_attempt import RunnerAttempt
from tests.worker.fake_runner import AttemptSetup
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
