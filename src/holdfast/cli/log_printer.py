"""Printing what a job wrote: its stdout to stdout, its stderr to stderr."""

import os
import sys
from contextlib import suppress
from datetime import datetime

from holdfast.cli.output_summary import verdict_words
from holdfast.cli.terminal import note, on_terminal
from holdfast.cli.terminal_escape import Cleaner, plain
from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.explanation import describe_flaws
from holdfast.core.gaps import GapTracker, describe_gap
from holdfast.core.job import Job
from holdfast.core.output_chunks import chunks_of
from holdfast.core.output_part import EVERYTHING, OutputPart
from holdfast.core.seams import SeamTracker
from holdfast.core.tracebacks import AttemptTraceback, traceback_in
from holdfast.ports import Registry

PAGE = 50  # events of up to 64 kB each: a page stays near 3 MB


class LogPrinter:
    """Prints both streams of a job: exact bytes into a pipe or file, safe text onto a terminal."""

    def __init__(
        self,
        part: OutputPart = EVERYTHING,
        *,
        timestamps: bool = False,
    ) -> None:
        self.part = part
        self._timestamps = timestamps
        self._seams = SeamTracker()
        self._gaps = GapTracker()
        self._unpruned: int | None = None
        self._failed: set[int | None] = set()
        self._sinks = {"stdout": _Sink(err=False), "stderr": _Sink(err=True)}

    def show(self, event: Event) -> None:
        """Print the output of the event, if it belongs to the part."""
        kept = self.part.of(event)
        if kept is None:
            return
        event = kept
        missing = self._gaps.missing_before(event)
        if missing and (missing.start > 1 or self._unpruned in (0, event.attempt)):
            note(describe_gap(missing, event.attempt))
        if event.event_type == EventType.PUBLISH_REFUSED:
            reason = plain(event.reason or "")
            note(f"An event that attempt {event.attempt} published here was refused: {reason}")
        seam = self._seams.before(event)
        if seam is not None:
            self._end_lines()
            note(seam)
        if (found := traceback_in(event)) is not None:
            self._show_traceback(found, event.occurred_at)
        for piece in chunks_of(event):
            sink = self._sinks["stderr" if piece.stream == "stderr" else "stdout"]
            sink.write(piece.data, piece.at if self._timestamps else None)

    def _end_lines(self) -> None:
        """Begin a new line on a terminal, where the last one has not ended."""
        if on_terminal(err=True) and not all(sink.at_line_start for sink in self._sinks.values()):
            note("")

    def _show_traceback(self, found: AttemptTraceback, at: datetime) -> None:
        """Print a traceback on stderr: where its worker published it, or else where it was recorded."""
        again = not found.published and found.attempt in self._failed
        self._failed.add(found.attempt)
        wanted = self.part.stream in (None, "stderr") and self.part.attempt in (None, found.attempt)
        if wanted and not again:
            self._sinks["stderr"].write_lines(found.text, at if self._timestamps else None)

    def begin(self, job: Job) -> None:
        """Take output missing at the beginning of an attempt as pruned, unless the job says otherwise."""
        self._seams = SeamTracker(job.attempt)
        if not self.part.has_start:
            self._unpruned = job.attempt if job.flaws is not None and job.flaws.missed else None

    def follow(self) -> None:
        """Take no missing output as pruned from now on."""
        if not self.part.has_start:
            self._unpruned = 0

    def finish(self) -> None:
        for sink in self._sinks.values():
            sink.finish()

    def end(self, job: Job) -> None:
        """Print what is wrong with the output, if anything is."""
        if self.part.attempt in (None, job.attempt):
            for words in describe_flaws(job):
                note(plain(words))


class _Sink:
    def __init__(self, *, err: bool) -> None:
        self._err = err
        self._cleaner = Cleaner(colours=not os.environ.get("NO_COLOR")) if on_terminal(err=err) else None
        self.at_line_start = True

    def write_lines(self, text: str, at: datetime | None) -> None:
        """Write whole lines, after the end of the line that was begun."""
        begin = "" if self.at_line_start else "\n"
        self.write(f"{begin}{text}\n".encode(), at)

    def write(self, data: bytes, at: datetime | None) -> None:
        safe = data if self._cleaner is None else self._cleaner.feed(data).encode()
        if at is None and safe:
            self.at_line_start = safe.endswith(b"\n")
        self._put(safe if at is None else self._stamped(safe, at))

    def finish(self) -> None:
        if self._cleaner is not None:
            self._put(self._cleaner.finish().encode())

    def _put(self, data: bytes) -> None:
        if data:
            stream = (sys.stderr if self._err else sys.stdout).buffer
            stream.write(data)
            stream.flush()

    def _stamped(self, data: bytes, at: datetime) -> bytes:
        """Return the data with the time before every line that begins in it."""
        if not data:
            return data
        stamp = f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z ".encode()
        lines = data.split(b"\n")
        opened = [stamp + line for line in lines[1:-1]]
        first = stamp + lines[0] if self.at_line_start else lines[0]
        if len(lines) == 1:
            self.at_line_start = False
            return first
        last = stamp + lines[-1] if lines[-1] else b""
        self.at_line_start = not lines[-1]
        return b"\n".join([first, *opened, last])


async def print_logs(registry: Registry, job_id: str, printer: LogPrinter) -> None:
    """Print the output so far."""
    job = await registry.status(job_id)
    printer.begin(job)
    try:
        await _print_pages(registry, job_id, printer)
    finally:
        _finish(printer)
    printer.end(job)


async def follow_logs(registry: Registry, job_id: str, printer: LogPrinter) -> Job:
    """Print the output so far and what comes, until the job ends; return the job."""
    printer.begin(await registry.status(job_id))
    try:
        cursor = await _print_pages(registry, job_id, printer)
        printer.follow()
        async for event in registry.watch(job_id, after=cursor):
            printer.show(event)
    finally:
        _finish(printer)
    job = await registry.status(job_id)
    printer.end(job)
    return job


async def follow_to_verdict(registry: Registry, job_id: str) -> Job:
    """As `follow_logs`; missing outputs of the job are printed on stderr."""
    job = await follow_logs(registry, job_id, LogPrinter())
    if job.found is not None and job.found.missing:
        note(plain(verdict_words(job)))
    return job


async def _print_pages(registry: Registry, job_id: str, printer: LogPrinter) -> str:
    part, cursor = printer.part, None
    tail, since = part.tail, part.since
    while True:
        page = await registry.logs(
            job_id,
            after=cursor,
            limit=PAGE,
            tail=tail,
            since=since,
            attempt=part.attempt,
            stream=part.stream,
        )
        for event in page.events:
            printer.show(event)
        cursor, tail, since = page.cursor, None, None
        if not page.events:
            return cursor


def _finish(printer: LogPrinter) -> None:
    with suppress(BrokenPipeError):
        printer.finish()
