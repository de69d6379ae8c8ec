"""The log of a worker for people: a few lines at a time, on stderr."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

import click

from holdfast.cli.job_view import program_name
from holdfast.cli.log_throttle import GroupKey, LazyLine, LogThrottle
from holdfast.cli.terminal import count, shorten
from holdfast.cli.terminal_escape import plain
from holdfast.cli.worker_log import LineWriter, WorkerStart, outcome_words
from holdfast.core.explanation import describe_retry, format_duration
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.ports import Clock, Grant

TICK_SECONDS = 1.0
LONG_SECONDS = 1.0
WINDOW_SECONDS = 5.0
WINDOW_LINES = 10
TITLE_CHARACTERS = 60
REASON_CHARACTERS = 300

Later = Callable[[float, Callable[[], None]], object]

_MARKS = {
    State.SUCCEEDED: ("✔", "green"),
    State.QUEUED: ("↻", "yellow"),
    State.CANCELLED: ("✘", "yellow"),
    State.PARTIAL_SUCCESS: ("✘", "yellow"),
    State.VALIDATING: ("…", "yellow"),
}
_DETAILS = re.compile(r"[^\s\d]*+\d\S*")


class TextLog:
    """The log of a worker for people.

    Few jobs get a line each; many share one every few seconds. A long job is announced when it has
    run for a second. Problems are always written; those that are alike are counted. The timer runs only
    while something is left to write.
    """

    def __init__(
        self,
        worker: str,
        clock: Clock,
        out: LineWriter,
        *,
        colours: bool = False,
        later: Later | None = None,
        redact: Callable[[bytes], bytes] = bytes,
    ) -> None:
        """`redact` returns a JSON document without secrets."""
        self._worker = worker
        self._clock = clock
        self._out = out
        self._colours = colours
        self._later = later
        self._redact = redact
        self._timer: object = None
        self._running: dict[str, Grant] = {}
        self._aging: dict[str, Grant] = {}
        self._announced: dict[str, Grant] = {}
        self._throttle = LogThrottle(self._write, seconds=WINDOW_SECONDS)
        self._busy = False
        self._succeeded = 0
        self._others: Counter[str] = Counter()
        self._open_window(clock.monotonic())

    # Reports of the worker. At full speed only `started` and the first lines of `ended` are run.

    def started(self, grant: Grant) -> None:
        self._running[grant.job.job_id] = grant
        if self._timer is None:
            self._arm()

    def ended(self, job: Job, seconds: float) -> None:
        grant = self._running.pop(job.job_id, None)
        if job.state is not State.SUCCEEDED:
            self._count_unsuccessful(job, seconds, grant)
            return
        self._succeeded += 1
        if not self._busy or seconds >= LONG_SECONDS:
            self._write_or_count(partial(self._ended_line, job, seconds), long=seconds >= LONG_SECONDS)

    def _count_unsuccessful(self, job: Job, seconds: float, grant: Grant | None) -> None:
        if job.state is not State.QUEUED:
            self._others[job.state.replace("_", " ")] += 1
            line = partial(self._ended_line, job, seconds)
        elif failed_again(job, grant):
            self._others["tried again"] += 1
            line = partial(self._retried_line, job, seconds)
        else:
            self._others["given back"] += 1
            line = partial(self._given_back_line, job)
        self._problem((job.state, job.spec.kind, job.reason or ""), line)

    def lost(self, grant: Grant, why: str) -> None:
        self._running.pop(grant.job.job_id, None)
        self._others["lost"] += 1
        line = partial(self._lost_line, grant, why)
        self._problem(("lost", grant.job.spec.kind, why), line)

    def trouble(self, why: str) -> None:
        line = partial(self._marked, "⚠", "yellow", _reason(why))
        self._problem(("trouble", "", why), line)

    def paused(self, seconds: float, why: str) -> None:
        words = f"This machine cannot run jobs; none is claimed for {seconds:g} s: {_reason(why)}"
        self._write(self._marked("⚠", "yellow", words))

    def resumed(self) -> None:
        self._write("This machine runs jobs again.")

    # Start and end of the worker.

    def opened(self, opening: WorkerStart) -> None:
        what = f"runs {opening.app}" if opening.app else "runs commands"
        where = f"from {opening.store}, {_queues(opening.queues)}"
        words = f"{opening.worker} {what} {where}, {_at_a_time(opening)}. Ctrl-C to leave."
        self._write(plain(words))
        if opening.left_out:
            left_out = _queues(opening.left_out)
            words = (
                f"It leaves out {left_out}, which {opening.app} names: their jobs wait for another worker."
            )
            self._write(self._marked("⚠", "yellow", plain(words)))
        if opening.metrics:
            self._write(f"Metrics: {opening.metrics}")

    def recovered(self, attempts: int) -> None:
        self._write(f"Closed {count(attempts, 'attempt')} that a killed worker had left.")

    def leaving(self, seconds: float) -> None:
        self._write(
            f"Leaving: running jobs have {seconds:g} s to end, then they are given back."
            " A second signal stops them now."
        )

    def left(self) -> None:
        self._throttle.finish()
        if self._busy:
            self._summarise(self._clock.monotonic())
        self._write(f"{self._worker} left; {_totals(self._succeeded, self._others)}.")

    # What is written, and when.

    def _write_or_count(self, line: LazyLine, *, long: bool) -> None:
        """Write the line, unless many were written just now: then it is part of the next summary."""
        now = self._clock.monotonic()
        if now >= self._window_ends and not self._busy:
            self._open_window(now)
        if self._room[long]:
            self._room[long] -= 1
            self._write(line())
        else:
            self._busy = True
            self._arm()

    def _problem(self, key: GroupKey, line: LazyLine) -> None:
        state, kind, why = key
        alike = _DETAILS.sub("#", why[:REASON_CHARACTERS])
        self._throttle.add(self._clock.monotonic(), (state, kind, alike), line)
        if self._throttle.pending:
            self._arm()

    def _open_window(self, now: float) -> None:
        self._window_began, self._window_ends = now, now + WINDOW_SECONDS
        self._room = [WINDOW_LINES, WINDOW_LINES]  # for short jobs, and for long ones
        self._before = self._succeeded, self._others.copy()

    def _summarise(self, now: float) -> None:
        succeeded, others = self._before
        done, more = self._succeeded - succeeded, self._others - others
        if done or more or self._running:
            seconds = max(now - self._window_began, 0.001)
            rate = f"{done / seconds:,.0f}" if done >= 10 * seconds else f"{done / seconds:.1f}"
            words = _totals(done, more, f" in {seconds:.0f} s ({rate}/s)")
            words = f"{words}; {len(self._running):,} in progress."
            self._write(self._marked("✔", "green", words))
        self._busy = done > WINDOW_LINES
        self._open_window(now)

    def _arm(self) -> None:
        if self._timer is None:
            later = self._later or asyncio.get_running_loop().call_later
            self._timer = later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        announced = self._still_running(self._announced)
        for job_id, grant in self._still_running(self._aging).items():
            self._write_or_count(partial(self._started_line, grant), long=True)
            announced[job_id] = grant
        self._announced = announced
        self._aging = {i: grant for i, grant in self._running.items() if i not in announced}
        now = self._clock.monotonic()
        self._throttle.tick(now)
        if self._busy and now >= self._window_ends:
            self._summarise(now)
        if self._aging or self._busy or self._throttle.pending:
            self._arm()

    def _still_running(self, grants: dict[str, Grant]) -> dict[str, Grant]:
        running = self._running
        return {job_id: grant for job_id, grant in grants.items() if running.get(job_id) is grant}

    def _write(self, text: str) -> None:
        time = f"{self._clock.now():%H:%M:%S}"
        if self._out.missing:
            number, self._out.missing = self._out.missing, 0
            words = f"{count(number, 'line')} missing here: stderr was not read in time."
            self._out.write(f"{time} {self._marked('⚠', 'yellow', words)}\n")
        self._out.write(f"{time} {text}\n")

    # The text of the lines.

    def _started_line(self, grant: Grant) -> str:
        again = f", attempt {grant.attempt}" if grant.attempt > 1 else ""
        return self._marked("▶", "cyan", f"{self._title(grant.job)} is running{again}")

    def _ended_line(self, job: Job, seconds: float) -> str:
        mark, colour = _MARKS.get(job.state, ("✘", "red"))
        why = "" if job.state is State.SUCCEEDED else f": {_reason(outcome_words(job))}"
        again = f", attempt {job.attempt}" if job.attempt > 1 else ""
        words = f"{self._title(job)} {job.state} in {_took(seconds)}{again}{why}"
        return self._marked(mark, colour, words)

    def _retried_line(self, job: Job, seconds: float) -> str:
        words = f"{self._title(job)} failed in {_took(seconds)}, {describe_retry(job)}"
        return self._marked("↻", "yellow", f"{words}: {_reason(job.reason)}")

    def _given_back_line(self, job: Job) -> str:
        return self._marked("↻", "yellow", f"{self._title(job)} given back: {_reason(job.reason)}")

    def _lost_line(self, grant: Grant, why: str) -> str:
        words = f"{self._title(grant.job)} is no longer ours: {_reason(why)}"
        return self._marked("⚠", "yellow", words)

    def _title(self, job: Job) -> str:
        return f"{job.job_id} {shorten(program_name(job, self._redact), TITLE_CHARACTERS)}"

    def _marked(self, mark: str, colour: str, words: str) -> str:
        return f"{self._mark(mark, colour)} {words}"

    def _mark(self, mark: str, colour: str) -> str:
        return click.style(mark, fg=colour) if self._colours else mark


def failed_again(job: Job, grant: Grant | None) -> bool:
    """Return whether a job that is queued again has failed, and was not merely given back."""
    if grant is None:
        return False
    before = grant.job
    return job.failures + job.crashes > before.failures + before.crashes


def _queues(names: Sequence[str]) -> str:
    return f"queue{'s' * (len(names) > 1)} {', '.join(names)}"


def _at_a_time(opening: WorkerStart) -> str:
    """How many jobs run at the same time, and why not more."""
    if opening.threads is None:
        return f"{opening.slots} at a time"
    if opening.threads == opening.slots:
        return f"{opening.slots} at a time, one per core (-c for more that mostly wait)"
    return f"{opening.slots} at a time, {opening.threads} of them not coroutines (-c for more)"


def _totals(succeeded: int, others: Counter[str], pace: str = "") -> str:
    more = "".join(f", {number:,} {what}" for what, number in sorted(others.items()) if number)
    return f"{count(succeeded, 'job')} done{pace}{more}"


def _took(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds)) if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def _reason(why: str | None) -> str:
    return shorten((why or "no reason was given")[: 4 * REASON_CHARACTERS], REASON_CHARACTERS)
