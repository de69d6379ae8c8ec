"""What a worker counts, for Prometheus: plain numbers in the worker, made into text when asked."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from holdfast.cli.worker_lines import failed_again
from holdfast.core.catalogue import EventType
from holdfast.core.errors import HoldfastError, Invalid
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.ports import Grant, Registry
from holdfast.registry.counted import SECONDS as BOUNDS
from holdfast.worker.endings import Report

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.core import Metric

LOOPBACK = "127.0.0.1"
ANSWER_SECONDS = 3.0
COUNTS_SECONDS = 2.0
_BADLY = (State.FAILED, State.TIMEOUT, State.DEAD_LETTERED)
_REFUSALS = (
    "invalid", "notfound", "conflict", "fenced", "exhausted", "denied", "unavailable", "corrupt",
)  # fmt: skip


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


class _Kind:
    """What is counted of one kind of job."""

    __slots__ = ("again", "buckets", "ended", "lost", "seconds", "started")

    def __init__(self) -> None:
        self.started = self.lost = self.again = 0
        self.ended: dict[State, int] = dict.fromkeys(State, 0)
        self.seconds = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)


_OF_KIND: tuple[tuple[str, str, Callable[[_Kind], int]], ...] = (
    ("jobs_started", "Attempts begun.", lambda kind: kind.started),
    ("retries", "Attempts that failed and will be tried again.", lambda kind: kind.again),
    (
        "failures",
        "Attempts that failed, whether tried again or not.",
        lambda kind: kind.again + sum(kind.ended[state] for state in _BADLY),
    ),
    (
        "dead_letters",
        "Jobs that became dead letters here.",
        lambda kind: kind.ended[State.DEAD_LETTERED],
    ),
    ("leases_lost", "Attempts whose lease was lost before they ended.", lambda kind: kind.lost),
)


class Source(Struct, frozen=True, kw_only=True):
    """Where the numbers come from that the worker does not report."""

    registry: Registry
    tally: Mapping[str, int]
    queues: tuple[str, ...]
    slots: int
    running: Callable[[], int]
    waiting: Callable[[], int]
    leaving: Callable[[], bool]
    spool_bytes: Callable[[], int]


class Metrics:
    """A report that counts what it hears, and passes it on."""

    def __init__(self, then: Report) -> None:
        self._then = then
        self._kinds: dict[str, _Kind] = {}
        self._running: dict[str, Grant] = {}
        self._troubles = 0

    def started(self, grant: Grant) -> None:
        job = grant.job
        kind = self._kinds.get(job.spec.kind) or self._kind(job)
        kind.started += 1
        self._running[job.job_id] = grant
        self._then.started(grant)

    def ended(self, job: Job, seconds: float) -> None:
        kind = self._kinds.get(job.spec.kind) or self._kind(job)
        kind.ended[job.state] += 1
        grant = self._running.pop(job.job_id, None)
        if grant is not None:
            kind.seconds += seconds
            kind.buckets[bisect_left(BOUNDS, seconds)] += 1
            if job.state is State.QUEUED:
                kind.again += failed_again(job, grant)
        self._then.ended(job, seconds)

    def lost(self, grant: Grant, why: str) -> None:
        self._running.pop(grant.job.job_id, None)
        kind = self._kinds.get(grant.job.spec.kind) or self._kind(grant.job)
        kind.lost += 1
        self._then.lost(grant, why)

    def trouble(self, why: str) -> None:
        self._troubles += 1
        self._then.trouble(why)

    def _kind(self, job: Job) -> _Kind:
        return self._kinds.setdefault(job.spec.kind, _Kind())

    async def collect(self, source: Source) -> "list[Metric]":
        """Everything as it is now. To be called on the worker's own loop."""
        depths = await _depths(source)
        return [
            *self._per_kind(),
            *_of_registry(source.tally),
            *self._of_worker(source),
            *_of_queues(depths),
        ]

    def _per_kind(self) -> "Iterator[Metric]":
        from prometheus_client.core import HistogramMetricFamily

        kinds = sorted(self._kinds.items())
        for name, words, number in _OF_KIND:
            samples = [([of], number(kind)) for of, kind in kinds]
            yield _counter(name, words, ["kind"], samples)
        yield _counter(
            "attempts_ended",
            "Attempts over, by the state of the job then; queued: it will run again.",
            ["kind", "state"],
            [([name, s], n) for name, kind in kinds for s, n in kind.ended.items() if n],
        )
        histogram = HistogramMetricFamily(
            "holdfast_job_seconds",
            "Seconds from the begin of an attempt to its end.",
            labels=["kind"],
        )
        for name, kind in kinds:
            histogram.add_metric([name], _cumulated(kind.buckets), kind.seconds)
        yield histogram

    def _of_worker(self, source: Source) -> "Iterator[Metric]":
        unstored = max(0, len(self._running) - source.running())
        yield _gauge("jobs_running", "Jobs that run now.", source.running())
        yield _gauge("jobs_ending", "Jobs whose work is over and not stored yet.", unstored)
        yield _gauge("jobs_waiting", "Jobs claimed that have not begun.", source.waiting())
        yield _gauge("slots", "Jobs that may run at the same time.", source.slots)
        yield _gauge("worker_leaving", "1 when it takes no more jobs.", int(source.leaving()))
        yield _gauge("spool_bytes", "Output of unfinished attempts on disk.", source.spool_bytes())
        yield _counter("troubles", "Things in the way of the worker.", [], [([], self._troubles)])


async def _depths(source: Source) -> dict[str, dict[State, int]] | None:
    """How many jobs each queue has in each state; None when the store does not say."""
    try:
        async with asyncio.timeout(COUNTS_SECONDS):
            return {queue: await source.registry.counts(queue) for queue in source.queues}
    except (HoldfastError, TimeoutError):
        return None


def _of_queues(depths: dict[str, dict[State, int]] | None) -> "Iterator[Metric]":
    from prometheus_client.core import GaugeMetricFamily

    yield _gauge(
        "store_up", "1 when the store answered this very request.", int(depths is not None)
    )
    jobs = GaugeMetricFamily(
        "holdfast_queue_jobs", "Jobs in the store, by queue and state.", labels=["queue", "state"]
    )
    for queue, states in (depths or {}).items():
        for state in State:
            jobs.add_metric([queue, state], states.get(state, 0))
    yield jobs


def _of_registry(tally: Mapping[str, int]) -> "Iterator[Metric]":
    for name, key, words in (
        ("claims", EventType.CLAIMED, "Jobs claimed."),
        ("claim_conflicts", "claim_conflicts", "Claims of one very job that another had."),
        ("lease_renewals", "lease_renewals", "Leases renewed."),
        ("lease_expiries", "lease_expiries", "Leases of any worker that this one found lapsed."),
    ):
        yield _counter(name, words, [], [([], tally.get(key, 0))])
    yield _counter(
        "refusals",
        "Requests the registry refused, by error.",
        ["error"],
        [([error], tally.get(error, 0)) for error in _REFUSALS],
    )
    yield _counter(
        "events",
        "Events written to the registry's log by this worker, by type.",
        ["type"],
        [([kind], tally[kind]) for kind in EventType if tally.get(kind)],
    )


Samples = Iterable[tuple[list[str], float]]


def _counter(name: str, words: str, labels: list[str], samples: Samples) -> "Metric":
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(f"holdfast_{name}", words, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _gauge(name: str, words: str, number: float) -> "Metric":
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(f"holdfast_{name}", words, value=number)


def _cumulated(buckets: list[int]) -> list[tuple[str, float]]:
    total = 0
    answer: list[tuple[str, float]] = []
    for bound, number in zip((*map(str, BOUNDS), "+Inf"), buckets, strict=True):
        total += number
        answer.append((bound, total))
    return answer


def folder_bytes(folder: Path) -> int:
    """How much the files in a folder hold together; they may go while we look."""
    total = 0
    for path in folder.glob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


class Server:
    """Answers over HTTP from threads of its own; the numbers are read on the worker's loop."""

    def __init__(self, metrics: Metrics, source: Source) -> None:
        self._metrics = metrics
        self._source = source
        self._server: WSGIServer | None = None

    def open(self, host: str, port: int) -> str:
        """Start to answer, and say where. To be called on the worker's loop."""
        from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

        self._loop = asyncio.get_running_loop()
        registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        registry.register(self)
        shown = f"[{host}]" if ":" in host else host
        try:
            self._server, _ = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            why = error.strerror or str(error)
            raise Invalid(f"Metrics cannot be served at {shown}:{port}: {why}.") from error
        return f"http://{shown}:{self._server.server_port}/metrics"

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def describe(self) -> "list[Metric]":
        return []

    def collect(self) -> "Iterator[Metric]":
        """What the worker's loop answers; a loop that is stuck, or gone, shows as a worker not up."""
        asking = self._metrics.collect(self._source)
        try:
            asked = asyncio.run_coroutine_threadsafe(asking, self._loop)
            found = asked.result(ANSWER_SECONDS)
        except (TimeoutError, CancelledError):
            asked.cancel()
            found = []
        except RuntimeError:  # the loop is closed
            asking.close()
            found = []
        yield _gauge("worker_up", "1 when the worker's loop answered in time.", int(bool(found)))
        yield from found
