"""The store port: where jobs are stored, and how they are selected, decided on, listed and read."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from holdfast.core.access import Key, Principal
from holdfast.core.event import Event
from holdfast.core.job import Job, ResourceLock
from holdfast.core.lifecycle import Change, Command, Refusal
from holdfast.core.state import State
from holdfast.core.workers import WorkerInfo


class ById(Struct, frozen=True, gc=False):
    """The job of this id, whether it exists or not. `lock` is the lock of a job that is created here;
    `fresh` says that the id was generated just now, so that the store need not check whether it exists."""

    job_id: str
    lock: str | None = None
    fresh: bool = False


class Ready(Struct, frozen=True, gc=False, kw_only=True):
    """Up to `limit` claimable jobs, queue by queue, each in ready order: (priority, ready_at, enqueue
    order).

    When a `job_claimed` event already carries `op_id`, only those of its jobs that are still leased under
    it are selected, perhaps none: a repeated claim returns its own grants, never new ones. `kinds` are
    those of `claim_kind`: a claim for plain commands does not find one that needs a holdfast worker.
    """

    queues: tuple[str, ...]
    op_id: str
    limit: int = 1
    kinds: tuple[str, ...] = ()
    region: str | None = None
    executor: str | None = None

    @property
    def candidate_key(self) -> tuple[object, ...]:
        """The key that two selections share when they select from the same jobs."""
        return (self.queues, self.kinds, self.region, self.executor)


class Due(Struct, frozen=True):
    """Up to `limit` jobs whose `due_at` has come, the longest overdue first."""

    limit: int


Selection: TypeAlias = ById | Ready | Due
Decision: TypeAlias = Change | Refusal
Decide: TypeAlias = Callable[..., Decision]
"""(job, now, resource): see `Store.transact`. For a job that does not exist, a store that prunes jobs adds
the highest token that a pruned one may have had."""


class Work(Struct, frozen=True, gc=False):
    """A selection of jobs, and the pure function that decides on each. When that is `core.lifecycle.decide`
    on a `command`, a store may decide on one of several jobs that are alike (`core.lifecycle.pattern`)."""

    selection: Selection
    decide: Decide
    command: Command | None = None


class JobFilter(Struct, frozen=True, kw_only=True):
    """Which jobs a listing shows; empty means all. With a `viewer`, only those it may see
    (`core.visibility`): others do not influence a page. `arguments` are those of functions, as text
    (`core.arguments`); a job whose data the viewer may not read has none.

    With a `short_id`, those whose id it fits (`core.short_ids`): they are found by the index of ids, which
    looks at so many generated ids at most, and reads so many jobs.
    """

    queue: str | None = None
    kind: str | None = None
    name: str | None = None
    short_id: str | None = None
    states: tuple[State, ...] = ()
    owner: str | None = None
    labels: dict[str, str] = {}
    arguments: dict[str, str] = {}
    viewer: Principal | None = None


class JobPage(Struct, frozen=True):
    """A page of jobs in creation order, and the cursor of the next (None after the last). A page may hold
    fewer jobs than asked for, or none, and still have a next."""

    jobs: tuple[Job, ...]
    next: str | None = None


class EventPage(Struct, frozen=True):
    """Some events of a log, and the cursor of the next page, even when there are no events yet."""

    events: tuple[Event, ...]
    cursor: str


class HistoryPage(Struct, frozen=True):
    """Some of a job's registry events by offset, and the cursor of the next page (None after the last)."""

    events: tuple[Event, ...]
    next: str | None = None


class Census(Struct, frozen=True, kw_only=True):
    """How much there is in a store, counted without reading every job.

    `ready` has, for the queues with most queued jobs, since when the first of these has been ready;
    `owners` and `suspected` are the number of lease holders, and of leases that missed their heartbeats,
    among the jobs that are due next; `due_at` is when the first of them is due. `retries` are the commits
    that this process decided again because another process had changed the job.
    """

    queues: dict[str, dict[State, int]]
    ready: dict[str, datetime]
    owners: int
    suspected: int
    due_at: datetime | None
    retries: int = 0


class PruneResult(Struct, frozen=True):
    """How many jobs and events a prune removed."""

    jobs: int
    events: int


class RebuildResult(Struct, frozen=True, kw_only=True):
    """What a rebuild found: how many jobs there are, the records that were `missing` or could not be read,
    those that were `different` from what their log says, and in `lists` how many rows of the queue, the
    claims, the alarms, the counts and the locks were missing or wrong."""

    jobs: int
    missing: int
    different: int
    lists: int

    @property
    def equal(self) -> bool:
        return not (self.missing or self.different or self.lists)


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
"""Good is as it should be; a note is worth knowing; a warning is a guarantee that may not hold; a fault is
one that does not hold."""


class Finding(Struct, frozen=True):
    """One observation of `doctor` about a store, in words for users, and what to do about it."""

    topic: Topic
    level: Level
    words: str
    advice: str | None = None


class Store(Protocol):
    """Where jobs are stored. A store commits; it never decides.

    Every method may raise `Unavailable` (`applied` says whether a write may have landed) and
    `Corrupt`. What was committed survives what `describe` says it survives.
    """

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        """Decide and commit each work; return one decision per selected job, in selection order.

        Atomic per job: a change's record, events, published events, facts and resource land together
        or not at all. Works of one call are applied as if one after the other, in some order: none may
        depend on what another decides, and not all stores commit them together. What has to land with
        a change belongs into it: the jobs it has `made` exist if and only if it has landed. A store of
        single documents keeps them in the changed one until the next call has created them. A call also
        selects their ids (`ById`), so that the store sees which of them exist.
        `decide` is called with the job as it is (None when absent), the store's time and the job's
        resource lock; it may be called again after a conflict, and only its last decision counts.
        """
        ...

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        """Return the jobs as last committed, in the order of `job_ids`; None where there is none."""
        ...

    async def list_jobs(
        self, which: JobFilter, *, after: str | None, limit: int, newest: bool = False
    ) -> JobPage:
        """Return a page in creation order, or (`newest`) in the reverse order. Jobs that do not change
        appear exactly once over all pages.

        A page is bounded by `limit`, by the bytes of its jobs (one fits on every page), by how many jobs
        are examined for it and by how many bytes of them are read (`stores.filters`). The call costs no
        more than that however many jobs there are; only `next` says whether more may come.
        """
        ...

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        """Return how many jobs are in each state."""
        ...

    async def count_ready(
        self, queue: str, *, ahead_of: Job | None = None, delayed: bool = False, limit: int
    ) -> int:
        """Return how many jobs of the queue are ready; with `ahead_of`, only those that come before it in
        ready order; with `delayed`, in place of these, those that are not due yet. It counts no further
        than `limit`, and costs no more than that, except in a store of documents. Locks do not matter."""
        ...

    async def census(self, limit: int) -> Census:
        """Return the counts by queue and state, and the leases. `ready` has at most `limit` queues. The
        call takes no longer for many jobs than for few, except in a store of documents, which reads them
        all."""
        ...

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        """Return each job's registry events (transitions and control events), by offset."""
        ...

    async def facts(self, job_ids: Sequence[str], event_type: str) -> list[list[Event]]:
        """Return the facts of this type about each job, in the order they were recorded."""
        ...

    async def history(self, job_id: str, *, after: str | None, limit: int) -> HistoryPage:
        """Return a page of what `histories` has of one job, bounded by `limit` and by bytes
        (`stores.filters`); one event fits on every page."""
        ...

    async def published(self, job_id: str, token: int, *, first: int) -> list[int]:
        """Return the sequences from `first` on of events that the worker with this token published, rising:
        only the next ones, if there are many; empty if there are no more."""
        ...

    async def published_before(self, job_id: str, before: tuple[int, int], *, limit: int) -> list[Event]:
        """Return what workers have published about the job, the newest first: before this fencing token and
        sequence, from at most `limit` of their batches; empty if there is no more. Bounded by bytes
        (`stores.filters`); one batch always fits."""
        ...

    def log_cursor(self, log_id: int) -> str:
        """Return the cursor of `logs` after which the event with this number in the log is the next."""
        ...

    async def logs(self, job_id: str, *, after: str | None, limit: int, output: bool = True) -> EventPage:
        """Return a page of the job's log in commit order: registry, worker, fact and external events;
        without `output`, all but the worker's."""
        ...

    async def events(self, *, after: str | None, limit: int) -> EventPage:
        """Return a page of the log of all jobs in commit order. No committed event is skipped; in a store
        without transactions one may come twice, with the same `event_id`."""
        ...

    async def tail(self) -> str:
        """Return a cursor for `events` that skips old events: everything committed after the call comes
        after it, and possibly a few events from before."""
        ...

    async def record(self, events: Sequence[Event]) -> int:
        """Append events with ids of the caller's own, ignoring known ids; return how many were new."""
        ...

    async def locks(self, key: str) -> ResourceLock:
        """Return the resource lock; its token is 0 when it was never taken."""
        ...

    async def list_keys(self) -> list[Key]:
        """Return every API key that was ever created, the oldest first. Keys are never removed."""
        ...

    async def put_key(self, key: Key) -> None:
        """Store this key; it replaces the one with its `key_id`, if there is one."""
        ...

    async def list_workers(self) -> list[WorkerInfo]:
        """Return every worker that was put and not forgotten, the last seen first."""
        ...

    async def put_worker(self, worker: WorkerInfo, *, forget_before: datetime) -> None:
        """Store this worker; it replaces the one with its name and `instance`, if there is one. Forget those
        that were last seen before the instant. It is no change that waiting callers are woken for."""
        ...

    async def prune(self, *, ended_before: datetime, output_before: datetime, limit: int) -> PruneResult:
        """Remove whole jobs (with their events) that ended before the one instant, and worker events
        received before the other. Never part of a version chain."""
        ...

    async def prunable(self, *, ended_before: datetime, output_before: datetime) -> PruneResult:
        """Return what `prune` would remove: how many jobs, and how many stored pieces of others' output."""
        ...

    async def now(self) -> datetime:
        """Return the store's time: the only one that decides."""
        ...

    async def secret(self) -> bytes:
        """Return the key that seals task tokens; made once, stored with the data."""
        ...

    def change_mark(self, *, ready: bool = False) -> int:
        """Return a mark that changes when something may have been committed; with `ready`, something that
        may have made a job claimable. Take it before reading."""
        ...

    async def wait(self, mark: int, timeout: float, *, ready: bool = False) -> None:  # noqa: ASYNC109
        """Return when the mark has changed, at the latest after `timeout` seconds. Only a hint: jobs also
        become ready because time passes."""
        ...

    def describe(self) -> str:
        """Return one line for people: what this store is and what it survives."""
        ...

    async def doctor(self) -> list[Finding]:
        """Return what this store guarantees here and what it does not, as observed. It writes nothing, and
        an error is a finding wherever possible."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Joinable(Protocol):
    """A store that can write as part of a transaction of the caller's own."""

    async def transact_within(self, connection: object, works: Sequence[Work]) -> list[list[Decision]]:
        """As `transact`, in the transaction of `connection`: the changes happen if and only if its owner
        commits. A failure here does not end that transaction."""
        ...


@runtime_checkable
class Prompt(Protocol):
    """A store that can make a small commit in the thread of its caller."""

    def transact_at_once(self, works: Sequence[Work]) -> list[list[Decision]] | None:
        """As `transact`; return None, with nothing written, when the caller would have to wait for others."""
        ...


class Backup(Protocol):
    """A store that can be copied while it is in use."""

    async def backup(self, target: str) -> None:
        """Write a consistent copy to `target`."""
        ...


class Rebuildable(Protocol):
    """A store that can make all of its records again from its log."""

    async def rebuild(self, *, check: bool = False) -> RebuildResult:
        """Make every record again, and all that claims and listings find jobs by, in one transaction; with
        `check`, undo it and only return what it found.

        A record that says the same as its log keeps its liveness data. In all others it starts anew, after
        the last sequence that the owner has published. No token is ever lowered. Raise `Corrupt`, and change
        nothing, when a job's log is incomplete.
        """
        ...
