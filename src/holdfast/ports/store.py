"""The store port: where jobs live, and how they are chosen, decided on, listed and read."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from holdfast.core.access import Key, Principal
from holdfast.core.event import Event
from holdfast.core.job import Job, Resource
from holdfast.core.lifecycle import Change, Refusal
from holdfast.core.state import State


class One(Struct, frozen=True, gc=False):
    """This job, whether it exists or not. `lock` is the lock a job made here will name; `fresh`
    says that the id was made just now, so that nobody has to look whether it exists."""

    job_id: str
    lock: str | None = None
    fresh: bool = False


class Ready(Struct, frozen=True, gc=False, kw_only=True):
    """Up to `limit` claimable jobs, queue by queue, each in ready order: (priority, ready_at, enqueue order).

    When a `job_claimed` event already carries `op_id`, only those of its jobs that are still leased
    under it come, perhaps none: a repeated claim meets its own grants again, never new ones. `kinds` are
    those of `claim_kind`: a command that needs a holdfast worker is not found by a claim for plain ones.
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
Decide: TypeAlias = Callable[..., Decision]
"""(job, now, resource): see `Store.transact`. For a job that is not there, a store that forgets jobs adds
the highest token a forgotten one may have had."""


class Work(Struct, frozen=True, gc=False):
    """Some jobs, and the pure function that decides on each."""

    selection: Selection
    decide: Decide


class Filter(Struct, frozen=True, kw_only=True):
    """Which jobs a listing shows; empty means all. With a `viewer`, only those it may know of
    (`core.visibility`): no other leaves a trace on a page."""

    queue: str | None = None
    kind: str | None = None
    states: tuple[State, ...] = ()
    owner: str | None = None
    labels: dict[str, str] = {}
    viewer: Principal | None = None


class Page(Struct, frozen=True):
    """A page of jobs in creation order, and the cursor of the next (None after the last). A page may hold
    fewer jobs than asked for, or none, and still have a next."""

    jobs: tuple[Job, ...]
    next: str | None = None


class Slice(Struct, frozen=True):
    """Some events of a log, and the cursor to read on from: also when there are none yet."""

    events: tuple[Event, ...]
    cursor: str


class HistoryPage(Struct, frozen=True):
    """Some of a job's registry events by offset, and the cursor of the next page (None after the last)."""

    events: tuple[Event, ...]
    next: str | None = None


class Census(Struct, frozen=True, kw_only=True):
    """How much there is in a store, counted without reading every job.

    `ready` has, of the queues where most jobs are queued, since when the first of them has been ready;
    `owners` and `suspected` are how many hold a lease, and how many leases missed their heartbeats, among
    the jobs that are due next; `due_at` is when the first of them is due. `retries` are the commits that
    this process decided again, since somebody else had been faster.
    """

    queues: dict[str, dict[State, int]]
    ready: dict[str, datetime]
    owners: int
    suspected: int
    due_at: datetime | None
    retries: int = 0


class Pruned(Struct, frozen=True):
    """What a pruning removed."""

    jobs: int
    events: int


Topic: TypeAlias = Literal[
    "store",
    "version",
    "schema",
    "durability",
    "sharing",
    "clock",
    "privileges",
    "pooler",
    "disk",
    "integrity",
    "jobs",
    "backup",
]
Level: TypeAlias = Literal["good", "note", "warning", "fault"]
"""Good is as it should be; a note is worth knowing; a warning is a promise that may not hold; a fault
is one that does not."""


class Finding(Struct, frozen=True):
    """One thing that is so with a store: in the user's words, as measured, and what to do about it."""

    topic: Topic
    level: Level
    words: str
    advice: str | None = None


class Store(Protocol):
    """Where jobs live. A store commits; it never decides.

    Every method may raise `Unavailable` (`applied` says whether a write may have landed) and
    `Corrupt`. Answers survive what the store says it survives: see `describe`.
    """

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        """Decide and commit each work; answer one decision per selected job, in selection order.

        Atomic per job: a change's record, events, published events, facts and resource land together
        or not at all. Works of one call are applied as if one after the other, in some order: none may
        depend on what another decides, and not all stores commit them together. What has to land with
        a change belongs into it: the jobs it has `made` exist if and only if it has landed. A store of
        single documents keeps them in the changed one until whoever comes next has made them. A call
        also names their ids (`One`), so that the store sees which are taken.
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
        appear exactly once over all pages.

        A page is bounded by `limit`, by the bytes of its jobs (one fits on every page), by how many jobs
        are looked at for it and by how much of them is read (`stores.filters`). The call costs no more
        than that however many jobs there are; only `next` says whether more may come.
        """
        ...

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        """How many jobs are in each state."""
        ...

    async def census(self, limit: int) -> Census:
        """Jobs by queue and state, and what becomes of them. `ready` names at most `limit` queues. It
        takes no longer for many jobs than for few; a store of documents reads them all."""
        ...

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        """Each job's registry events (transitions and control facts), by offset."""
        ...

    async def history(self, job_id: str, *, after: str | None, limit: int) -> HistoryPage:
        """A page of what `histories` has of one job, bounded by `limit` and by bytes (`stores.filters`); one
        event fits on every page."""
        ...

    async def published(self, job_id: str, token: int, *, first: int) -> list[int]:
        """The sequences from `first` on of events that the worker with this token published, rising: only
        the next ones, if there are many, and none if there are no more."""
        ...

    async def log(
        self, job_id: str, *, after: str | None, limit: int, output: bool = True
    ) -> Slice:
        """The job's whole log in commit order: registry, worker, fact and external events; without
        `output`, all but the worker's."""
        ...

    async def feed(self, *, after: str | None, limit: int) -> Slice:
        """Everybody's log in commit order. No committed event is passed over; in a store without
        transactions one may come twice, with the same `event_id`."""
        ...

    async def tail(self) -> str:
        """A cursor for `feed` that passes over what is old: everything committed after the call comes
        behind it, and possibly a little of what was before."""
        ...

    async def record(self, events: Sequence[Event]) -> int:
        """Append events with ids of the caller's own; known ids are ignored. Answers how many were new."""
        ...

    async def resource(self, key: str) -> Resource:
        """The resource lock as it is; token 0 when it was never taken."""
        ...

    async def keys(self) -> list[Key]:
        """Every API key that was ever made, the oldest first. None is ever forgotten."""
        ...

    async def put_key(self, key: Key) -> None:
        """Keep this key; in the place of the one with its `key_id`, if there is one."""
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

    def mark(self, *, ready: bool = False) -> int:
        """A mark that changes when something may have been committed; `ready`, something that may have
        made a job claimable. Take it before reading."""
        ...

    async def wait(self, mark: int, timeout: float, *, ready: bool = False) -> None:  # noqa: ASYNC109
        """Return when the mark has changed, at the latest after `timeout` seconds. Only a hint: jobs also
        become ready because time passes."""
        ...

    def describe(self) -> str:
        """One line for people: what this is and what it survives."""
        ...

    async def examine(self) -> list[Finding]:
        """What this store guarantees here and what it does not, by looking. It writes nothing, and
        raises nothing that it can say as a finding."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Joinable(Protocol):
    """A store that can write as part of a transaction of the caller's own."""

    async def transact_within(
        self, connection: object, works: Sequence[Work]
    ) -> list[list[Decision]]:
        """As `transact`, in the transaction that `connection` is in: it all happens if and only if its
        owner commits. A failure here does not end that transaction."""
        ...


class Backup(Protocol):
    """A store that can be copied while it is in use."""

    async def backup(self, target: str) -> None:
        """Write a consistent copy to `target`."""
        ...
