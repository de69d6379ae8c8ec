"""The ports: what the registry asks of the world, and what it offers. The docstrings are the promise."""

from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

from msgspec import Struct

from holdfast.core.event import Event
from holdfast.core.job import Job, Progress, Resource
from holdfast.core.lifecycle import Change, HandoffStep, Outcome, Refusal
from holdfast.core.spec import Json, Spec
from holdfast.core.state import State


class Clock(Protocol):
    """Time and waiting."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    """Names nobody else has, and chance."""

    def new(self) -> str:
        """A fresh id; ids made later sort later."""
        ...

    def secret(self) -> bytes:
        """32 bytes nobody can guess."""
        ...

    def chance(self) -> float:
        """A draw from [0, 1)."""
        ...


# --- the store -------------------------------------------------------------------------------------


class One(Struct, frozen=True, gc=False):
    """This job, whether it exists or not. `lock` is the lock a job made here will name; `fresh`
    says that the id was made just now, so that nobody has to look whether it exists."""

    job_id: str
    lock: str | None = None
    fresh: bool = False


class Ready(Struct, frozen=True, gc=False, kw_only=True):
    """Up to `limit` claimable jobs, queue by queue, each in ready order: (priority, ready_at, enqueue order).

    When a `job_claimed` event already carries `op_id`, only those of its jobs that are still leased
    under it come, perhaps none: a repeated claim meets its own grants again, never new ones.
    """

    queues: tuple[str, ...]
    op_id: str
    limit: int = 1
    kinds: tuple[str, ...] = ()
    region: str | None = None
    executor: str | None = None

    @property
    def lane(self) -> tuple[object, ...]:
        """What two selections must share to choose from the same row of jobs."""
        return (self.queues, self.kinds, self.region, self.executor)


class Due(Struct, frozen=True):
    """Up to `limit` jobs whose `due_at` has come, the longest overdue first."""

    limit: int


Selection: TypeAlias = One | Ready | Due
Decision: TypeAlias = Change | Refusal
Decide: TypeAlias = Callable[[Job | None, datetime, Resource | None], Decision]


class Work(Struct, frozen=True, gc=False):
    """Some jobs, and the pure function that decides on each."""

    selection: Selection
    decide: Decide


class Filter(Struct, frozen=True, kw_only=True):
    """Which jobs a listing shows; empty means all."""

    queue: str | None = None
    kind: str | None = None
    states: tuple[State, ...] = ()
    owner: str | None = None
    labels: dict[str, str] = {}


class Page(Struct, frozen=True):
    """A page of jobs in creation order, and the cursor of the next (None after the last)."""

    jobs: tuple[Job, ...]
    next: str | None


class Slice(Struct, frozen=True):
    """Some events of a log, and the cursor to read on from: also when there are none yet."""

    events: tuple[Event, ...]
    cursor: str


class Pruned(Struct, frozen=True):
    """What a pruning removed."""

    jobs: int
    events: int


class Store(Protocol):
    """Where jobs live. A store commits; it never decides.

    Every method may raise `Unavailable` (`applied` says whether a write may have landed) and
    `Corrupt`. Answers survive what the store says it survives: see `describe`.
    """

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        """Decide and commit each work; answer one decision per selected job, in selection order.

        Atomic per job: a change's record, events, published events, facts and resource land together
        or not at all. Works of one call are applied as if one after the other, in some order.
        `decide` is called with the job as it is (None when absent), the store's time and the job's
        resource lock; it may be called again after a conflict, and only its last answer counts.
        """
        ...

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        """The jobs as last committed, in the order asked for."""
        ...

    async def list_jobs(
        self, which: Filter, *, after: str | None, limit: int, newest: bool = False
    ) -> Page:
        """A page in creation order, or (`newest`) in the reverse of it. Jobs that stay as they are
        appear exactly once over all pages."""
        ...

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        """How many jobs are in each state."""
        ...

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        """Each job's registry events (transitions and control facts), by offset."""
        ...

    async def log(
        self, job_id: str, *, after: str | None, limit: int, output: bool = True
    ) -> Slice:
        """The job's whole log in commit order: registry, worker, fact and external events; without
        `output`, all but the worker's."""
        ...

    async def feed(self, *, after: str | None, limit: int) -> Slice:
        """Everybody's log in commit order. No committed event is passed over; after a crash of its
        writer one may come twice, with the same `event_id`."""
        ...

    async def record(self, events: Sequence[Event]) -> int:
        """Append events with ids of the caller's own; known ids are ignored. Answers how many were new."""
        ...

    async def resource(self, key: str) -> Resource:
        """The resource lock as it is; token 0 when it was never taken."""
        ...

    async def prune(self, *, ended_before: datetime, output_before: datetime, limit: int) -> Pruned:
        """Remove whole jobs (with their events) that ended before the one instant, and worker events
        received before the other. Never part of a version chain."""
        ...

    async def now(self) -> datetime:
        """The store's time: the only one that decides."""
        ...

    async def secret(self) -> bytes:
        """The key that task tokens are sealed with; made once, kept with the data."""
        ...

    def mark(self) -> int:
        """A mark that changes when something may have been committed. Take it before reading."""
        ...

    async def wait(self, mark: int, timeout: float) -> None:  # noqa: ASYNC109
        """Return when `mark` has changed, at the latest after `timeout` seconds. Only a hint."""
        ...

    def describe(self) -> str:
        """One line for people: what this is and what it survives."""
        ...

    async def close(self) -> None: ...


class Backup(Protocol):
    """A store that can be copied while it is in use."""

    async def backup(self, target: str) -> None:
        """Write a consistent copy to `target`."""
        ...


# --- single objects --------------------------------------------------------------------------------


class VersionToken(Struct, frozen=True):
    """Whatever the provider calls the version of an object. Compare it; never look inside."""

    value: str


class VersionedStore(Protocol):
    """Bytes under keys, changed by compare-and-swap. Provider errors that mean none of the below
    propagate as `Unavailable`."""

    async def get(self, key: str) -> tuple[bytes, VersionToken] | None:
        """The value and its version, or None when there is none."""
        ...

    async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
        """Overwrite if the version still is `version`; False when it is not."""
        ...

    async def create_if_absent(self, key: str, value: bytes) -> bool:
        """Create; False when the key exists."""
        ...

    async def list_keys(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[str]:
        """Keys under the prefix, sorted, after the key `after`."""
        ...

    async def delete(self, key: str, version: VersionToken) -> bool:
        """Delete if the version still is `version`; False when it is not. True when it is gone."""
        ...


# --- the registry ----------------------------------------------------------------------------------


class Request(Struct, frozen=True, gc=False, kw_only=True):
    """One job to enqueue. `request_id` makes it idempotent in its queue; `job_id` names it instead."""

    spec: Spec
    request_id: str | None = None
    job_id: str | None = None
    register: bool = False
    submitted_by: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None


class Grant(Struct, frozen=True, gc=False, kw_only=True):
    """A lease in somebody's hand. `lease_seconds` counts from before the claim was sent."""

    job: Job
    fencing_token: int
    attempt: int
    lease_seconds: float

    @property
    def job_id(self) -> str:
        return self.job.job_id


class Mismatch(Struct, frozen=True):
    """A job whose record and log disagree."""

    job_id: str
    details: tuple[str, ...]


class Verification(Struct, frozen=True, kw_only=True):
    """What a verification of the whole store found."""

    jobs: int
    transitions: int
    events: int
    control: int
    mismatches: tuple[Mismatch, ...]

    @property
    def equal(self) -> bool:
        return not self.mismatches and self.transitions == self.events


class Registry(Protocol):
    """The verbs. Every mutation may carry an `op_id`: repeat it and you get the original answer.

    Errors are those of `holdfast.core.errors`; each carries the job's version when a job is known.
    """

    async def enqueue(self, request: Request, *, actor: str) -> Job: ...

    async def enqueue_many(self, requests: Sequence[Request], *, actor: str) -> list[Job]: ...

    async def handoff(
        self,
        job_id: str,
        step: HandoffStep,
        *,
        actor: str,
        op_id: str | None = None,
        handle: dict[str, str] | None = None,
        error: str | None = None,
    ) -> Job: ...

    async def claim(
        self,
        queues: Sequence[str],
        *,
        owner: str,
        limit: int = 1,
        op_id: str | None = None,
        kinds: Sequence[str] = (),
        lease: timedelta | None = None,
        heartbeat_interval: timedelta | None = None,
        region: str | None = None,
        executor: str | None = None,
    ) -> list[Grant]: ...

    async def acquire(
        self,
        job_id: str,
        *,
        owner: str,
        op_id: str | None = None,
        lease: timedelta | None = None,
        heartbeat_interval: timedelta | None = None,
        region: str | None = None,
        executor: str | None = None,
        create: Request | None = None,
    ) -> Grant: ...

    async def heartbeat(
        self,
        grant: Grant,
        *,
        lease: timedelta | None = None,
        progress: Progress | None = None,
        checkpoint: Json = None,
    ) -> Job: ...

    async def publish(self, grant: Grant, events: Sequence[Event]) -> Job: ...

    async def aggregate(self, grant: Grant, *, op_id: str | None = None) -> Job: ...

    async def complete(
        self,
        grant: Grant,
        outcome: Outcome,
        *,
        op_id: str | None = None,
        compensated: bool | None = None,
    ) -> Job: ...

    async def release(
        self,
        grant: Grant,
        *,
        op_id: str | None = None,
        reason: str | None = None,
        delay: timedelta | None = None,
        undelivered: bool = False,
    ) -> Job: ...

    async def cancel(
        self,
        job_id: str,
        *,
        actor: str,
        op_id: str | None = None,
        reason: str | None = None,
        hard: bool = False,
    ) -> Job: ...

    async def expire(self, *, limit: int = 100) -> int: ...

    async def replay(self, job_id: str, *, actor: str, replay_id: str | None = None) -> Job: ...

    async def record(self, events: Sequence[Event]) -> int: ...

    async def get(self, job_id: str) -> Job: ...

    async def get_many(self, job_ids: Sequence[str]) -> list[Job | None]: ...

    async def list_jobs(
        self,
        which: Filter = ...,
        *,
        after: str | None = None,
        limit: int = 100,
        newest: bool = False,
    ) -> Page: ...

    async def counts(self, queue: str | None = None) -> dict[State, int]: ...

    async def history(self, job_id: str) -> list[Event]: ...

    async def log(
        self, job_id: str, *, after: str | None = None, limit: int = 1000, output: bool = True
    ) -> Slice: ...

    async def feed(self, *, after: str | None = None, limit: int = 1000) -> Slice: ...

    def watch(
        self, job_id: str | None = None, *, after: str | None = None
    ) -> AsyncGenerator[Event, None]: ...

    async def wait(self, job_id: str, *, timeout: float | None = None) -> Job: ...  # noqa: ASYNC109

    async def why(self, job_id: str) -> str: ...

    async def verify(self) -> Verification: ...

    async def prune(
        self, *, older_than: timedelta, output_older_than: timedelta | None = None
    ) -> Pruned: ...

    async def now(self) -> datetime: ...

    def mark(self) -> int:
        """A mark to wait from: take it before reading, so that nothing comes between."""
        ...

    async def changed(self, *, since: int | None = None, timeout: float) -> None:  # noqa: ASYNC109
        """Return when something may have changed since the mark, at the latest after `timeout`."""
        ...

    async def close(self) -> None: ...
