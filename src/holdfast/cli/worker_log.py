"""The log of a worker as JSON, one object a line, written to stderr without waiting for a reader."""

import asyncio
import os
import select
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from queue import SimpleQueue
from threading import Thread
from typing import Protocol

import msgspec
from msgspec import Struct

from holdfast.cli.layout import wrap
from holdfast.cli.output_summary import (
    end_words,
    ended_for_other_reason,
    missing_names,
    output_counts,
)
from holdfast.cli.terminal_escape import json_text
from holdfast.core.arguments import describe_call
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.ports import Clock, Grant
from holdfast.worker.completion_reporter import WorkerObserver
from holdfast.worker.redaction import NOTHING_HIDDEN

BACKLOG_BYTES_MAX = 8 * 1024 * 1024
CLOSE_SECONDS = 2.0
REPEAT_SECONDS = 5.0
_TIME_CHARACTERS = len("12:00:00 ")


class LineWriter(Protocol):
    """A writer of whole lines. `missing` is how many it dropped since that was last set to 0."""

    missing: int

    def write(self, text: str) -> None: ...


class WorkerStart(Struct, frozen=True, kw_only=True):
    """What a worker logs at its start: its name, and what it will run. `threads`: how many of the jobs that
    run at the same time may be such as take a thread or process, where the worker decided that itself."""

    worker: str
    app: str | None
    store: str
    queues: tuple[str, ...]
    slots: int
    threads: int | None = None
    metrics: str | None = None
    left_out: tuple[str, ...] = ()
    """Queues of the app that it does not serve."""


class WorkerLog(WorkerObserver, Protocol):
    """A report that also takes the start and the end of the worker."""

    def opened(self, opening: WorkerStart) -> None: ...

    def recovered(self, attempts: int) -> None:
        """This many attempts were closed that a killed worker had left."""
        ...

    def leaving(self, seconds: float) -> None:
        """The worker was told to leave; running jobs have this long."""
        ...

    def left(self) -> None: ...


class StderrWriter:
    """Writes to stderr from a thread of its own: a stopped terminal, or a pipe that is not read, must not
    make a worker lose its leases. What does not fit the backlog is dropped. Hidden secrets are replaced.
    Lines are wrapped at words after that, where there is a `width`: they begin with the time.
    """

    def __init__(self, width: Callable[[], int | None] | None = None) -> None:
        self._width = width
        self.missing = 0
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._redactor = self._stray = NOTHING_HIDDEN
        self._queued_bytes = self._written_bytes = 0
        self._thread: Thread | None = None
        try:
            self._file: int | None = sys.stderr.fileno()
        except (OSError, ValueError, AttributeError):  # no file, as under a test's own stream
            self._file = None

    def hide(self, secrets: Sequence[str]) -> None:
        """Replace these in all text from now on."""
        self._redactor = self._redactor.copy(secrets)
        self._put(self._stray.flush(), 0)
        self._stray = self._redactor.copy()

    def redact(self, document: bytes) -> bytes:
        """Return the document without secrets: for what is shortened before it is written."""
        return self._redactor.document(document)

    def write(self, text: str) -> None:
        """Write whole lines, soon."""
        text = self._redactor.text(text)
        if self._width is not None:
            text = "\n".join(wrap(text, self._width(), indent=_TIME_CHARACTERS))
        if self._file is None:
            sys.stderr.write(text)
        else:
            self._put(text.encode(sys.stderr.encoding or "utf-8", "replace"), text.count("\n"))

    def copy(self, data: bytes) -> None:
        """Write the bytes of another process, soon and unchanged but for the secrets."""
        self._put(self._stray.feed(data), data.count(b"\n"))

    def _put(self, data: bytes, lines: int) -> None:
        if self._file is None or not data:
            return
        if self._queued_bytes - self._written_bytes + len(data) > BACKLOG_BYTES_MAX:
            self.missing += lines
            return
        if self._thread is None:
            self._thread = Thread(target=self._work, args=(self._file,), daemon=True)
            self._thread.start()
        self._queued_bytes += len(data)
        self._queue.put(data)

    @property
    def writing(self) -> bool:
        """Whether the writing thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        """Return when all is written; a reader that does not read is not waited for."""
        self._put(self._stray.flush(), 0)
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(CLOSE_SECONDS)

    def _work(self, file: int) -> None:
        while (data := self._queue.get()) is not None:
            _write_all(file, data)
            self._written_bytes += len(data)


def _write_all(file: int, data: bytes) -> None:
    """Write the data; a reader that is gone is no reason for a worker to stop."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(file, rest) :]
        except BlockingIOError:
            select.select([], [file], [], 1.0)
        except OSError:
            return


class Entry(Struct, omit_defaults=True, gc=False):
    """One line of the log; fields that do not apply are left out."""

    time: datetime
    level: str
    event: str
    worker: str
    job_id: str | None = None
    kind: str | None = None
    queue: str | None = None
    attempt: int | None = None
    fencing_token: int | None = None
    state: str | None = None
    seconds: float | None = None
    reason: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    repeated: int | None = None
    app: str | None = None
    store: str | None = None
    queues: tuple[str, ...] | None = None
    slots: int | None = None
    threads: int | None = None
    metrics: str | None = None
    jobs: int | None = None
    call: str | None = None
    left_out: tuple[str, ...] | None = None


_LEVELS = {
    State.SUCCEEDED: "info",
    State.QUEUED: "warning",
    State.CANCELLED: "warning",
    State.PARTIAL_SUCCESS: "warning",
    State.VALIDATING: "warning",
}


class JsonLog:
    """Every job, as JSON; with its arguments if it has not succeeded. The lines of one turn of the loop are
    written together. `redact` returns a JSON document without secrets."""

    def __init__(
        self, worker: str, clock: Clock, out: LineWriter, *, redact: Callable[[bytes], bytes] = bytes
    ) -> None:
        self._redact = redact
        self._worker = worker
        self._clock = clock
        self._out = out
        self._encode = msgspec.json.Encoder().encode
        self._lines: list[bytes] = []
        self._now = clock.now()
        self._jobs = 0
        self._trouble = ""
        self._trouble_at = float("-inf")
        self._repeated = 0

    def started(self, grant: Grant) -> None:
        job = grant.job
        spec = job.spec
        self._add(
            Entry(
                self._time(),
                "info",
                "job_started",
                self._worker,
                job.job_id,
                spec.kind,
                spec.queue,
                grant.attempt,
                grant.fencing_token,
                correlation_id=job.correlation,
                trace_id=job.trace_id,
            )
        )

    def ended(self, job: Job, seconds: float) -> None:
        spec, state = job.spec, job.state
        again = state is State.QUEUED
        self._jobs += not again
        self._add(
            Entry(
                self._time(),
                _LEVELS.get(state, "error"),
                "job_ended",
                self._worker,
                job.job_id,
                spec.kind,
                spec.queue,
                job.attempt - again,
                job.fencing_token,
                state,
                round(seconds, 6),
                outcome_words(job),
                job.correlation,
                job.trace_id,
                call=None if state is State.SUCCEEDED else self._call(job),
            )
        )

    def _call(self, job: Job) -> str | None:
        shown = describe_call(job.spec, self._redact(bytes(job.spec.payload)))
        return None if shown == job.spec.kind else shown

    def lost(self, grant: Grant, why: str) -> None:
        job = grant.job
        self._log(
            "warning",
            "job_lost",
            job_id=job.job_id,
            kind=job.spec.kind,
            queue=job.spec.queue,
            attempt=grant.attempt,
            fencing_token=grant.fencing_token,
            reason=why,
            correlation_id=job.correlation,
            trace_id=job.trace_id,
        )

    def trouble(self, why: str) -> None:
        now = self._clock.monotonic()
        if why == self._trouble and now - self._trouble_at < REPEAT_SECONDS:
            self._repeated += 1  # an outage is a line every few seconds, not one for every try
            return
        repeated = self._repeated or None if why == self._trouble else None
        self._trouble, self._trouble_at, self._repeated = why, now, 0
        self._log("warning", "trouble", reason=why, repeated=repeated)

    def paused(self, seconds: float, why: str) -> None:
        self._log("error", "worker_paused", seconds=seconds, reason=why)

    def resumed(self) -> None:
        self._log("info", "worker_resumed")

    def opened(self, opening: WorkerStart) -> None:
        self._log(
            "info",
            "worker_started",
            app=opening.app,
            store=opening.store,
            queues=opening.queues,
            left_out=opening.left_out or None,
            slots=opening.slots,
            threads=opening.threads,
            metrics=opening.metrics,
        )

    def recovered(self, attempts: int) -> None:
        reason = f"closed {attempts} attempts that a killed worker had left"
        self._log("warning", "worker_recovered", jobs=attempts, reason=reason)

    def leaving(self, seconds: float) -> None:
        self._log("info", "worker_leaving", seconds=seconds)

    def left(self) -> None:
        self._log("info", "worker_left", jobs=self._jobs)
        self._flush()

    def _log(self, level: str, event: str, **more: object) -> None:
        entry = Entry(self._time(), level, event, self._worker, **more)  # type: ignore[arg-type]
        self._add(entry)

    def _time(self) -> datetime:
        """Return the time, read once a turn of the loop."""
        if not self._lines:
            self._now = self._clock.now()
            asyncio.get_running_loop().call_soon(self._flush)
        return self._now

    def _add(self, entry: Entry) -> None:
        self._lines.append(self._encode(entry))

    def _flush(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            if self._out.missing:
                number, self._out.missing = self._out.missing, 0
                reason = f"{number} lines are missing: stderr was not read in time"
                entry = Entry(self._now, "warning", "trouble", self._worker, reason=reason)
                lines.insert(0, self._encode(entry))
            self._out.write(json_text(b"\n".join(lines)) + "\n")


def outcome_words(job: Job) -> str | None:
    """Return why the job ended, which of its outputs are missing, or why they are not validated yet."""
    if ended_for_other_reason(job):
        return end_words(job)
    if job.found is not None and job.found.missing:
        return f"{output_counts(job)}: {missing_names(job)}"
    if job.state is State.VALIDATING and job.check is not None:
        return job.check.reason or "its outputs have not been validated yet"
    return job.reason
