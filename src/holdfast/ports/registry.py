"""The registry port: the verbs, whether behind them is a store in this process or a server."""

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from holdfast.core.access import Key, Scope
from holdfast.core.errors import HoldfastError
from holdfast.core.event import Event
from holdfast.core.job import Job, Progress, Resource
from holdfast.core.lifecycle import HandoffStep, Outcome
from holdfast.core.outputs import Found, Output, Promise
from holdfast.core.spec import Json, Spec
from holdfast.core.state import State
from holdfast.ports.store import Filter, Finding, HistoryPage, Page, Pruned, Slice


class Request(Struct, frozen=True, gc=False, kw_only=True):
    """One job to enqueue. `request_id` makes it idempotent in its queue; `job_id` names it instead.
    With `found`, all that it promises is there already: it is made as a job that has succeeded.
    `traceparent` is the span it comes from, as the W3C writes it, and says the `trace_id` as well."""

    spec: Spec
    request_id: str | None = None
    job_id: str | None = None
    register: bool = False
    submitted_by: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    traceparent: str | None = None
    found: Found | None = None


class Grant(Struct, frozen=True, gc=False, kw_only=True):
    """A lease in somebody's hand. `lease_seconds` counts from before the claim was sent. `task_token` is
    the proof of it that a server wants to see; without a server there is none."""

    job: Job
    fencing_token: int
    attempt: int
    lease_seconds: float
    task_token: str | None = None

    @property
    def job_id(self) -> str:
        return self.job.job_id


class Completion(Struct, frozen=True, gc=False):
    """How one attempt ended: what `complete` is told.

    `follow_ups` are jobs to make with it. They exist if and only if it was accepted as a success: made
    in the same commit, or, where a store writes one document at a time, from what that one says. They
    have no request_id and no job_id: their ids follow from the job's id, its token and their place.
    They are tied to the job (`correlation_id`, `trace_id`) unless they say otherwise, the worker
    submits them, and the job's last event lists them. With any other outcome they are passed over.
    """

    grant: Grant
    outcome: Outcome
    op_id: str | None = None
    compensated: bool | None = None
    follow_ups: tuple[Request, ...] = ()


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

    def take_unverified(self) -> list[str]:
        """The jobs that this process has seen end without success since it was last asked, and of which
        nobody knew then which of their promised outputs are there: what a validator has to look for, so
        that it need not read every job that ever ended. The last 10,000; of a server, none: it looks."""
        ...

    def describe(self) -> str:
        """One line for people: what this is and what it survives."""
        ...

    async def enqueue(self, request: Request, *, actor: str, connection: object = None) -> Job: ...

    async def enqueue_many(
        self, requests: Sequence[Request], *, actor: str, connection: object = None
    ) -> list[Job]:
        """Make jobs. With a `connection` to the store's own PostgreSQL database they are part of the
        transaction it is in."""
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
        follow_ups: Sequence[Request] = (),
    ) -> Job:
        """End the attempt, as a `Completion` says. `Invalid` names the first follow-up that is wrong,
        and then nothing is written.

        Said again under the same token in the same words, it gets the original answer without an `op_id`
        as well; another outcome under that token is `Fenced`."""
        ...

    async def complete_many(self, completions: Sequence[Completion]) -> list[Job | HoldfastError]:
        """End many attempts at once: for each, in order, what `complete` would have given.

        That is the job, or the error that `complete` would have raised, as a value: one that is
        refused (`Fenced`, `Invalid`, …) or that the store did not write (`Unavailable`) leaves the
        others as they are, and nothing is raised. Look at every answer.
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
        """Give the job back, at no cost. Said again in the same words, it gets the original answer."""
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

    async def look(
        self,
        job_id: str,
        *,
        actor: str,
        version: int | None = None,
        done: int = 0,
        total: int = 0,
        trouble: str | None = None,
    ) -> Job:
        """Say that one is looking for the outputs of a job, and how far one is: for a minute nobody else
        does (`Conflict`). Or say why they could not be seen (`trouble`), and so when to try again."""
        ...

    async def judge(
        self,
        job_id: str,
        found: Found = ...,
        *,
        actor: str,
        op_id: str | None = None,
        evidence: Sequence[Output] = (),
        version: int | None = None,
        override: State | None = None,
        reason: str | None = None,
    ) -> Job:
        """Give the verdict on a job's promised outputs, or (`override`, with its reason) an operator's
        word in its place. `Conflict` when somebody has judged it since `version`."""
        ...

    async def resume(
        self,
        job_id: str,
        outputs: Promise,
        *,
        actor: str,
        resume_id: str | None = None,
        again: bool = False,
    ) -> Job:
        """Make a job of what an ended job lacks: the same work, with only `outputs` to promise, linked
        both ways. While one resumes it that has not ended, or has succeeded with nothing new found since,
        that one is the answer, unless `again`. One `resume_id` makes at most one. `Conflict` when nothing
        is known to be missing."""
        ...

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

    async def resource(self, key: str) -> Resource:
        """The resource lock as it is; token 0 when it was never taken."""
        ...

    async def history(self, job_id: str) -> list[Event]:
        """The job's transitions and control facts, by offset: all pages of them."""
        ...

    async def history_page(
        self, job_id: str, *, after: str | None = None, limit: int = 1000
    ) -> HistoryPage:
        """A page of them, of at most 1 MiB; one event fits always."""
        ...

    async def log(
        self, job_id: str, *, after: str | None = None, limit: int = 1000, output: bool = True
    ) -> Slice: ...

    async def feed(self, *, after: str | None = None, limit: int = 1000) -> Slice: ...

    async def tail(self) -> str:
        """A cursor for `feed` and `watch` that passes over what is old: everything committed after
        this call comes behind it."""
        ...

    def watch(
        self, job_id: str | None = None, *, after: str | None = None
    ) -> AsyncGenerator[Event, None]: ...

    async def wait(self, job_id: str, *, timeout: float | None = None) -> Job: ...  # noqa: ASYNC109

    async def why(self, job_id: str) -> str: ...

    async def verify(self) -> Verification: ...

    async def examine(self) -> list[Finding]: ...

    async def prune(
        self, *, older_than: timedelta, output_older_than: timedelta | None = None
    ) -> Pruned: ...

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
        """Make an API key: what is kept of it, and its text, which is told this once. `Exhausted` when
        two of this name count already. Whoever asks for somebody else checks `core.access.within`. A
        repeat of the op_id by the same actor is a `Conflict` that names the key."""
        ...

    async def keys(self) -> list[Key]:
        """Every key, also those that count no more, the oldest first."""
        ...

    async def revoke_key(self, key_id: str, *, actor: str) -> Key:
        """Let a key count no more. One that is revoked stays as it is."""
        ...

    async def now(self) -> datetime: ...

    def mark(self, *, ready: bool = False) -> int:
        """A mark to wait from: take it before reading, so that nothing comes between."""
        ...

    async def changed(
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
