"""Cost: what a job took of somebody's time, by its own history."""

from datetime import datetime, timedelta

import pytest

from holdfast.core.cost import RATE, Cost, cost_of, last_attempt_duration, parse_rate
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import (
    Aggregate,
    Cancel,
    Change,
    Claim,
    Command,
    Complete,
    Enqueue,
    Expire,
    Heartbeat,
    Release,
    Restore,
    Success,
    decide,
)
from holdfast.core.outputs import OutputPromise, ValidationResult
from holdfast.core.spec import Spec
from holdfast.testing.fakes import EPOCH

USER, WORKER = "user:ana", "worker:w"
DONE = Success()
NAMED = OutputPromise(names=("a",), store="s-1")
PROMISING = Spec(kind="train", outputs=NAMED, promised_outputs=NAMED.count)


class RecordedJob:
    """A job by its commands, each at its second, and all that is on record of it."""

    def __init__(
        self, spec: Spec = Spec(), *, actor: str = USER, found: ValidationResult | None = None
    ) -> None:
        self.job: Job | None = None
        self.history: list[Event] = []
        self.do(0, Enqueue(op_id="e", job_id="j", spec=spec, actor=actor, found=found))

    def do(self, second: float, command: Command) -> "RecordedJob":
        change = decide(command, self.job, at(second), None)
        assert isinstance(change, Change), change
        self.job = change.after
        self.history += change.events
        return self

    def claim(self, second: float) -> "RecordedJob":
        return self.do(second, Claim(op_id=f"c{second}", owner="w", actor=WORKER))

    def end(self, second: float, outcome: Success | Failure = DONE) -> "RecordedJob":
        return self.do(second, Complete(op_id=f"d{second}", token=self.token, actor=WORKER, outcome=outcome))

    def seconds(self, now: float) -> float:
        return cost_of(self.history, at(now)).seconds

    @property
    def token(self) -> int:
        assert self.job is not None
        return self.job.fencing_token


def at(second: float) -> datetime:
    return EPOCH + timedelta(seconds=second)


def test_a_job_costs_from_its_claim_to_its_end_and_not_a_second_more() -> None:
    job = RecordedJob().claim(100)
    job.do(107, Heartbeat(token=1, actor=WORKER))
    job.do(110, Aggregate(op_id="a", token=1, actor=WORKER)).end(130)

    assert job.seconds(130) == job.seconds(9999) == 30


def test_to_wait_costs_nothing() -> None:
    assert RecordedJob().seconds(500) == 0
    assert cost_of([], at(500)) == Cost(seconds=0, rate=RATE)


def test_an_attempt_that_is_under_way_counts_up_to_now() -> None:
    job = RecordedJob().claim(10)

    assert job.seconds(10.5) == 0.5
    job.do(12, Heartbeat(token=1, actor=WORKER))
    assert job.seconds(70) == 60


def test_every_attempt_counts_and_the_waits_between_them_do_not() -> None:
    job = RecordedJob().claim(10).end(13, Failure(message="no"))
    job.claim(100).do(140, Release(op_id="r", token=2, actor=WORKER))
    job.claim(200)

    assert job.seconds(1200) == 3 + 40 + 1000


def test_what_a_lost_owner_held_counts_until_it_was_taken_away() -> None:
    job = RecordedJob().claim(0).do(61, Expire())

    assert job.seconds(500) == 61


def test_validating_costs_nothing() -> None:
    job = RecordedJob(PROMISING).claim(5).end(8)

    assert job.seconds(500) == 3


def test_a_job_whose_outputs_were_all_there_costs_nothing() -> None:
    job = RecordedJob(PROMISING, actor="validator:v", found=ValidationResult(verified=1, reused=1))

    assert job.job is not None
    assert job.job.ended
    assert job.seconds(500) == 0


def test_what_is_no_move_does_not_divide_the_time() -> None:
    job = RecordedJob().claim(5).do(9, Cancel(op_id="x", actor=USER))
    job.do(20, Restore(op_id="y"))

    assert job.seconds(500) == 15


def test_a_clock_that_was_set_back_counts_as_no_time() -> None:
    job = RecordedJob().claim(50).end(20)
    running = RecordedJob().claim(50)

    assert job.seconds(500) == running.seconds(49) == 0


def test_the_last_attempt_took_as_long_as_its_owner_says_that_the_work_did() -> None:
    told = Failure(message="no", seconds=0.4004)
    job = RecordedJob().claim(10).end(50, told)

    assert last_attempt_duration(job.history, at(500)) == timedelta(seconds=0.4)
    assert job.job is not None
    assert job.job.error == Failure(message="no")
    job.claim(100)
    assert last_attempt_duration(job.history, at(103)) == timedelta(seconds=3)
    job.do(103, Heartbeat(token=2, actor=WORKER)).end(140, Success(seconds=20.0))
    assert last_attempt_duration(job.history, at(500)) == timedelta(seconds=20)
    assert job.seconds(500) == 40 + 40


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), 1e12])
def test_what_is_no_duration_is_not_kept(seconds: float) -> None:
    job = RecordedJob().claim(10).end(13, Success(seconds=seconds))

    assert "seconds" not in job.history[-1].attributes
    assert last_attempt_duration(job.history, at(500)) == timedelta(seconds=3)


def test_the_last_attempt_takes_from_its_claim_to_its_end_however_late_its_first_heartbeat() -> None:
    job = RecordedJob().claim(10).end(13, Failure(message="no"))
    job.claim(100).do(100.3, Heartbeat(token=2, actor=WORKER))

    assert last_attempt_duration(job.history, at(100.4)) == timedelta(seconds=0.4)
    assert last_attempt_duration(job.end(100.5).history, at(500)) == timedelta(seconds=0.5)


def test_a_job_that_nobody_has_had_has_no_attempt() -> None:
    assert last_attempt_duration(RecordedJob().history, at(500)) is None


def test_an_hour_costs_the_rate() -> None:
    job = RecordedJob().claim(0).end(720)

    assert cost_of(job.history, at(900)).dollars == pytest.approx(0.02)
    assert cost_of(job.history, at(900), rate=2.5).dollars == pytest.approx(0.5)
    assert Cost(seconds=3600, rate=0.1).dollars == pytest.approx(0.1)


@pytest.mark.parametrize(("text", "rate"), [("0", 0), ("0.10", 0.1), (" 3 ", 3), ("1e6", 1e6)])
def test_a_rate_is_a_number_from_nothing_to_a_million(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "-0.01", "1000001", "inf", "nan", "0,10", "cheap"])
def test_a_rate_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Invalid, match=r"such as 0\.10, not ") as refused:
        parse_rate(text)

    assert refused.value.message.endswith(f"not {text!r}.")


def test_an_attempt_whose_claim_is_not_told_counts_from_the_first_move_that_is() -> None:
    job = RecordedJob().claim(10).do(12, Heartbeat(token=1, actor=WORKER)).end(15)

    assert last_attempt_duration(job.history[2:], at(500)) == timedelta(seconds=3)
