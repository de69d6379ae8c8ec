"""Asks: what callers of a server say, verb by verb, whichever protocol they speak. The words in `Meta`
are for the page that describes them; what is too large is refused where JSON is read."""

from datetime import timedelta
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from holdfast.core.access import Scope
from holdfast.core.cursor import CURSOR_CHARACTERS_MAX
from holdfast.core.errors import HoldfastError
from holdfast.core.event import Event
from holdfast.core.job import Progress
from holdfast.core.lifecycle import HandoffStep, Outcome
from holdfast.core.limits import (
    BATCH_ITEMS_MAX,
    EVENTS_PER_PUBLISH_MAX,
    ID_CHARACTERS_MAX,
    KEY_NAME_CHARACTERS_MAX,
    LABEL_CHARACTERS_MAX,
    MESSAGE_CHARACTERS_MAX,
    NUMBER_MAX,
    PAGE_ITEMS_MAX,
)
from holdfast.core.outputs import Found, Output, Promise
from holdfast.core.spec import Json
from holdfast.core.state import State
from holdfast.core.task_token import TASK_TOKEN_CHARACTERS_MAX
from holdfast.ports import Request

OWNER_PATTERN = r"^[A-Za-z0-9._:-]+(@[A-Za-z0-9._:-]+)?$"
ID_PATTERN = r"^[A-Za-z0-9._:-]*[A-Za-z0-9_:-][A-Za-z0-9._:-]*$"
GLOB_PATTERN = r"^[A-Za-z0-9._:*-]+$"
LEASE_PATTERN = (
    r"^(P1D|PT24H|PT([1-9]|1[0-9]|2[0-3])H([1-5]?[0-9]M)?|PT[1-9][0-9]{0,2}M"
    r"|PT([1-9][0-9]{0,3}|[1-7][0-9]{4}|8[0-5][0-9]{3}|86[0-3][0-9]{2})(\.[0-9]{1,6})?S)$"
)
INTERVAL_PATTERN = (
    r"^(PT8H|PT[1-7]H([1-5]?[0-9]M)?|PT([1-9][0-9]?|[1-3][0-9]{2}|4[0-7][0-9])M"
    r"|PT([1-9][0-9]{0,3}|1[0-9]{4}|2[0-7][0-9]{3})(\.[0-9]{1,6})?S)$"
)

Id: TypeAlias = Annotated[
    str, Meta(pattern=ID_PATTERN, max_length=ID_CHARACTERS_MAX, examples=["report-17"])
]
Name: TypeAlias = Annotated[str, Meta(pattern=ID_PATTERN, max_length=ID_CHARACTERS_MAX)]
Owner: TypeAlias = Annotated[str, Meta(pattern=OWNER_PATTERN, max_length=LABEL_CHARACTERS_MAX)]
Glob: TypeAlias = Annotated[str, Meta(pattern=GLOB_PATTERN, max_length=ID_CHARACTERS_MAX)]
Actor: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^$|^(user|worker|system):[A-Za-z0-9._:@-]+$",
        max_length=100,
        description="Who acts, such as `user:ana`, where no key says it.",
    ),
]
Checker: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^$|^(validator|user):[A-Za-z0-9._:@-]+$",
        max_length=100,
        description="Which validator looks, such as `validator:w-7`; with a key, one of that key.",
    ),
]
OpId: TypeAlias = Annotated[
    Id | None, Meta(description="Sent again, it gets the answer of the first time.")
]
Reason: TypeAlias = Annotated[
    str, Meta(pattern=r"^[^\x00]*$", max_length=MESSAGE_CHARACTERS_MAX, description="For people.")
]
Text: TypeAlias = Annotated[str, Meta(pattern=r"^[^\x00]*$", max_length=LABEL_CHARACTERS_MAX)]
Token: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=TASK_TOKEN_CHARACTERS_MAX,
        description="The proof of a grant: what acquire and claim gave.",
    ),
]
Duration: TypeAlias = Annotated[timedelta, Meta(examples=["PT90S"])]
Lease: TypeAlias = Annotated[timedelta, Meta(extra_json_schema={"pattern": LEASE_PATTERN})]
LeaseTime: TypeAlias = Annotated[
    Lease | None, Meta(description="From 1 second to 24 hours.", examples=["PT60S"])
]
Interval: TypeAlias = Annotated[
    Annotated[timedelta, Meta(extra_json_schema={"pattern": INTERVAL_PATTERN})] | None,
    Meta(
        description="How often you will show a sign of life; the lease is three times that.",
        examples=["PT20S"],
    ),
]
Cursor: TypeAlias = Annotated[
    Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:=-]+$", max_length=CURSOR_CHARACTERS_MAX)] | None,
    Meta(description="Where to read on: the `cursor` or `next` of the answer before."),
]
ExitCode: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Whole: TypeAlias = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Items: TypeAlias = Annotated[int, Meta(ge=1, le=PAGE_ITEMS_MAX)] | None
Seconds: TypeAlias = Annotated[
    float, Meta(ge=0, le=3600, description="How long to wait; a server waits 25 s at the most.")
]
KeepsTimeout: TypeAlias = Annotated[
    bool,
    Meta(
        description="Whether the worker itself ends an attempt that runs longer than the job's timeout;"
        " else the registry does."
    ),
]


class Enqueue(Struct, frozen=True, kw_only=True):
    """Make jobs."""

    requests: tuple[Request, ...]
    actor: Actor = ""
    reuse: bool = False


class Handoff(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say how handing a registered job to its executor goes."""

    job_id: Id
    step: HandoffStep
    actor: Actor = ""
    op_id: OpId = None
    handle: dict[str, str] = {}
    error: Reason | None = None


class Replay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Make a new job of a dead letter."""

    job_id: Id
    actor: Actor = ""
    op_id: OpId = None


class Claim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take jobs that are ready."""

    queues: Annotated[
        tuple[Name, ...], Meta(min_length=1, max_length=1_000, examples=[["default"]])
    ]
    owner: Id
    limit: Annotated[int, Meta(ge=1, le=BATCH_ITEMS_MAX)] | None = None
    op_id: OpId = None
    kinds: Annotated[tuple[Name, ...], Meta(max_length=1_000)] = ()
    lease: LeaseTime = None
    heartbeat_interval: Interval = None
    region: Name | None = None
    executor: Name | None = None
    wait_seconds: Seconds = 0.0
    keeps_timeout: KeepsTimeout = False


class Acquire(Struct, frozen=True, kw_only=True):
    """Take this very job; `create` makes it first if there is none."""

    job_id: Id
    owner: Id
    op_id: OpId = None
    lease: LeaseTime = None
    heartbeat_interval: Interval = None
    region: Name | None = None
    executor: Name | None = None
    create: Request | None = None
    keeps_timeout: KeepsTimeout = False


class Heartbeat(Struct, frozen=True, kw_only=True):
    """Show a sign of life; the first one starts the job."""

    task_token: Token
    lease: LeaseTime = None
    progress: Progress | None = None
    checkpoint: Json = None


class Publish(Struct, frozen=True, kw_only=True):
    """Add to what the worker says about its attempt."""

    task_token: Token
    events: Annotated[tuple[Event, ...], Meta(max_length=EVENTS_PER_PUBLISH_MAX)]


class Aggregate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say that the tasks are done and their targets are being evaluated."""

    task_token: Token
    op_id: OpId = None


class Ended(Struct, frozen=True, kw_only=True):
    """How one attempt ended."""

    task_token: Token
    outcome: Outcome | None
    op_id: OpId = None
    compensated: bool | None = None
    follow_ups: tuple[Request, ...] = ()


class Complete(Struct, frozen=True):
    """End attempts; what cannot be understood of one is an error in its place."""

    completions: tuple[Ended | HoldfastError, ...]


class Release(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Give a job back; it costs no attempt."""

    task_token: Token
    op_id: OpId = None
    reason: Reason | None = None
    delay: Duration | None = None
    undelivered: bool = False


class Cancel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ask the owner to stop, or (`hard`) end the job now."""

    job_id: Id
    actor: Actor = ""
    op_id: OpId = None
    reason: Reason | None = None
    hard: bool = False


class Look(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say that one looks for the outputs of a job, how far one is, or (`trouble`) why none can be seen."""

    job_id: Id
    actor: Checker = ""
    version: Whole | None = None
    done: Whole = 0
    total: Whole = 0
    trouble: Reason | None = None


class Judge(Struct, frozen=True, kw_only=True):
    """Give the verdict on the outputs of a job, or an operator's word in its place."""

    job_id: Id
    actor: Checker = ""
    op_id: OpId = None
    found: Found = Found()
    evidence: tuple[Output, ...] = ()
    version: Whole | None = None
    override: State | None = None
    reason: Reason | None = None


class ListOutputs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read what was promised, and whether it is there, page by page."""

    job_id: Id
    missing: bool = False
    after: Cursor = None
    limit: Items = None


class Validate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Look for the outputs of a job now."""

    job_id: Id
    actor: Actor = ""
    force: Annotated[bool, Meta(description="Also when it is not due for that.")] = False


class Resume(Struct, frozen=True, kw_only=True):
    """Make a job of what an ended job lacks; without `promise`, as the server sees it."""

    job_id: Id
    actor: Actor = ""
    op_id: OpId = None
    promise: Promise | None = None
    dry_run: bool = False
    again: bool = False


class KeepManifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keep a list of outputs whose paths follow from their inputs, one JSON document a line."""

    lines: tuple[str, ...]


class GetJobs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read some jobs."""

    job_ids: Annotated[tuple[Id, ...], Meta(max_length=BATCH_ITEMS_MAX)]


class Which(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs a listing shows; empty means all."""

    queue: Name | None = None
    kind: Name | None = None
    states: tuple[State, ...] = ()
    owner: Owner | None = None
    labels: dict[Text, Text] = {}


class ListJobs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read jobs in the order they were made, page by page."""

    which: Which = Which()
    after: Cursor = None
    limit: Items = None
    newest: bool = False


class CountJobs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Count jobs by state."""

    queue: Name | None = None


class OneJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ask about one job."""

    job_id: Id


class History(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read what the registry has written about a job."""

    job_id: Id
    after: Cursor = None
    limit: Items = None


class ReadLog(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read the log of a job."""

    job_id: Id
    after: Cursor = None
    limit: Items = None
    without_output: bool = False


class ReadFeed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read the log of everything."""

    after: Cursor = None
    limit: Items = None


class Watch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Follow the log of a job, or of everything."""

    job_id: Id | None = None
    after: Cursor = None


class GetResource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Look at a lock."""

    key: Id


class AwaitChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Wait until something may have changed since `mark`."""

    mark: Annotated[str, Meta(max_length=200)] | None = None
    seconds: Seconds = 0.0
    claim: Claim | None = None
    job_id: Id | None = None


class Record(Struct, frozen=True, kw_only=True):
    """Keep facts from elsewhere."""

    events: tuple[Event, ...]


class Expire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Close what has lapsed."""

    limit: Items = None


class Prune(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Forget jobs that ended long ago."""

    older_than: Duration
    output_older_than: Duration | None = None


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing is asked for but the verb itself."""


class CreateKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Make a key."""

    name: Annotated[str, Meta(pattern=ID_PATTERN, max_length=KEY_NAME_CHARACTERS_MAX)]
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=len(Scope))]
    queues: Annotated[tuple[Glob, ...], Meta(max_length=64)] = ()
    regions: Annotated[tuple[Name, ...], Meta(max_length=64)] = ()
    life: Duration | None = None
    actor: Actor = ""
    op_id: OpId = None


class RevokeKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Let a key count no more."""

    key_id: Annotated[str, Meta(pattern=r"^[0-9a-f]{12}$")]
    actor: Actor = ""
