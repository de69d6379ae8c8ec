"""What a worker tells people: few lines when much happens, and nothing that went wrong left out."""

import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from worker_talk import HOSTILE, Kept, calls_per_job, granted

from holdfast.cli.worker_lines import Lines
from holdfast.cli.worker_log import Opening
from holdfast.core.state import State
from holdfast.ports import Grant
from holdfast.testing.fakes import ManualClock

CALLS_MAX = 6


class Stage:
    """Lines on a clock that only moves when told to; a timer fires only then."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.out = Kept()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.lines = Lines("w1", self.clock, self.out, later=self._later)
        self._number = 0

    def _later(self, seconds: float, call: Callable[[], None]) -> object:
        self.timers.append((self.clock.monotonic() + seconds, call))
        return call

    def wait(self, seconds: float) -> None:
        """Let time pass, a tenth of a second after the other."""
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)
            due = [timer for timer in self.timers if timer[0] <= self.clock.monotonic()]
            self.timers = [timer for timer in self.timers if timer not in due]
            for _, call in due:
                call()

    def start(self, kind: str = "resize", **more: object) -> Grant:
        self._number += 1
        grant = granted(f"job-{self._number}", kind, **more)
        self.lines.started(grant)
        return grant

    def succeed(self, number: int = 1, kind: str = "resize", seconds: float = 0.01) -> None:
        for _ in range(number):
            self.lines.ended(replace(self.start(kind).job, state=State.SUCCEEDED), seconds)

    def fail(self, reason: str, kind: str = "resize", state: State = State.FAILED) -> None:
        self.lines.ended(replace(self.start(kind).job, state=state, reason=reason), 0.01)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_job_that_comes_alone_gets_one_line_when_it_has_ended(stage: Stage) -> None:
    stage.succeed()
    stage.wait(60)

    assert stage.out.lines == ["✔ job-1 resize succeeded in 10 ms"]
    assert stage.out.writes[0].startswith("00:00:00 ")


def test_jobs_that_come_fast_share_a_line(stage: Stage) -> None:
    for _ in range(20):
        stage.succeed(1000)
        stage.wait(1)

    assert [line for line in stage.out.lines if "jobs done" in line] == [
        "✔ 5,000 jobs done in 5 s (1,000/s); 0 in hand."
    ] * 4
    assert len(stage.out.lines) == 10 + 4


def test_when_it_is_calm_again_jobs_get_a_line_each_again(stage: Stage) -> None:
    stage.succeed(1000)
    stage.wait(20)
    stage.out.writes.clear()

    stage.succeed()

    assert stage.out.lines == ["✔ job-1001 resize succeeded in 10 ms"]


def test_where_nothing_was_done_there_is_no_summary(stage: Stage) -> None:
    stage.succeed(1000)
    stage.wait(7)
    stage.out.writes.clear()
    stage.lines.left()

    assert stage.out.lines == ["w1 left; 1,000 jobs done."]


def test_nothing_is_left_out_of_the_summaries(stage: Stage) -> None:
    for number in (3, 40, 900, 2, 0, 0, 0, 0, 0, 0, 50):
        stage.succeed(number)
        stage.wait(1)
    stage.lines.left()

    assert stage.out.lines[-1] == "w1 left; 995 jobs done."
    summed = [re.match(r"✔ ([\d,]+) jobs? done", line) for line in stage.out.lines]
    assert sum(int(found[1].replace(",", "")) for found in summed if found) >= 995 - 2 * 10


def test_a_long_job_is_announced_when_it_has_run_for_a_second_and_when_it_ends(
    stage: Stage,
) -> None:
    grant = stage.start("train", name="the big one", attempt=2)
    stage.wait(0.9)
    assert stage.out.lines == []

    stage.wait(1.2)
    assert stage.out.lines == ["▶ job-1 the big one is running, attempt 2"]

    stage.wait(100)
    stage.lines.ended(replace(grant.job, state=State.SUCCEEDED), 102.1)
    assert stage.out.lines[1:] == ["✔ job-1 the big one succeeded in 102 s, attempt 2"]


def test_a_job_that_is_over_is_not_announced_as_running(stage: Stage) -> None:
    grant = stage.start()
    stage.wait(1.5)
    stage.lines.ended(replace(grant.job, state=State.SUCCEEDED), 1.5)
    stage.wait(5)

    assert stage.out.lines == ["✔ job-1 resize succeeded in 1.5 s"]


def test_a_long_job_is_announced_among_many_short_ones(stage: Stage) -> None:
    grant = stage.start("train")
    for _ in range(7):
        stage.succeed(1000)
        stage.wait(1)
    stage.lines.ended(replace(grant.job, state=State.SUCCEEDED), 7.0)

    assert "▶ job-1 train is running" in stage.out.lines
    assert stage.out.lines[-1] == "✔ job-1 train succeeded in 7.0 s"


def test_many_long_jobs_are_bounded_too(stage: Stage) -> None:
    for _ in range(10):
        for _ in range(300):
            stage.start("train")
        stage.wait(1)

    assert len(stage.out.lines) < 40
    assert any(re.search(r"; [\d,]+ in hand\.$", line) for line in stage.out.lines)


def test_a_failure_is_told_at_once_however_fast_the_others_are(stage: Stage) -> None:
    stage.succeed(5000)
    stage.wait(10)
    stage.succeed(5000)

    stage.fail("no pixels")

    assert stage.out.lines[-1] == "✘ job-10001 resize failed in 10 ms: no pixels"


def test_what_is_like_it_is_counted(stage: Stage) -> None:
    for number in range(315):
        stage.fail(f"picture {number} has no pixels")
    assert len(stage.out.lines) == 3

    stage.wait(6)

    assert len(stage.out.lines) == 4
    assert stage.out.lines[-1] == (
        "… and 312 more like it, the last: ✘ job-315 resize failed in 10 ms:"
        " picture 314 has no pixels"
    )


def test_failures_of_any_number_of_kinds_are_bounded(stage: Stage) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    for one in letters:
        for two in letters:
            stage.fail(f"{one} {two}")
    stage.wait(6)

    assert len(stage.out.lines) < 40
    assert re.match(r"… and 6\d\d other problems, the last: ✘ job-676", stage.out.lines[-1])


def test_an_outage_is_told_less_and_less_often(stage: Stage) -> None:
    for _ in range(2 * 600):
        stage.lines.trouble("the database is away")
        stage.wait(0.5)

    assert stage.out.lines[:3] == ["⚠ the database is away"] * 3
    assert len(stage.out.lines) < 20
    told = sum(int(found) for found in re.findall(r"and (\d+) more", "\n".join(stage.out.lines)))
    assert told > 1000


def test_the_same_after_a_while_is_news_again(stage: Stage) -> None:
    for _ in range(4):
        stage.lines.trouble("the database is away")
    stage.wait(120)
    stage.out.writes.clear()

    stage.lines.trouble("the database is away")

    assert stage.out.lines == ["⚠ the database is away"]


def test_a_retry_and_a_giving_back_are_told_apart(stage: Stage) -> None:
    failing, leaving = stage.start(), stage.start()
    again = {"state": State.QUEUED, "attempt": 2}

    stage.lines.ended(replace(failing.job, failures=1, reason="no pixels", **again), 0.2)
    stage.lines.ended(replace(leaving.job, reason="the worker is leaving", **again), 0.2)
    unbegun = replace(granted("job-3").job, reason="no room", **again)
    stage.lines.ended(unbegun, 0.0)
    stage.lines.left()

    assert stage.out.lines == [
        "↻ job-1 resize failed in 200 ms, attempt 1; to be tried again: no pixels",
        "↻ job-2 resize given back: the worker is leaving",
        "↻ job-3 resize given back: no room",
        "w1 left; 0 jobs done, 2 given back, 1 tried again.",
    ]


def test_a_lost_lease_is_told(stage: Stage) -> None:
    stage.lines.lost(stage.start(), "the job is queued, attempt 2")
    stage.wait(5)

    assert stage.out.lines == ["⚠ job-1 resize is no longer ours: the job is queued, attempt 2"]


def test_nobody_is_woken_when_there_is_nothing_left_to_say(stage: Stage) -> None:
    stage.succeed()
    stage.start("train")
    stage.fail("no pixels")
    stage.wait(10)
    assert stage.timers == []

    stage.succeed(5000)
    for _ in range(10):
        stage.fail("no pixels")
    assert len(stage.timers) == 1
    stage.wait(200)
    assert stage.timers == []


def test_what_was_counted_is_told_before_the_worker_has_left(stage: Stage) -> None:
    stage.succeed(100)
    for _ in range(5):
        stage.fail("no pixels")
    stage.lines.left()

    assert any(line.startswith("… and 2 more like it") for line in stage.out.lines)
    assert "✔ 100 jobs done in 0 s" in stage.out.lines[-2]
    assert stage.out.lines[-1] == "w1 left; 100 jobs done, 5 failed."


def test_nothing_hostile_is_in_a_line(stage: Stage) -> None:
    grant = stage.start(name=HOSTILE)
    stage.wait(3)
    stage.lines.ended(replace(grant.job, state=State.FAILED, reason=HOSTILE), 3)
    stage.lines.lost(granted("x", name=HOSTILE), HOSTILE)
    stage.lines.trouble(HOSTILE)
    opening = Opening(worker="w1", app=None, store=HOSTILE, queues=("default",), slots=1)
    stage.lines.opened(opening)

    assert len(stage.out.writes) == 5
    for text in stage.out.writes:
        assert text.endswith("\n")
        assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u202e]", text[:-1])


def test_a_reason_without_end_is_shortened(stage: Stage) -> None:
    stage.fail("x" * 1_000_000)

    assert len(stage.out.lines[0]) < 400


def test_a_short_job_is_reported_in_a_handful_of_calls(stage: Stage) -> None:
    stage.succeed(100)

    assert calls_per_job(stage.lines, 1000) < CALLS_MAX


def test_lines_that_are_missing_are_told(stage: Stage) -> None:
    stage.out.missing = 1234
    stage.succeed()

    assert stage.out.lines[0] == "⚠ 1,234 lines missing here: nobody read in time."
    assert stage.out.missing == 0


def test_what_the_worker_does_not_understand_is_told_and_is_no_failure(stage: Stage) -> None:
    grant = stage.start("send")
    words = "w1 does not understand it: send: there is no argument gift; it takes to."
    given = replace(grant.job, state=State.QUEUED, reason=words, not_understood=1)
    stage.lines.ended(given, 0.01)
    stage.lines.left()

    assert stage.out.lines == [
        f"↻ job-1 send given back: {words}",
        "w1 left; 0 jobs done, 1 given back.",
    ]
