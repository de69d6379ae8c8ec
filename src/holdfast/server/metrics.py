"""Metrics: what this server has counted, and what is in its store, as Prometheus reads it."""

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime

from holdfast.core.catalogue import EventType
from holdfast.core.state import ENDED, State
from holdfast.ports import Census
from holdfast.registry.counted import OTHER, Counted, Kind
from holdfast.server.context import Context
from holdfast.server.exposition import count, counter, gauge, histogram, number
from holdfast.server.health import Readiness
from holdfast.server.requests import Requests

QUEUES_MAX = 200
CENSUS_SECONDS = 2.0
_STATES = tuple(State)
_BADLY = (EventType.FAILED, EventType.TIMED_OUT, EventType.DEAD_LETTERED)
_REFUSALS = (
    "invalid", "notfound", "conflict", "fenced", "exhausted", "denied", "unavailable", "corrupt",
)  # fmt: skip
_OF_KIND: tuple[tuple[str, str, Callable[[Kind], int]], ...] = (
    ("claims", "Jobs claimed.", lambda kind: kind.events[EventType.CLAIMED]),
    ("claim_conflicts", "Claims of one very job that another had.", lambda kind: kind.conflicts),
    ("lease_renewals", "Leases renewed.", lambda kind: kind.renewals),
    ("lease_expiries", "Leases that ran out before their attempt ended.", lambda kind: kind.lapsed),
    ("retries", "Attempts that failed or lapsed and are tried again.", lambda kind: kind.retries),
    (
        "failures",
        "Attempts that failed or lapsed, whether tried again or not.",
        lambda kind: kind.retries + sum(kind.events[event] for event in _BADLY),
    ),
    (
        "dead_letters",
        "Jobs that became dead letters.",
        lambda kind: kind.events[EventType.DEAD_LETTERED],
    ),
    ("deadline_hits", "Jobs that ended because their deadline passed.", lambda kind: kind.late),
)


class Metrics:
    """Makes the page. Whoever asks while it is being made gets the one that is made."""

    def __init__(self, context: Context, readiness: Readiness) -> None:
        self._context = context
        self._readiness = readiness
        self._making: asyncio.Task[bytes] | None = None

    async def page(self) -> bytes:
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make())
        return await asyncio.shield(self._making)

    async def _make(self) -> bytes:
        census, now = await self._census()
        ready = not await self._readiness.obstacles()
        parts: list[str] = []
        for part in self._parts(census, now, ready=ready):
            parts.append(part)
            await self._context.clock.sleep(0)  # others go between: the page of 200 kinds is long
        parts.append(await asyncio.to_thread(_of_process))
        return "".join(parts).encode()

    async def _census(self) -> tuple[Census | None, datetime]:
        """What is in the store, and its time; None, and ours, when it does not say so soon."""
        registry = self._context.registry
        try:
            async with asyncio.timeout(CENSUS_SECONDS):
                return await registry.census(QUEUES_MAX), await registry.now()
        except Exception:
            return None, self._context.clock.now()

    def _parts(self, census: Census | None, now: datetime, *, ready: bool) -> Iterator[str]:
        context = self._context
        counted = context.registry.counted
        yield number("ready", "1 when this server can do its work: see /readyz.", int(ready))
        yield number("store_up", "1 when the store answered this very request.", int(bool(census)))
        yield from _of_kinds(counted.kinds)
        yield from _of_events(counted)
        tally = context.registry.tally
        yield counter(
            "refusals",
            "Requests the registry refused, by error.",
            ["error"],
            [((error,), tally[error]) for error in _REFUSALS],
        )
        yield from _of_line(counted)
        if census is not None:
            yield from _of_queues(census, now)
            yield from _of_leases(census, now)
        yield from _of_requests(context.requests)
        yield from self._of_readers(now)

    def _of_readers(self, now: datetime) -> Iterator[str]:
        context = self._context
        streams = [((of,), n) for of, n in context.readers.open().items()]
        yield gauge("streams", "Streams open now: of the feed, of single jobs.", ["of"], streams)
        yield number("claims_waiting", "Clients that wait for a job.", context.lanes.waiting())
        words = "Age of the oldest event that a reader of the feed is being sent."
        yield number("feed_lag_seconds", words, context.readers.lag(now))


def _of_kinds(kinds: dict[str, Kind]) -> Iterator[str]:
    known = sorted(kinds.items())
    for name, words, value in _OF_KIND:
        yield counter(name, words, ["kind"], [((of,), value(kind)) for of, kind in known])
    yield counter(
        "job_events",
        "Transitions and control facts of jobs.",
        ["kind", "type"],
        [((of, type_), n) for of, kind in known for type_, n in kind.events.items()],
    )
    yield counter(
        "validations",
        "Verdicts on promised outputs.",
        ["kind", "verdict"],
        [((of, state), n) for of, kind in known for state, n in kind.verdicts.items()],
    )
    for name, words, of in (
        ("job_wait_seconds", "From when a job was ready to its claim.", "wait"),
        ("job_seconds", "From the claim of an attempt to its end.", "run"),
        ("job_latency_seconds", "From when a job was made to its end.", "latency"),
    ):
        yield histogram(name, words, ["kind"], {(k,): getattr(kind, of) for k, kind in known})


def _of_events(counted: Counted) -> Iterator[str]:
    events = Counter(counted.others)
    for kind in counted.kinds.values():
        events.update(kind.events)
    words = "Events written to the log by this server, by type; those of others as external."
    yield counter("events", words, ["type"], [((name,), n) for name, n in sorted(events.items())])


def _of_line(counted: Counted) -> Iterator[str]:
    words = "Works that shared a commit of the line."
    yield histogram("commit_works", words, (), {(): counted.works})
    yield histogram("commit_seconds", "Time of a commit in the store.", (), {(): counted.commits})
    yield count("commit_failures", "Commits that failed, or were not answered.", counted.failed)


def _of_queues(census: Census, now: datetime) -> Iterator[str]:
    """The queues with most jobs to do by name, all others together."""
    first = heapq.nsmallest(QUEUES_MAX, census.queues.items(), key=_rank)
    shown = {queue for queue, _ in first}
    jobs: dict[str, Counter[State]] = {}
    waits: dict[str, float] = {}
    for queue, states in census.queues.items():
        name = queue if queue in shown else OTHER
        jobs.setdefault(name, Counter()).update(states)
        if queue in census.ready:
            wait = (now - census.ready[queue]).total_seconds()
            waits[name] = max(wait, waits.get(name, 0.0))
        elif State.QUEUED not in states:
            waits.setdefault(name, 0.0)
    yield gauge(
        "queue_jobs",
        "Jobs in the store.",
        ["queue", "state"],
        [((queue, state), n[state]) for queue, n in sorted(jobs.items()) for state in _STATES],
    )
    yield gauge(
        "queue_oldest_seconds",
        "How long the job has been ready that waits longest in the queue.",
        ["queue"],
        [((queue,), round(wait, 3)) for queue, wait in sorted(waits.items())],
    )


def _rank(queue: tuple[str, dict[State, int]]) -> tuple[int, int, str]:
    name, states = queue
    ended = sum(n for state, n in states.items() if state in ENDED)
    return ended - sum(states.values()), -ended, name


def _of_leases(census: Census, now: datetime) -> Iterator[str]:
    overdue = (now - (census.due_at or now)).total_seconds()
    yield number("workers", "Owners that hold a lease now, by any server.", census.owners)
    yield number("leases_suspected", "Leases that missed their heartbeats.", census.suspected)
    yield number(
        "overdue_seconds",
        "How long ago somebody should have looked at the job that is due first.",
        round(max(0.0, overdue), 3),
    )
    words = "Commits decided again, since another process had been faster."
    yield count("store_retries", words, census.retries)


def _of_requests(requests: Requests) -> Iterator[str]:
    labels = ["method", "protocol"]
    yield counter(
        "requests", "Requests answered.", [*labels, "code"], sorted(requests.answers.items())
    )
    yield histogram("request_seconds", "How long requests took.", labels, requests.times)


def _of_process() -> str:
    """The memory, time and files of this process. In a thread: it reads files."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    return generate_latest(registry).decode()
