"""The text log of a worker: few lines when much happens, and every fault."""

import re
from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.cli.worker_log import WorkerStart
from holdfast.cli.worker_text_log import TextLog
from holdfast.core.state import State
from holdfast.ports import Grant
from holdfast.testing.fakes import ManualClock
from holdfast.worker.redaction import Redactor
from tests.cli.worker_reports import HOSTILE, RecordedOutput, calls_per_job, granted

CALLS_MAX = 6


class TextLogSetup:
    """A text log on a clock that only the test moves; timers fire only then."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.out = RecordedOutput()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.lines = TextLog("w1", self.clock, self.out, later=self._later)
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
def setup() -> TextLogSetup:
    return TextLogSetup()


def test_a_job_that_comes_alone_gets_one_line_when_it_has_ended(setup: TextLogSetup) -> None:
    setup.succeed()
    setup.wait(60)

    assert setup.out.lines == ["✔ job-1 resize succeeded in 10 ms"]
    assert setup.out.writes[0].startswith("00:00:00 ")


def test_lines_show_the_arguments_without_secrets_however_they_are_shortened(setup: TextLogSetup) -> None:
    redactor = Redactor(["hf_secret"])
    setup.lines = TextLog("w1", setup.clock, setup.out, later=setup._later, redact=redactor.document)
    payload = msgspec.Raw(b'{"alpha": 0.3, "key": "0123456789012345678901234567890hf_secret"}')

    grant = setup.start("fit", payload=payload)
    setup.wait(2)
    setup.lines.ended(replace(grant.job, state=State.FAILED, reason="KeyError: 'b'"), 2.0)

    call = "fit(alpha=0.3, key='0123456789012345678901234567890***')"
    assert setup.out.lines == [
        f"▶ job-1 {call} is running",
        f"✘ job-1 {call} failed in 2.0 s: KeyError: 'b'",
    ]


def test_jobs_that_come_fast_share_a_line(setup: TextLogSetup) -> None:
    for _ in range(20):
        setup.succeed(1000)
        setup.wait(1)

    assert [line for line in setup.out.lines if "jobs done" in line] == [
        "✔ 5,000 jobs done in 5 s (1,000/s); 0 in progress."
    ] * 4
    assert len(setup.out.lines) == 10 + 4


def test_when_it_is_calm_again_jobs_get_a_line_each_again(setup: TextLogSetup) -> None:
    setup.succeed(1000)
    setup.wait(20)
    setup.out.writes.clear()

    setup.succeed()

    assert setup.out.lines == ["✔ job-1001 resize succeeded in 10 ms"]


def test_where_nothing_was_done_there_is_no_summary(setup: TextLogSetup) -> None:
    setup.succeed(1000)
    setup.wait(7)
    setup.out.writes.clear()
    setup.lines.left()

    assert setup.out.lines == ["w1 left; 1,000 jobs done."]


def test_nothing_is_left_out_of_the_summaries(setup: TextLogSetup) -> None:
    for number in (3, 40, 900, 2, 0, 0, 0, 0, 0, 0, 50):
        setup.succeed(number)
        setup.wait(1)
    setup.lines.left()

    assert setup.out.lines[-1] == "w1 left; 995 jobs done."
    summed = [re.match(r"✔ ([\d,]+) jobs? done", line) for line in setup.out.lines]
    assert sum(int(found[1].replace(",", "")) for found in summed if found) >= 995 - 2 * 10


def test_a_long_job_is_announced_when_it_has_run_for_a_second_and_when_it_ends(
    setup: TextLogSetup,
) -> None:
    grant = setup.start("train", name="the big one", attempt=2)
    setup.wait(0.9)
    assert setup.out.lines == []

    setup.wait(1.2)
    assert setup.out.lines == ["▶ job-1 the big one is running, attempt 2"]

    setup.wait(100)
    setup.lines.ended(replace(grant.job, state=State.SUCCEEDED), 102.1)
    assert setup.out.lines[1:] == ["✔ job-1 the big one succeeded in 102 s, attempt 2"]


def test_a_job_that_is_over_is_not_announced_as_running(setup: TextLogSetup) -> None:
    grant = setup.start()
    setup.wait(1.5)
    setup.lines.ended(replace(grant.job, state=State.SUCCEEDED), 1.5)
    setup.wait(5)

    assert setup.out.lines == ["✔ job-1 resize succeeded in 1.5 s"]


def test_a_long_job_is_announced_among_many_short_ones(setup: TextLogSetup) -> None:
    grant = setup.start("train")
    for _ in range(7):
        setup.succeed(1000)
        setup.wait(1)
    setup.lines.ended(replace(grant.job, state=State.SUCCEEDED), 7.0)

    assert "▶ job-1 train is running" in setup.out.lines
    assert setup.out.lines[-1] == "✔ job-1 train succeeded in 7.0 s"


def test_many_long_jobs_are_bounded_too(setup: TextLogSetup) -> None:
    for _ in range(10):
        for _ in range(300):
            setup.start("train")
        setup.wait(1)

    assert len(setup.out.lines) < 40
    assert any(re.search(r"; [\d,]+ in progress\.$", line) for line in setup.out.lines)


def test_a_failure_is_told_at_once_however_fast_the_others_are(setup: TextLogSetup) -> None:
    setup.succeed(5000)
    setup.wait(10)
    setup.succeed(5000)

    setup.fail("no pixels")

    assert setup.out.lines[-1] == "✘ job-10001 resize failed in 10 ms: no pixels"


def test_what_is_like_it_is_counted(setup: TextLogSetup) -> None:
    for number in range(315):
        setup.fail(f"picture {number} has no pixels")
    assert len(setup.out.lines) == 3

    setup.wait(6)

    assert len(setup.out.lines) == 4
    assert setup.out.lines[-1] == (
        "… and 312 more like it, the last: ✘ job-315 resize failed in 10 ms: picture 314 has no pixels"
    )


def test_failures_of_any_number_of_kinds_are_bounded(setup: TextLogSetup) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    for one in letters:
        for two in letters:
            setup.fail(f"{one} {two}")
    setup.wait(6)

    assert len(setup.out.lines) < 40
    assert re.match(r"… and 6\d\d other problems, the last: ✘ job-676", setup.out.lines[-1])


def test_an_outage_is_told_less_and_less_often(setup: TextLogSetup) -> None:
    for _ in range(2 * 600):
        setup.lines.trouble("the database is away")
        setup.wait(0.5)

    assert setup.out.lines[:3] == ["⚠ the database is away"] * 3
    assert len(setup.out.lines) < 20
    told = sum(int(found) for found in re.findall(r"and (\d+) more", "\n".join(setup.out.lines)))
    assert told > 1000


def test_the_same_after_a_while_is_news_again(setup: TextLogSetup) -> None:
    for _ in range(4):
        setup.lines.trouble("the database is away")
    setup.wait(120)
    setup.out.writes.clear()

    setup.lines.trouble("the database is away")

    assert setup.out.lines == ["⚠ the database is away"]


def test_a_retry_and_a_giving_back_are_told_apart(setup: TextLogSetup) -> None:
    failing, leaving = setup.start(), setup.start()
    again = {"state": State.QUEUED, "attempt": 2}

    soon = failing.job.updated_at + timedelta(seconds=20)
    setup.lines.ended(replace(failing.job, failures=1, ready_at=soon, reason="no pixels", **again), 0.2)
    setup.lines.ended(replace(leaving.job, reason="the worker is leaving", **again), 0.2)
    unbegun = replace(granted("job-3").job, reason="no room", **again)
    setup.lines.ended(unbegun, 0.0)
    setup.lines.left()

    assert setup.out.lines == [
        "↻ job-1 resize failed in 200 ms, attempt 1 of 5; next in 20 s: no pixels",
        "↻ job-2 resize given back: the worker is leaving",
        "↻ job-3 resize given back: no room",
        "w1 left; 0 jobs done, 2 given back, 1 tried again.",
    ]


def test_a_lost_lease_is_told(setup: TextLogSetup) -> None:
    setup.lines.lost(setup.start(), "the job is queued, attempt 2")
    setup.wait(5)

    assert setup.out.lines == ["⚠ job-1 resize is no longer ours: the job is queued, attempt 2"]


def test_nobody_is_woken_when_there_is_nothing_left_to_say(setup: TextLogSetup) -> None:
    setup.succeed()
    setup.start("train")
    setup.fail("no pixels")
    setup.wait(10)
    assert setup.timers == []

    setup.succeed(5000)
    for _ in range(10):
        setup.fail("no pixels")
    assert len(setup.timers) == 1
    setup.wait(200)
    assert setup.timers == []


def test_what_was_counted_is_told_before_the_worker_has_left(setup: TextLogSetup) -> None:
    setup.succeed(100)
    for _ in range(5):
        setup.fail("no pixels")
    setup.lines.left()

    assert any(line.startswith("… and 2 more like it") for line in setup.out.lines)
    assert "✔ 100 jobs done in 0 s" in setup.out.lines[-2]
    assert setup.out.lines[-1] == "w1 left; 100 jobs done, 5 failed."


def test_nothing_hostile_is_in_a_line(setup: TextLogSetup) -> None:
    grant = setup.start(name=HOSTILE)
    setup.wait(3)
    setup.lines.ended(replace(grant.job, state=State.FAILED, reason=HOSTILE), 3)
    setup.lines.lost(granted("x", name=HOSTILE), HOSTILE)
    setup.lines.trouble(HOSTILE)
    opening = WorkerStart(worker="w1", app=None, store=HOSTILE, queues=("default",), slots=1)
    setup.lines.opened(opening)

    assert len(setup.out.writes) == 5
    for text in setup.out.writes:
        assert text.endswith("\n")
        assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u202e]", text[:-1])


@pytest.mark.parametrize(
    ("slots", "threads", "words"),
    [
        (100, None, "100 at a time."),
        (2, 2, "2 at a time, one per core (-c for more that mostly wait)."),
        (100, 2, "100 at a time, 2 of them not coroutines (-c for more)."),
    ],
)
def test_the_start_says_how_many_jobs_run_at_the_same_time(
    setup: TextLogSetup, slots: int, threads: int | None, words: str
) -> None:
    opening = WorkerStart(
        worker="w1", app="shop:app", store="sqlite:///a.db", queues=("mail",), slots=slots, threads=threads
    )

    setup.lines.opened(opening)

    assert setup.out.lines == [f"w1 runs shop:app from sqlite:///a.db, queue mail, {words} Ctrl-C to leave."]


def test_a_reason_without_end_is_shortened(setup: TextLogSetup) -> None:
    setup.fail("x" * 1_000_000)

    assert len(setup.out.lines[0]) < 400


def test_a_short_job_is_reported_in_a_handful_of_calls(setup: TextLogSetup) -> None:
    setup.succeed(100)

    assert calls_per_job(setup.lines, 1000) < CALLS_MAX


def test_lines_that_are_missing_are_told(setup: TextLogSetup) -> None:
    setup.out.missing = 1234
    setup.succeed()

    assert setup.out.lines[0] == "⚠ 1,234 lines missing here: stderr was not read in time."
    assert setup.out.missing == 0


def test_what_the_worker_does_not_understand_is_told_and_is_no_failure(setup: TextLogSetup) -> None:
    grant = setup.start("send")
    words = "w1 does not understand it: send: there is no argument gift; it takes to."
    given = replace(grant.job, state=State.QUEUED, reason=words, not_understood=1)
    setup.lines.ended(given, 0.01)
    setup.lines.left()

    assert setup.out.lines == [
        f"↻ job-1 send given back: {words}",
        "w1 left; 0 jobs done, 1 given back.",
    ]
