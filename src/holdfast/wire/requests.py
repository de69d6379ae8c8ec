"""Requests: what a client sends to a server, verb by verb, in every protocol."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from holdfast.core.access import Scope
from holdfast.core.errors import HoldfastError
from holdfast.core.event import Event
from holdfast.core.job import Progress
from holdfast.core.lifecycle import HandoffStep, Outcome
from holdfast.core.limits import BATCH_ITEMS_MAX, EVENTS_PER_PUBLISH_MAX, KEY_NAME_CHARACTERS_MAX, LABELS_MAX
from holdfast.core.outputs import Output, OutputPromise, ValidationResult
from holdfast.core.spec import Json
from holdfast.core.state import State
from holdfast.ports import JobRequest
from holdfast.wire.fields import (
    ID_PATTERN,
    Actor,
    AttemptNumber,
    Cursor,
    Duration,
    Glob,
    HeartbeatInterval,
    Id,
    KeepsTimeout,
    LeaseTime,
    Name,
    OpId,
    OutputStream,
    Owner,
    PageLimit,
    Reason,
    ShortId,
    TailLines,
    TaskToken,
    Text,
    ValidatorName,
    WaitSeconds,
    WholeNumber,
)


class Enqueue(Struct, frozen=True, kw_only=True):
    """Create jobs."""

    requests: tuple[JobRequest, ...]
    actor: Actor = ""
    reuse: bool = False


class Handoff(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Report how the handoff of a registered job to its executor proceeds."""

    job_id: Id
    step: HandoffStep
    actor: Actor = ""
    op_id: OpId = None
    handle: dict[str, str] = {}
    error: Reason | None = None


class Replay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Create a new job from a dead letter."""

    job_id: Id
    actor: Actor = ""
    op_id: OpId = None


class Claim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Claim jobs that are ready."""

    queues: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=1_000, examples=[["default"]])]
    owner: Id
    limit: Annotated[int, Meta(ge=1, le=BATCH_ITEMS_MAX)] | None = None
    op_id: OpId = None
    kinds: Annotated[tuple[Name, ...], Meta(max_length=1_000)] = ()
    lease: LeaseTime = None
    heartbeat_interval: HeartbeatInterval = None
    region: Name | None = None
    executor: Name | None = None
    wait_seconds: WaitSeconds = 0.0
    keeps_timeout: KeepsTimeout = False


class Acquire(Struct, frozen=True, kw_only=True):
    """Claim this job; with `create`, create it first unless it exists."""

    job_id: Id
    owner: Id
    op_id: OpId = None
    lease: LeaseTime = None
    heartbeat_interval: HeartbeatInterval = None
    region: Name | None = None
    executor: Name | None = None
    create: JobRequest | None = None
    keeps_timeout: KeepsTimeout = False


class Heartbeat(Struct, frozen=True, kw_only=True):
    """Renew the lease; the first heartbeat starts the job."""

    task_token: TaskToken
    lease: LeaseTime = None
    progress: Progress | None = None
    checkpoint: Json = None


class Publish(Struct, frozen=True, kw_only=True):
    """Publish events of the worker about its attempt."""

    task_token: TaskToken
    events: Annotated[tuple[Event, ...], Meta(max_length=EVENTS_PER_PUBLISH_MAX)]


class Aggregate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Report that the tasks are done and their targets are being evaluated."""

    task_token: TaskToken
    op_id: OpId = None


class AttemptCompletion(Struct, frozen=True, kw_only=True):
    """How one attempt ended."""

    task_token: TaskToken
    outcome: Outcome | None
    op_id: OpId = None
    compensated: bool | None = None
    follow_ups: tuple[JobRequest, ...] = ()


class Complete(Struct, frozen=True):
    """End attempts; a completion that cannot be decoded is an error in its place."""

    completions: tuple[AttemptCompletion | HoldfastError, ...]


class Release(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Release a job; it costs no attempt."""

    task_token: TaskToken
    op_id: OpId = None
    reason: Reason | None = None
    delay: Duration | None = None
    undelivered: bool = False


class Cancel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cancel a job: ask its owner to stop, or (`hard`) end the job now."""

    job_id: Id
    actor: Actor = ""
    op_id: OpId = None
    reason: Reason | None = None
    hard: bool = False


class ReportValidation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Report that a validation is under way, how far it is, or (`trouble`) why the outputs cannot be
    read."""

    job_id: Id
    actor: ValidatorName = ""
    version: WholeNumber | None = None
    done: WholeNumber = 0
    total: WholeNumber = 0
    trouble: Reason | None = None


class CompleteValidation(Struct, frozen=True, kw_only=True):
    """Complete a validation with its verdict, or with an operator's decision in its place."""

    job_id: Id
    actor: ValidatorName = ""
    op_id: OpId = None
    found: ValidationResult = ValidationResult()
    evidence: tuple[Output, ...] = ()
    version: WholeNumber | None = None
    override: State | None = None
    reason: Reason | None = None


class ListOutputs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """List the promised outputs and whether they exist, page by page."""

    job_id: Id
    missing: bool = False
    after: Cursor = None
    limit: PageLimit = None


class Validate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Validate the outputs of a job now."""

    job_id: Id
    actor: Actor = ""
    force: Annotated[bool, Meta(description="Also when it is not due for validation.")] = False


class Resume(Struct, frozen=True, kw_only=True):
    """Create a job for the outputs an ended job lacks; without `promise`, as the server sees them."""

    job_id: Id
    actor: Actor = ""
    op_id: OpId = None
    promise: OutputPromise | None = None
    dry_run: bool = False
    again: bool = False


class StoreManifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Store a list of outputs whose paths are derived from their inputs, one JSON document per line."""

    lines: tuple[str, ...]


class Status(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read jobs by their ids."""

    job_ids: Annotated[tuple[Id, ...], Meta(max_length=BATCH_ITEMS_MAX)]


class ListFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs a listing contains; an empty filter selects all."""

    queue: Name | None = None
    kind: Name | None = None
    name: Text | None = None
    short_id: ShortId | None = None
    states: tuple[State, ...] = ()
    owner: Owner | None = None
    labels: dict[Text, Text] = {}
    arguments: Annotated[
        dict[Text, Text],
        Meta(
            max_length=LABELS_MAX,
            description="Arguments of functions, as text: `7` is the number and the text. All must be there."
            " Needs the right to read the data of jobs.",
        ),
    ] = {}


class ListJobs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """List jobs in the order of their creation, page by page."""

    which: ListFilter = ListFilter()
    after: Cursor = None
    limit: PageLimit = None
    newest: bool = False


class Counts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Count jobs by state."""

    queue: Name | None = None


class JobById(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job, by its id."""

    job_id: Id


class Announce(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tell that a worker is there, and what it serves."""

    name: Id
    instance: Annotated[Id, Meta(description="An id of the worker's process, new at every start.")]
    queues: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=1_000, examples=[["default"]])]
    kinds: Annotated[tuple[Name, ...], Meta(max_length=1_000)] = ()
    executors: Annotated[tuple[Name, ...], Meta(max_length=100)] = ()
    slots: WholeNumber = 1
    busy: WholeNumber = 0
    thread_kinds: Annotated[
        tuple[Name, ...],
        Meta(
            max_length=1_000, description="Kinds of which at most `thread_slots` jobs run at the same time."
        ),
    ] = ()
    thread_slots: WholeNumber = 0
    thread_busy: WholeNumber = 0
    region: Name | None = None
    host: Text = ""
    pid: WholeNumber = 0
    app: Text | None = None
    version: Text = ""
    paused: bool = False
    leaving: bool = False
    stopped: bool = False
    started_at: Annotated[
        Annotated[datetime, Meta(tz=True)] | None,
        Meta(description="As the response to the first announcement says it."),
    ] = None


class Workers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """List the workers that have announced themselves in the last day."""

    queue: Name | None = None


class History(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read the events that the registry has written about a job."""

    job_id: Id
    after: Cursor = None
    limit: PageLimit = None


class Logs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read the events of a job, with all of its output or a part of it."""

    job_id: Id
    after: Cursor = None
    limit: PageLimit = None
    without_output: bool = False
    tail: TailLines = None
    since: datetime | None = None
    attempt: AttemptNumber = None
    stream: OutputStream = None


class Events(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read the events of all jobs."""

    after: Cursor = None
    limit: PageLimit = None


class Watch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Follow the events of a job, or of all jobs."""

    job_id: Id | None = None
    after: Cursor = None


class Locks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read who holds a lock."""

    key: Id


class Changes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Wait until something may have changed since `mark`."""

    mark: Annotated[str, Meta(max_length=200)] | None = None
    seconds: WaitSeconds = 0.0
    claim: Claim | None = None
    job_id: Id | None = None


class Record(Struct, frozen=True, kw_only=True):
    """Record events from outside of holdfast."""

    events: tuple[Event, ...]


class Expire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Expire overdue leases."""

    limit: PageLimit = None


class Prune(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Delete jobs that ended long ago."""

    older_than: Duration
    output_older_than: Duration | None = None
    dry_run: bool = False


class Empty(Struct, frozen=True, forbid_unknown_fields=True):
    """A request without fields."""


class CreateKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Create a key."""

    name: Annotated[str, Meta(pattern=ID_PATTERN, max_length=KEY_NAME_CHARACTERS_MAX)]
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=len(Scope))]
    queues: Annotated[tuple[Glob, ...], Meta(max_length=64)] = ()
    regions: Annotated[tuple[Name, ...], Meta(max_length=64)] = ()
    life: Duration | None = None
    actor: Actor = ""
    op_id: OpId = None


class RevokeKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Revoke a key."""

    key_id: Annotated[str, Meta(pattern=r"^[0-9a-f]{12}$")]
    actor: Actor = ""
