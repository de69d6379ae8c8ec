"""Forms: the JSON that is taken where a verb is asked with values of the core. They know no field that
the core does not, say what each is for, and refuse what is misspelt."""

from datetime import datetime, timedelta
from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field, structs

from holdfast.core.catalogue import EventClass, ReasonCode, Stage, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.job import Failure, Progress
from holdfast.core.lifecycle import Outcome, Stopped, Success
from holdfast.core.limits import (
    ATTEMPTS_MAX,
    BATCH_ITEMS_MAX,
    EVENTS_PER_PUBLISH_MAX,
    FACTOR_MAX,
    FOLLOW_UPS_MAX,
    LABELS_MAX,
    NUMBER_MAX,
    PRIORITY_MAX,
)
from holdfast.core.retry import COMMAND_RETRY, OnExhausted, Retry
from holdfast.core.spec import COMMAND_KIND, RETRY_DEFAULT, Json, Spec
from holdfast.ports import Request
from holdfast.server.rest.output_forms import PromiseForm
from holdfast.wire import asks
from holdfast.wire.asks import (
    Actor,
    Duration,
    ExitCode,
    Id,
    Interval,
    KeepsTimeout,
    Lease,
    LeaseTime,
    Name,
    OpId,
    Reason,
    Text,
    Token,
    Whole,
)

Sequence: TypeAlias = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
Parent: TypeAlias = Annotated[
    str, Meta(pattern=r"^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-0[01]$")
]
Reuse: TypeAlias = Annotated[
    bool,
    Meta(
        description="Where all that is promised is in the server's output store already, make a job"
        " that has succeeded, and run nothing."
    ),
]
Attempts: TypeAlias = Annotated[int, Meta(ge=1, le=ATTEMPTS_MAX)]


class RetryForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a job is tried, and how long it waits between."""

    max_failures: Attempts = 5
    max_crashes: Attempts = 5
    backoff: Duration = timedelta(milliseconds=500)
    factor: Annotated[float, Meta(ge=1, le=FACTOR_MAX)] = 2.0
    backoff_max: Duration = timedelta(seconds=60)
    on_exhausted: OnExhausted = OnExhausted.DEAD_LETTER


class SpecForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One piece of work."""

    kind: Annotated[Name, Meta(description="What runs it: `command`, or a function's name.")] = (
        "command"
    )
    queue: Annotated[Name, Meta(description="Where it waits.")] = "default"
    payload: Annotated[
        Raw,
        Meta(
            description="Any JSON; of a command, its `argv`.", examples=[{"argv": ["echo", "hi"]}]
        ),
    ] = field(default_factory=lambda: Raw(b"null"))
    name: Annotated[Text | None, Meta(description="For people.")] = None
    priority: Annotated[int, Meta(ge=0, le=PRIORITY_MAX, description="0 is first, 9 is last.")] = 5
    region: Annotated[Name | None, Meta(description="Where it may run; absent: anywhere.")] = None
    lock: Annotated[Name | None, Meta(description="Jobs of one lock never run together.")] = None
    executor: Name | None = None
    lease: Annotated[Lease, Meta(description="From 1 second to 24 hours.")] = timedelta(seconds=60)
    timeout: Annotated[Duration | None, Meta(description="How long an attempt may take.")] = None
    delay: Annotated[Duration | None, Meta(description="How long it waits before it is ready.")] = (
        None
    )
    run_at: Annotated[Moment | None, Meta(description="When it is ready; or say a delay.")] = None
    ttl: Annotated[Duration | None, Meta(description="When nobody need try any more.")] = None
    retry: Annotated[
        RetryForm | None,
        Meta(
            description="Absent: five failures, then a dead letter; of a command one, then failed."
        ),
    ] = None
    labels: Annotated[
        dict[Text, Text], Meta(max_length=LABELS_MAX, description="Words to find it by.")
    ] = {}
    promised_outputs: Annotated[Whole, Meta(description="How many; or say which, in outputs.")] = 0
    outputs: PromiseForm | None = None
    replayed_from: Id | None = None
    resumed_from: Id | None = None

    def spec(self) -> Spec:
        if self.retry is not None:
            retry = Retry(**structs.asdict(self.retry))
        else:
            retry = COMMAND_RETRY if self.kind == COMMAND_KIND else RETRY_DEFAULT
        outputs = None if self.outputs is None else self.outputs.promise()
        return Spec(**{**structs.asdict(self), "retry": retry, "outputs": outputs})


class RequestForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to make."""

    spec: SpecForm
    request_id: Annotated[
        Id | None, Meta(description="Asked again in its queue, it makes no second job.")
    ] = None
    job_id: Annotated[Id | None, Meta(description="An id of your own.")] = None
    register: Annotated[bool, Meta(description="Keep it `pending` until a handoff.")] = False
    submitted_by: Actor | None = None
    correlation_id: Id | None = None
    trace_id: Id | None = None
    traceparent: Annotated[
        Parent | None, Meta(description="W3C trace context, where the header is not sent.")
    ] = None

    def request(self) -> Request:
        fields = structs.asdict(self)
        fields.pop("reuse", None)
        return Request(**{**fields, "spec": self.spec.spec()})

    def ask(self) -> asks.Enqueue:
        return asks.Enqueue(requests=(self.request(),))


class JobForm(RequestForm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to make, or not to run."""

    reuse: Reuse = False

    def ask(self) -> asks.Enqueue:
        return asks.Enqueue(requests=(self.request(),), reuse=self.reuse)


class ManyJobsForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs to make together, and who asks."""

    requests: Annotated[tuple[RequestForm, ...], Meta(min_length=1, max_length=BATCH_ITEMS_MAX)]
    actor: Actor = ""
    reuse: Reuse = False

    def ask(self) -> asks.Enqueue:
        requests = tuple(one.request() for one in self.requests)
        return asks.Enqueue(requests=requests, actor=self.actor, reuse=self.reuse)


class AcquireForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take this very job; with `create` it is made first if there is none."""

    job_id: Id
    owner: Id
    op_id: OpId = None
    lease: LeaseTime = None
    heartbeat_interval: Interval = None
    region: Name | None = None
    executor: Name | None = None
    create: SpecForm | None = None
    keeps_timeout: KeepsTimeout = False

    def ask(self) -> asks.Acquire:
        create = None if self.create is None else self.create.spec()
        made = None if create is None else Request(spec=create, job_id=self.job_id)
        return asks.Acquire(**{**structs.asdict(self), "create": made})


class ProgressForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far the work is."""

    done: Whole
    total: Whole | None = None
    message: Reason | None = None


class HeartbeatForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sign of life; the first one starts the job."""

    task_token: Token
    lease: LeaseTime = None
    progress: ProgressForm | None = None
    checkpoint: Annotated[
        Json, Meta(description="Kept for the next attempt, if this one is lost.")
    ] = None

    def ask(self) -> asks.Heartbeat:
        progress = None
        if self.progress is not None:
            progress = Progress(**structs.asdict(self.progress))
        return asks.Heartbeat(
            task_token=self.task_token,
            lease=self.lease,
            progress=progress,
            checkpoint=self.checkpoint,
        )


class SaidForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something a worker says about its attempt."""

    event_type: WorkerEventType
    occurred_at: Moment
    sequence: Annotated[Sequence, Meta(description="Rises strictly, from 1 in each attempt.")]
    end_sequence: Sequence | None = None
    stream: Annotated[str, Meta(max_length=128, examples=["stdout"])] | None = None
    attributes: dict[str, Json] = {}
    data: Annotated[bytes, Meta(description="Output, in base64.")] | None = None


class PublishForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker says about its attempt."""

    task_token: Token
    events: Annotated[tuple[SaidForm, ...], Meta(min_length=1, max_length=EVENTS_PER_PUBLISH_MAX)]

    def ask(self) -> asks.Publish:
        events = tuple(
            Event(event_class=EventClass.WORKER, **structs.asdict(one)) for one in self.events
        )
        return asks.Publish(task_token=self.task_token, events=events)


class SuccessForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """It worked. `where` is the machine and folder it ran in, as `machine:folder`."""

    result: Json = None
    where: Reason | None = None


class FailureForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """It did not work. `where` is the machine and folder it ran in, as `machine:folder`."""

    message: Reason
    code: Annotated[str, Meta(max_length=128)] = "Error"
    retryable: bool = True
    stage: Stage = Stage.EXEC
    exit_code: ExitCode | None = None
    crash: bool = False
    reason_code: ReasonCode | None = None
    where: Reason | None = None
    not_understood: Annotated[
        bool,
        Meta(
            description="Nothing was begun: this worker does not know a name in the job, such as an"
            " argument. It is given back for one that does, at no cost, a bounded number of times."
        ),
    ] = False
    not_started: Annotated[
        bool,
        Meta(
            description="Nothing was begun: this machine lacks what the job asks for, such as its folder, or"
            " cannot use it now. It is given back for another, at no cost, a bounded number of times."
        ),
    ] = False


class StoppedForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """It stopped because it was asked to. `where` is the machine and folder it ran in."""

    reason: Reason | None = None
    where: Reason | None = None


class CompletionForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an attempt ended: exactly one of `success`, `failure` and `stopped`."""

    task_token: Token
    success: SuccessForm | UnsetType = UNSET
    failure: FailureForm | UnsetType = UNSET
    stopped: StoppedForm | UnsetType = UNSET
    op_id: OpId = None
    compensated: bool | None = None
    follow_ups: Annotated[tuple[RequestForm, ...], Meta(max_length=FOLLOW_UPS_MAX)] = ()

    def ended(self) -> asks.Ended:
        outcomes: list[Outcome] = []
        if self.success is not UNSET:
            outcomes.append(Success(**structs.asdict(self.success)))
        if self.failure is not UNSET:
            outcomes.append(Failure(**structs.asdict(self.failure)))
        if self.stopped is not UNSET:
            outcomes.append(Stopped(**structs.asdict(self.stopped)))
        return asks.Ended(
            task_token=self.task_token,
            outcome=outcomes[0] if len(outcomes) == 1 else None,
            op_id=self.op_id,
            compensated=self.compensated,
            follow_ups=tuple(one.request() for one in self.follow_ups),
        )

    def ask(self) -> asks.Complete:
        return asks.Complete((self.ended(),))


class CompletionsForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How attempts ended."""

    completions: Annotated[
        tuple[CompletionForm, ...], Meta(min_length=1, max_length=BATCH_ITEMS_MAX)
    ]

    def ask(self) -> asks.Complete:
        return asks.Complete(tuple(one.ended() for one in self.completions))


class FactForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fact from elsewhere."""

    event_id: Annotated[Id, Meta(description="Yours: the same one sent twice is kept once.")]
    event_type: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
            max_length=128,
            description="A past-tense name of your own.",
            examples=["invoice_sent"],
        ),
    ]
    occurred_at: Moment
    job_id: Id | None = None
    task_id: Id | None = None
    attempt: Whole | None = None
    actor: Text | None = None
    reason: Reason | None = None
    cause: Text | None = None
    correlation_id: Id | None = None
    execution_id: Text | None = None
    trace_id: Text | None = None
    span_id: Text | None = None
    attributes: dict[str, Json] = {}

    def event(self) -> Event:
        fields = structs.asdict(self)
        given_id = fields.pop("event_id")
        return Event(event_class=EventClass.EXTERNAL, given_id=given_id, **fields)


class RecordForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts from elsewhere."""

    events: Annotated[tuple[FactForm, ...], Meta(min_length=1, max_length=BATCH_ITEMS_MAX)]

    def ask(self) -> asks.Record:
        return asks.Record(events=tuple(one.event() for one in self.events))
