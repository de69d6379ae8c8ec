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
from holdfast.registry.counters import CountersByKind, Histogram
from holdfast.registry.local import LocalRegistry
from holdfast.registry.metrics import CENSUS_TIMEOUT_SECONDS, metric_families, read_census, store_up
from holdfast.registry.prometheus_text import counter, histogram, plain_counter, plain_gauge
from holdfast.worker.completion_reporter import WorkerObserver

LOOPBACK = "127.0.0.1"


class MetricsAddress(click.ParamType[tuple[str, int]]):
    """PORT, on this machine only, or HOST:PORT."""

    name = "address"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        host, colon, port = str(value).rpartition(":")
        if not (port.isascii() and port.isdigit()) or int(port) > 65_535 or (colon and not host):
            self.fail(
                f"{value!r} is not an address; write 9464, for this machine only, or 0.0.0.0:9464.",
                param,
                ctx,
            )
        return host.strip("[]") or LOOPBACK, int(port)


class _Attempts:
    """The counts of the attempts of one kind of job."""

    __slots__ = ("ended", "lost", "seconds", "started")

    def __init__(self) -> None:
        self.started = self.lost = 0
        self.ended: Counter[str] = Counter()
        self.seconds = Histogram()


class WorkerGauges(Struct, frozen=True, kw_only=True):
    """Where the numbers are read that the worker does not report."""

    registry: Registry
    clock: Clock
    slots: int
    running: Callable[[], int]
    waiting: Callable[[], int]
    leaving: Callable[[], bool]
    paused: Callable[[], bool]
    given_back: Callable[[], int]
    spool_bytes: Callable[[], int]


class WorkerMetrics:
    """An observer that counts, and passes everything on to the next one."""

    def __init__(self, observer: WorkerObserver) -> None:
        self._observer = observer
        self._kinds = CountersByKind(_Attempts)
        self._running: dict[str, Grant] = {}
        self._troubles = 0

    def started(self, grant: Grant) -> None:
        self._kinds[grant.job.spec.kind].started += 1
        self._running[grant.job.job_id] = grant
        self._observer.started(grant)

    def ended(self, job: Job, seconds: float) -> None:
        kind = self._kinds[job.spec.kind]
        kind.ended[job.state] += 1
        if self._running.pop(job.job_id, None) is not None:
            kind.seconds.add(seconds)
        self._observer.ended(job, seconds)

    def lost(self, grant: Grant, why: str) -> None:
        self._running.pop(grant.job.job_id, None)
        self._kinds[grant.job.spec.kind].lost += 1
        self._observer.lost(grant, why)

    def trouble(self, why: str) -> None:
        self._troubles += 1
        self._observer.trouble(why)

    def paused(self, seconds: float, why: str) -> None:
        self._observer.paused(seconds, why)

    def resumed(self) -> None:
        self._observer.resumed()

    async def page(self, source: WorkerGauges) -> str:
        """Return all metrics as they are now. To be called on the worker's own loop."""
        parts = []
        for family in (*self._own(source), *await _of_registry(source.registry)):
            parts.append(family)
            await source.clock.sleep(0)  # jobs go between: the page of 200 kinds is long
        return "".join(parts)

    def _own(self, source: WorkerGauges) -> Iterator[str]:
        ending = max(0, len(self._running) - source.running())
        yield worker_up(True)
        yield plain_gauge("worker_leaving", "1 when it takes no more jobs.", int(source.leaving()))
        words = "1 when it claims no jobs, or one as a test, because its machine cannot run them."
        yield plain_gauge("worker_paused", words, int(source.paused()))
        words = "Jobs given back that this machine could not begin, or whose work it could not keep."
        yield plain_counter("worker_given_back", words, source.given_back())
        yield plain_gauge("worker_slots", "Jobs that may run at the same time.", source.slots)
        yield plain_gauge("worker_jobs_running", "Jobs that run now.", source.running())
        yield plain_gauge("worker_jobs_ending", "Jobs whose work is over and not stored yet.", ending)
        yield plain_gauge("worker_jobs_waiting", "Jobs claimed that have not begun.", source.waiting())
        words = "Output of unfinished attempts on disk."
        yield plain_gauge("worker_spool_bytes", words, source.spool_bytes())
        yield plain_counter("worker_troubles", "Problems that the worker met.", self._troubles)
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
    return plain_gauge("worker_up", "1 when the worker's loop answered in time.", int(up))


async def _of_registry(registry: Registry) -> Iterable[str]:
    if isinstance(registry, LocalRegistry):
        return metric_families(registry, await read_census(registry))
    try:
        async with asyncio.timeout(CENSUS_TIMEOUT_SECONDS):
            await registry.now()
    except (HoldfastError, TimeoutError):
        return [store_up(False)]
    return [store_up(True)]


def folder_bytes(folder: Path) -> int:
    """Return the total size of the files in a folder; files may be removed meanwhile."""
    total = 0
    for path in folder.glob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
