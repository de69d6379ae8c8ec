"""The metrics of a worker: what only it knows, and those of its registry where it opens a store itself."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import click
from msgspec import Struct

from holdfast.core.errors import HoldfastError
from holdfast.core.job import Job
from holdfast.ports import Clock, Grant, Registry
from holdfast.registry.counted import Histogram, Kinds
from holdfast.registry.exposition import count, counter, histogram, number
from holdfast.registry.local import LocalRegistry
from holdfast.registry.metrics import ANSWER_SECONDS, census_of, families, store_up
from holdfast.worker.endings import Report

LOOPBACK = "127.0.0.1"


class Address(click.ParamType[tuple[str, int]]):
    """PORT, on this machine only, or HOST:PORT."""

    name = "address"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        host, colon, port = str(value).rpartition(":")
        if not (port.isascii() and port.isdigit()) or int(port) > 65_535 or (colon and not host):
            self.fail(
                f"{value!r} is no address; write 9464, for this machine only, or 0.0.0.0:9464.",
                param,
                ctx,
            )
        return host.strip("[]") or LOOPBACK, int(port)


class _Attempts:
    """What is counted of the attempts of one kind of job."""

    __slots__ = ("ended", "lost", "seconds", "started")

    def __init__(self) -> None:
        self.started = self.lost = 0
        self.ended: Counter[str] = Counter()
        self.seconds = Histogram()


class Source(Struct, frozen=True, kw_only=True):
    """Where the numbers come from that the worker does not report."""

    registry: Registry
    clock: Clock
    slots: int
    running: Callable[[], int]
    waiting: Callable[[], int]
    leaving: Callable[[], bool]
    paused: Callable[[], bool]
    given_back: Callable[[], int]
    spool_bytes: Callable[[], int]


class Metrics:
    """A report that counts what it hears, and passes it on."""

    def __init__(self, then: Report) -> None:
        self._then = then
        self._kinds = Kinds(_Attempts)
        self._running: dict[str, Grant] = {}
        self._troubles = 0

    def started(self, grant: Grant) -> None:
        self._kinds[grant.job.spec.kind].started += 1
        self._running[grant.job.job_id] = grant
        self._then.started(grant)

    def ended(self, job: Job, seconds: float) -> None:
        kind = self._kinds[job.spec.kind]
        kind.ended[job.state] += 1
        if self._running.pop(job.job_id, None) is not None:
            kind.seconds.add(seconds)
        self._then.ended(job, seconds)

    def lost(self, grant: Grant, why: str) -> None:
        self._running.pop(grant.job.job_id, None)
        self._kinds[grant.job.spec.kind].lost += 1
        self._then.lost(grant, why)

    def trouble(self, why: str) -> None:
        self._troubles += 1
        self._then.trouble(why)

    def paused(self, seconds: float, why: str) -> None:
        self._then.paused(seconds, why)

    def resumed(self) -> None:
        self._then.resumed()

    async def page(self, source: Source) -> str:
        """Everything as it is now. To be called on the worker's own loop."""
        parts = []
        for family in (*self._own(source), *await _of_registry(source.registry)):
            parts.append(family)
            await source.clock.sleep(0)  # jobs go between: the page of 200 kinds is long
        return "".join(parts)

    def _own(self, source: Source) -> Iterator[str]:
        ending = max(0, len(self._running) - source.running())
        yield worker_up(True)
        yield number("worker_leaving", "1 when it takes no more jobs.", int(source.leaving()))
        words = "1 when it claims no jobs, or one to see, since its machine cannot run them."
        yield number("worker_paused", words, int(source.paused()))
        words = (
            "Jobs given back that this machine could not begin, or whose work it could not keep."
        )
        yield count("worker_given_back", words, source.given_back())
        yield number("worker_slots", "Jobs that may run at the same time.", source.slots)
        yield number("worker_jobs_running", "Jobs that run now.", source.running())
        yield number("worker_jobs_ending", "Jobs whose work is over and not stored yet.", ending)
        yield number("worker_jobs_waiting", "Jobs claimed that have not begun.", source.waiting())
        words = "Output of unfinished attempts on disk."
        yield number("worker_spool_bytes", words, source.spool_bytes())
        yield count("worker_troubles", "Things in the way of the worker.", self._troubles)
        yield from self._of_attempts()

    def _of_attempts(self) -> Iterator[str]:
        kinds = sorted(self._kinds.items())
        started = [((of,), kind.started) for of, kind in kinds]
        yield counter("worker_attempts_started", "Attempts begun.", ["kind"], started)
        yield counter(
            "worker_attempts_ended",
            "Attempts over, by the state of the job then; queued: it will run again.",
            ["kind", "state"],
            [((of, state), n) for of, kind in kinds for state, n in sorted(kind.ended.items())],
        )
        lost = [((of,), kind.lost) for of, kind in kinds]
        words = "Attempts whose lease was lost before they ended."
        yield counter("worker_leases_lost", words, ["kind"], lost)
        words = "From the begin of the work of an attempt to its end."
        yield histogram(
            "worker_attempt_seconds", words, ["kind"], {(of,): kind.seconds for of, kind in kinds}
        )


def worker_up(up: bool) -> str:
    return number("worker_up", "1 when the worker's loop answered in time.", int(up))


async def _of_registry(registry: Registry) -> Iterable[str]:
    if isinstance(registry, LocalRegistry):
        return families(registry, await census_of(registry))
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await registry.now()
    except (HoldfastError, TimeoutError):
        return [store_up(False)]
    return [store_up(True)]


def folder_bytes(folder: Path) -> int:
    """How much the files in a folder hold together; they may go while we look."""
    total = 0
    for path in folder.glob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
