"""The metrics of a registry: what this process committed through it, and what is in its store.

Every process that opens a store itself exposes them under these names, be it a server or a worker. A worker
behind a server exposes none of them, since its server does: a sum over all processes counts nothing twice.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime

from holdfast.core.catalogue import EventType
from holdfast.core.state import ENDED, State
from holdfast.ports import Census
from holdfast.registry.counters import OTHER, JobCounters, KindCounters
from holdfast.registry.local import LocalRegistry
from holdfast.registry.prometheus_text import counter, gauge, histogram, plain_counter, plain_gauge

QUEUES_MAX = 200
CENSUS_TIMEOUT_SECONDS = 2.0
_STATES = tuple(State)
_FAILURES = (EventType.FAILED, EventType.TIMED_OUT, EventType.DEAD_LETTERED)
_ERRORS = (
    "invalid", "notfound", "conflict", "fenced", "exhausted", "denied", "unavailable", "corrupt",
)  # fmt: skip
_KIND_COUNTERS: tuple[tuple[str, str, Callable[[KindCounters], int]], ...] = (
    ("claims", "Jobs claimed.", lambda kind: kind.events[EventType.CLAIMED]),
    ("claim_conflicts", "Acquires of a job that another owner held.", lambda kind: kind.conflicts),
    ("lease_renewals", "Leases renewed.", lambda kind: kind.renewals),
    ("lease_expiries", "Leases that ran out before their attempt ended.", lambda kind: kind.lapsed),
    ("retries", "Attempts that failed or lapsed and are tried again.", lambda kind: kind.retries),
    (
        "failures",
        "Attempts that failed or lapsed, whether tried again or not.",
        lambda kind: kind.retries + sum(kind.events[event] for event in _FAILURES),
    ),
    (
        "dead_letters",
        "Jobs that became dead letters.",
        lambda kind: kind.events[EventType.DEAD_LETTERED],
    ),
    ("deadline_hits", "Jobs that ended because their deadline passed.", lambda kind: kind.late),
)


async def read_census(registry: LocalRegistry) -> tuple[Census, datetime] | None:
    """Return the census of the store, and its time; None when it does not respond in time."""
    try:
        async with asyncio.timeout(CENSUS_TIMEOUT_SECONDS):
            return await registry.census(QUEUES_MAX), await registry.now()
    except Exception:
        return None


def metric_families(registry: LocalRegistry, census: tuple[Census, datetime] | None) -> Iterator[str]:
    """Yield every metric of this registry, one by one, since 200 kinds make a long page."""
    counted = registry.counters
    yield store_up(census is not None)
    yield from _kind_metrics(counted)
    words = "Events written to the log by this process, by type; recorded ones as external."
    events = sorted(counted.events.items())
    yield counter("events", words, ["type"], [((name,), n) for name, n in events])
    refusals = [((error,), counted.refusals[error]) for error in _ERRORS]
    yield counter("refusals", "Requests the registry refused, by error.", ["error"], refusals)
    yield from _commit_metrics(counted)
    if census is not None:
        yield from _queue_metrics(*census)
        yield from _lease_metrics(*census)


def store_up(answered: bool) -> str:
    words = "1 when the store of this process (--store) answered this request."
    return plain_gauge("store_up", words, int(answered))


def _kind_metrics(counted: JobCounters) -> Iterator[str]:
    known = sorted(counted.kinds.items())
    for name, words, value in _KIND_COUNTERS:
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


def _commit_metrics(counted: JobCounters) -> Iterator[str]:
    words = "Works that shared a commit."
    yield histogram("commit_works", words, (), {(): counted.commit_works})
    yield histogram("commit_seconds", "Time of a commit in the store.", (), {(): counted.commit_seconds})
    yield plain_counter("commit_failures", "Commits that failed, or got no answer.", counted.commit_failures)


def _queue_metrics(census: Census, now: datetime) -> Iterator[str]:
    """The queues with most unfinished jobs by name, all others together."""
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
        "How long the oldest ready job of the queue has been ready.",
        ["queue"],
        [((queue,), round(wait, 3)) for queue, wait in sorted(waits.items())],
    )


def _rank(queue: tuple[str, dict[State, int]]) -> tuple[int, int, str]:
    name, states = queue
    ended = sum(n for state, n in states.items() if state in ENDED)
    return ended - sum(states.values()), -ended, name


def _lease_metrics(census: Census, now: datetime) -> Iterator[str]:
    overdue = (now - (census.due_at or now)).total_seconds()
    yield plain_gauge("workers", "Owners that hold a lease now, by any process.", census.owners)
    yield plain_gauge("leases_suspected", "Leases that missed their heartbeats.", census.suspected)
    yield plain_gauge(
        "overdue_seconds",
        "How long the job that is due first has been overdue for expiry.",
        round(max(0.0, overdue), 3),
    )
    words = "Commits decided again, because another process had changed the job."
    yield plain_counter("store_retries", words, census.retries)
