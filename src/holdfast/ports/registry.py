"""The registry port: the verbs, implemented by a store in this process or by a server."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from holdfast.core.access import Key, Scope
from holdfast.core.errors import HoldfastError
from holdfast.core.event import Event
from holdfast.core.job import Job, Progress, ResourceLock
from holdfast.core.lifecycle import HandoffStep, Outcome
from holdfast.core.outputs import Output, OutputPromise, ValidationResult
from holdfast.core.spec import Json, Spec
from holdfast.core.state import State
from holdfast.core.workers import QueueInfo, WorkerInfo
from holdfast.ports.store import EventPage, Finding, HistoryPage, JobFilter, JobPage, PruneResult


class JobRequest(Struct, frozen=True, gc=False, kw_only=True):
    """One job to enqueue. `request_id` makes it idempotent in its queue; `job_id` names it instead.
    With `found`, all promised outputs exist already: the job is created as succeeded. `traceparent` is the
    span it comes from, in the form of the W3C; it contains the `trace_id`."""

    spec: Spec
    request_id: str | None = None
    job_id: str | None = None
    register: bool = False
    submitted_by: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    traceparent: str | None = None
    found: ValidationResult | None = None


class EnqueuedJobs(list[Job]):
    """Jobs, one for each request. `existed` are the ids of those that an earlier request had made. A request
    that was sent again because its first response was lost counts as a later one."""

    existed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, jobs: Iterable[Job], existed: Iterable[str]) -> "EnqueuedJobs":
        found = cls(jobs)
        found.existed = frozenset(existed)
        return found


class Grant(Struct, frozen=True, gc=False, kw_only=True):
    """A lease as its owner holds it. `lease_seconds` counts from before the claim was sent. `task_token` is
    the proof that a server requires; without a server it is None."""

    job: Job
    fencing_token: int
    attempt: int
    lease_seconds: float
    task_token: str | None = None

    @property
    def job_id(self) -> str:
        return self.job.job_id


class Completion(Struct, frozen=True, gc=False):
    """How one attempt ended: the input of `complete`.

    `follow_ups` are jobs to create with it. They exist if and only if it was accepted as a success: created
    in the same commit or, in a store that writes one document at a time, from the contents of that
    document. They have no request_id and no job_id: their ids are derived from the job's id, its token and
    their place. They have the `correlation_id` and `trace_id` of the job unless they have their own, the
    worker is their submitter, and the job's last event lists them. With any other outcome they are ignored.
    """

    grant: Grant
    outcome: Outcome
    op_id: str | None = None
    compensated: bool | None = None
    follow_ups: tuple[JobRequest, ...] = ()


class Announced(Struct, frozen=True, kw_only=True):
    """A worker as it is kept now, and the live workers that have its name in other processes."""

    worker: WorkerInfo
    namesakes: tuple[WorkerInfo, ...] = ()


class Mismatch(Struct, frozen=True):
    """A job whose record and log disagree."""

    job_id: str
    details: tuple[str, ...]


class Verification(Struct, frozen=True, kw_only=True):
    """The result of a verification of the whole store."""

    jobs: int
    transitions: int
    events: int
    control: int
    mismatches: tuple[Mismatch, ...]

    @property
    def equal(self) -> bool:
        return not self.mismatches and self.transitions == self.events


class Registry(Protocol):
    """The verbs. Every mutation may carry an `op_id`: a repeat of it returns the original result.

    Errors are those of `holdfast.core.errors`; each carries the job's version when a job is known.
    """

    @property
    def calls_at_once(self) -> int:
        """How many calls a caller with many jobs makes at the same time: as many as share a commit, or as
        are fair to the other clients of a server."""
        ...

    def take_unvalidated(self) -> list[str]:
        """Return the jobs with promised outputs that ended without success in this process since the last
        call and have not been validated, so that a validator need not read every ended job. At most the
        last 10,000; empty for a server, which validates them itself."""
        ...

    def describe(self) -> str:
        """One line for people: what this is and what it survives."""
        ...

    async def enqueue(self, request: JobRequest, *, actor: str, connection: object = None) -> Job: ...

    async def enqueue_many(
        self, requests: Sequence[JobRequest], *, actor: str, connection: object = None
    ) -> EnqueuedJobs:
        """Create jobs. With a `connection` to the store's own PostgreSQL database they are part of its
        transaction."""
        ...

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
        create: JobRequest | None = None,
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
        follow_ups: Sequence[JobRequest] = (),
    ) -> Job:
        """End the attempt, as a `Completion` says. Raise `Invalid`, which names the first wrong follow-up,
        and then nothing is written.

        The same completion under the same token returns the original result without an `op_id` as well;
        another outcome under that token is `Fenced`."""
        ...

    async def complete_many(self, completions: Sequence[Completion]) -> list[Job | HoldfastError]:
        """End many attempts at once; return for each, in order, what `complete` would return or raise.

        An error is a value here: a completion that is refused (`Fenced`, `Invalid`, …) or that the store
        did not write (`Unavailable`) leaves the others as they are, and nothing is raised. Check every
        result.
        """
        ...

    async def release(
        self,
        grant: Grant,
        *,
        op_id: str | None = None,
        reason: str | None = None,
        delay: timedelta | None = None,
        undelivered: bool = False,
    ) -> Job:
        """Give the job back, at no cost. A repeat with the same arguments returns the original result."""
        ...

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

    async def report_validation(
        self,
        job_id: str,
        *,
        actor: str,
        version: int | None = None,
        done: int = 0,
        total: int = 0,
        trouble: str | None = None,
    ) -> Job:
        """Report that the actor validates the outputs of a job, and its progress: for a minute other actors
        get a `Conflict`. Or report why they could not be seen (`trouble`), and so when to try again."""
        ...

    async def complete_validation(
        self,
        job_id: str,
        found: ValidationResult = ...,
        *,
        actor: str,
        op_id: str | None = None,
        evidence: Sequence[Output] = (),
        version: int | None = None,
        override: State | None = None,
        reason: str | None = None,
    ) -> Job:
        """Complete the validation of a job's promised outputs: the verdict, or an operator's `override`
        with its reason. Raise `Conflict` when another validation was completed since `version`."""
        ...

    async def resume(
        self,
        job_id: str,
        outputs: OutputPromise,
        *,
        actor: str,
        resume_id: str | None = None,
        again: bool = False,
    ) -> Job:
        """Create a job for what an ended job lacks: the same work that promises only `outputs`, linked both
        ways. Unless `again`, return an earlier resume that has not ended, or has succeeded while the job
        did not change. One `resume_id` creates at most one job. Raise `Conflict` when nothing is known to
        be missing."""
        ...

    async def replay(self, job_id: str, *, actor: str, replay_id: str | None = None) -> Job: ...

    async def replays(self, job_ids: Sequence[str]) -> list[list[str]]:
        """Return for each job the ids of the jobs that replay it, the first one first; some may have been
        pruned. None for a job that does not exist."""
        ...

    async def record(self, events: Sequence[Event]) -> int: ...

    async def status(self, job_id: str) -> Job: ...

    async def status_many(self, job_ids: Sequence[str]) -> list[Job | None]: ...

    async def list_jobs(
        self,
        which: JobFilter = ...,
        *,
        after: str | None = None,
        limit: int = 100,
        newest: bool = False,
    ) -> JobPage: ...

    async def counts(self, queue: str | None = None) -> dict[State, int]: ...

    async def locks(self, key: str) -> ResourceLock:
        """Return the resource lock; its token is 0 when it was never taken."""
        ...

    async def history(self, job_id: str) -> list[Event]:
        """Return all transitions and control events of the job, by offset."""
        ...

    async def history_page(self, job_id: str, *, after: str | None = None, limit: int = 1000) -> HistoryPage:
        """Return a page of what `history` returns, of at most 1 MiB; one event always fits."""
        ...

    async def logs(
        self,
        job_id: str,
        *,
        after: str | None = None,
        limit: int = 1000,
        output: bool = True,
        tail: int | None = None,
        since: datetime | None = None,
        attempt: int | None = None,
        stream: str | None = None,
    ) -> EventPage:
        """Return a page of the job's log. `attempt` and `stream` leave out what is of others; `tail` (lines
        of output) and `since` say where to begin when there is no cursor yet."""
        ...

    async def events(self, *, after: str | None = None, limit: int = 1000) -> EventPage: ...

    async def tail(self) -> str:
        """Return a cursor for `events` and `watch` that skips old events: everything committed after this
        call comes after it."""
        ...

    def watch(
        self, job_id: str | None = None, *, after: str | None = None
    ) -> AsyncGenerator[Event, None]: ...

    async def wait(self, job_id: str, *, timeout: float | None = None) -> Job: ...  # noqa: ASYNC109

    async def why(self, job_id: str) -> str: ...

    async def announce(
        self,
        name: str,
        *,
        instance: str,
        queues: Sequence[str],
        kinds: Sequence[str] = (),
        executors: Sequence[str] = (),
        slots: int = 1,
        busy: int = 0,
        thread_kinds: Sequence[str] = (),
        thread_slots: int = 0,
        thread_busy: int = 0,
        region: str | None = None,
        host: str = "",
        pid: int = 0,
        app: str | None = None,
        version: str = "",
        paused: bool = False,
        leaving: bool = False,
        stopped: bool = False,
        started_at: datetime | None = None,
    ) -> Announced:
        """Tell that a worker is there, and what it serves; again and again, and with `stopped` at its end.
        `started_at` is what the first response said. It is presence, no event: it expires."""
        ...

    async def workers(self, queue: str | None = None) -> list[WorkerInfo]:
        """Return the workers that have announced themselves in the last day, the last seen first; only
        those that serve the `queue`, if one is named."""
        ...

    async def queues(self) -> list[QueueInfo]:
        """Return every queue that has jobs or a known worker, by name. Delayed jobs are counted up to a
        limit."""
        ...

    async def verify(self) -> Verification: ...

    async def doctor(self) -> list[Finding]: ...

    async def prune(
        self,
        *,
        older_than: timedelta,
        output_older_than: timedelta | None = None,
        dry_run: bool = False,
    ) -> PruneResult: ...

    async def create_key(
        self,
        *,
        name: str,
        scopes: Sequence[Scope],
        queues: Sequence[str] = ("*",),
        regions: Sequence[str] = (),
        life: timedelta | None = None,
        actor: str,
        op_id: str | None = None,
    ) -> tuple[Key, str]:
        """Create an API key; return what is stored of it, and its text, which is returned only here. Raise
        `Exhausted` when two keys of this name are active. A server checks `core.access.may_grant` first. A
        repeat of the op_id by the same actor is a `Conflict` that names the key."""
        ...

    async def list_keys(self) -> list[Key]:
        """Return every key, including revoked and expired ones, the oldest first."""
        ...

    async def revoke_key(self, key_id: str, *, actor: str) -> Key:
        """Revoke a key. A revoked key stays as it is."""
        ...

    async def now(self) -> datetime: ...

    def change_mark(self, *, ready: bool = False) -> int:
        """Return a mark for `changes`. Take it before reading, so that no change is missed."""
        ...

    async def changes(
        self,
        *,
        since: int | None = None,
        timeout: float,  # noqa: ASYNC109
        ready: bool = False,
    ) -> None:
        """Return when something may have changed since the mark, at the latest after `timeout`. With
        `ready` (for a mark that was taken so), only for what may have made a job claimable."""
        ...

    async def close(self) -> None: ...
