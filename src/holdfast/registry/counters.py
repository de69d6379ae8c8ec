"""Counters of the jobs that this process changed, by kind. `metrics` turns them into text."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, Expire
from holdfast.core.state import UNSUCCESSFUL, State

T = TypeVar("T")

KINDS_MAX = 200
OTHER = "other"
"""The kind under which all further kinds are counted, once there are `KINDS_MAX`."""

SECONDS_BOUNDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0,
)  # fmt: skip
SIZE_BOUNDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
UNCHANGED = "unchanged"
"""The verdict on a job that ended without success, whose state stays."""

_CLAIMED = EventType.CLAIMED
_VALIDATED_STATES = (State.VALIDATING, State.PARTIAL_SUCCESS)
EXPIRE_ACTOR = Expire().actor


class Histogram:
    """The number of measurements up to each bound; the last bucket has the rest."""

    __slots__ = ("bounds", "buckets", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS_BOUNDS) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, number: float) -> None:
        self.buckets[bisect_left(self.bounds, number)] += 1
        self.total += number

    def add_interval(self, begin: datetime, end: datetime) -> None:
        """Add the seconds from one instant to the other; 0 if a clock went back."""
        seconds = (end - begin).total_seconds()
        if seconds < 0:
            seconds = 0.0
        self.buckets[bisect_left(self.bounds, seconds)] += 1  # not by `add`: a call costs 0.1 us
        self.total += seconds


class CountersByKind(dict[str, T]):
    """The counters of each kind of job; once there are too many kinds, the others share one."""

    def __init__(self, make: Callable[[], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> T:
        known = name if len(self) < KINDS_MAX else OTHER
        if known not in self:
            self[known] = self._make()
        return self[known]


class KindCounters:
    """The counters of one kind of job."""

    __slots__ = (
        "conflicts", "events", "lapsed", "late", "latency", "renewals", "retries", "run", "verdicts",
        "wait",
    )  # fmt: skip

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.conflicts = self.lapsed = self.late = self.renewals = self.retries = 0
        self.wait = Histogram()
        self.run = Histogram()
        self.latency = Histogram()


class JobCounters:
    """The counters of one registry since the process began. They only grow."""

    def __init__(self) -> None:
        self.kinds = CountersByKind(KindCounters)
        self.other_events: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.commit_works = Histogram(SIZE_BOUNDS)
        self.commit_seconds = Histogram()
        self.commit_failures = 0

    @property
    def events(self) -> Counter[str]:
        """All events that were written, by type."""
        return sum((kind.events for kind in self.kinds.values()), self.other_events.copy())

    def count_changes(self, changes: Iterable[Change]) -> None:
        """Count what was committed: 0.3 us for a new job, 0.7 for a claim, 1.2 for an ending."""
        for change in changes:
            if events := change.sample_events:
                self._count_transitions(change, events)
            if change.published:
                self.other_events.update([event.event_type for event in change.published])
            if change.facts:
                self.count_facts(change.facts)
            if change.made:
                self.count_changes(change.made)

    def _count_transitions(self, change: Change, events: Sequence[Event]) -> None:
        after, before = change.after, change.before
        kind = self.kinds[after.spec.kind]
        by_type = kind.events
        for event in events:
            by_type[event.event_type] += 1
        lease = after.lease
        if before is not None and before.state in _VALIDATED_STATES:
            kind.verdicts[after.state] += 1
        elif before is not None and before.state in UNSUCCESSFUL:
            kind.verdicts[UNCHANGED] += 1
        if before is not None and before.lease is not None and _is_over(before, after):
            kind.run.add_interval(before.lease.granted_at, events[-1].occurred_at)
            kind.lapsed += events[0].actor == EXPIRE_ACTOR and after.crashes > before.crashes
            kind.retries += not after.ended and _tries(after) > _tries(before)
        if after.ended_at is not None and (before is None or before.ended_at is None):
            kind.latency.add_interval(after.created_at, after.ended_at)
            kind.late += events[-1].actor == EXPIRE_ACTOR and _is_late(after, after.ended_at)
        elif lease is not None and events[-1].event_type == _CLAIMED:
            kind.wait.add_interval(after.ready_at, lease.granted_at)

    def count_facts(self, events: Iterable[Event]) -> None:
        self.other_events.update([event.event_type for event in events])

    def count_commit(self, works: int, seconds: float) -> None:
        self.commit_works.add(works)
        self.commit_seconds.add(seconds)


def _is_over(before: Job, after: Job) -> bool:
    """Whether the attempt that held the lease has ended: also when another has begun since."""
    return after.lease is None or after.fencing_token != before.fencing_token


def _tries(job: Job) -> int:
    return job.failures + job.crashes


def _is_late(job: Job, ended_at: datetime) -> bool:
    return job.deadline_at is not None and job.deadline_at <= ended_at
