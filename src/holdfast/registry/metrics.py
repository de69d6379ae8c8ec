"""The metrics of a registry: what this process has committed through it, and what is in its store.

Every process that opens a store itself tells them in these words, be it a server or a worker. A worker
behind a server tells none of them, since its server does: a sum over all processes counts nothing twice.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime

from holdfast.core.catalogue import EventType
from holdfast.core.state import ENDED, State
from holdfast.ports import Census
from holdfast.registry.counted import OTHER, Counted, Kind
from holdfast.registry.exposition import count, counter, gauge, histogram, number
from holdfast.registry.local import LocalRegistry

QUEUES_MAX = 200
ANSWER_SECONDS = 2.0
_STATES = tuple(State)
_BADLY = (EventType.FAILED, EventType.TIMED_OUT, EventType.DEAD_LETTERED)
_ERRORS = (
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


async def census_of(registry: LocalRegistry) -> tuple[Census, datetime] | None:
    """What is in the store, and its time; None when it does not say so soon."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await registry.census(QUEUES_MAX), await registry.now()
    except Exception:
        return None


def families(registry: LocalRegistry, found: tuple[Census, datetime] | None) -> Iterator[str]:
    """Every metric of this registry, one after the other: of 200 kinds the page is long."""
    counted = registry.counted
    yield store_up(found is not None)
    yield from _of_kinds(counted)
    words = "Events written to the log by this process, by type; those of others as external."
    events = sorted(counted.events.items())
    yield counter("events", words, ["type"], [((name,), n) for name, n in events])
    refusals = [((error,), counted.refusals[error]) for error in _ERRORS]
    yield counter("refusals", "Requests the registry refused, by error.", ["error"], refusals)
    yield from _of_line(counted)
    if found is not None:
        yield from _of_queues(*found)
        yield from _of_leases(*found)


def store_up(answered: bool) -> str:
    words = "1 when the store of this process (--store) answered this very request."
    return number("store_up", words, int(answered))


def _of_kinds(counted: Counted) -> Iterator[str]:
    known = sorted(counted.kinds.items())
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
    yield number("workers", "Owners that hold a lease now, by any process.", census.owners)
    yield number("leases_suspected", "Leases that missed their heartbeats.", census.suspected)
    yield number(
        "overdue_seconds",
        "How long ago somebody should have looked at the job that is due first.",
        round(max(0.0, overdue), 3),
    )
    words = "Commits decided again, since another process had been faster."
    yield count("store_retries", words, census.retries)
