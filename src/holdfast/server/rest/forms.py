"""Forms: the JSON of requests that carry values of the core. Where a form has the fields of such a value,
it is derived from it (`form_types`); all refuse unknown fields."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from holdfast.core.catalogue import EventClass, WorkerEventType
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
from holdfast.core.retry import COMMAND_RETRY, Retry
from holdfast.core.spec import COMMAND_KIND, RETRY_DEFAULT, Json, Spec
from holdfast.ports import JobRequest
from holdfast.server.rest.form_types import derive_form, value_of
from holdfast.server.rest.output_forms import OutputPromiseForm
from holdfast.wire.fields import (
    Actor,
    Duration,
    ExitCode,
    HeartbeatInterval,
    Id,
    KeepsTimeout,
    Lease,
    LeaseTime,
    Name,
    OpId,
    Reason,
    TaskToken,
    Text,
    WholeNumber,
    WorkSeconds,
)
from holdfast.wire.requests import (
    Acquire,
    AttemptCompletion,
    Complete,
    Enqueue,
    Heartbeat,
    Publish,
    Record,
)

Sequence: TypeAlias = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
TraceParent: TypeAlias = Annotated[
    str, Meta(pattern=r"^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-0[01]$")
]
Reuse: TypeAlias = Annotated[
    bool,
    Meta(
        description="When every promised output is in the server's output store already, create a job"
        " that has succeeded, and run nothing."
    ),
]
Attempts: TypeAlias = Annotated[int, Meta(ge=1, le=ATTEMPTS_MAX)]


if TYPE_CHECKING:  # to the type checker, a derived form is the value that it describes
    from holdfast.core.job import Failure as FailureForm
    from holdfast.core.job import Progress as ProgressForm
    from holdfast.core.lifecycle import Stopped as StoppedForm
    from holdfast.core.lifecycle import Success as SuccessForm

    SpecForm = Spec
else:
    SpecForm = derive_form(
        Spec,
        "SpecForm",
        "What a job has to do, and how.",
        kind=Annotated[Name, Meta(description="What runs it: `command`, or a function's name.")],
        queue=Annotated[Name, Meta(description="The queue in which it waits.")],
        payload=Annotated[
            Raw,
            Meta(
                description="Any JSON; of a command, its `argv`.",
                examples=[{"argv": ["echo", "hi"]}],
            ),
        ],
        name=Annotated[Text | None, Meta(description="A title, for display.")],
        priority=Annotated[int, Meta(ge=0, le=PRIORITY_MAX, description="From 0 (first) to 9 (last).")],
        region=Annotated[Name | None, Meta(description="The region it may run in; absent: any region.")],
        lock=Annotated[Name | None, Meta(description="Jobs with one lock never run together.")],
        executor=Name | None,
        lease=Annotated[Lease, Meta(description="From 1 second to 24 hours.")],
        timeout=Annotated[Duration | None, Meta(description="How long an attempt may take.")],
        delay=Annotated[Duration | None, Meta(description="How long it waits before it is ready.")],
        run_at=Annotated[Moment | None, Meta(description="When it becomes ready; or give a delay.")],
        ttl=Annotated[Duration | None, Meta(description="How long after its creation it is given up.")],
        retry=Annotated[
            derive_form(
                Retry,
                "RetryForm",
                "How often a job is tried, and how long it waits in between.",
                max_failures=Attempts,
                max_crashes=Attempts,
                backoff=Duration,
                factor=Annotated[float, Meta(ge=1, le=FACTOR_MAX)],
                backoff_max=Duration,
            )
            | None,
            Meta(
                description="Absent: five failures, then a dead letter; for a command one failure,"
                " then failed."
            ),
        ],
        labels=Annotated[dict[Text, Text], Meta(max_length=LABELS_MAX, description="Labels to find it by.")],
        promised_outputs=Annotated[
            WholeNumber, Meta(description="How many outputs it promises; or name them in outputs.")
        ],
        outputs=OutputPromiseForm | None,
        replayed_from=Id | None,
        resumed_from=Id | None,
    )
    ProgressForm = derive_form(
        Progress,
        "ProgressForm",
        "How far the work is.",
        done=WholeNumber,
        total=WholeNumber | None,
        message=Reason | None,
    )
    SuccessForm = derive_form(
        Success,
        "SuccessForm",
        "The work was done. `where` is the machine and folder it ran in, as `machine:folder`.",
        where=Reason | None,
        seconds=WorkSeconds,
    )
    FailureForm = derive_form(
        Failure,
        "FailureForm",
        "The work failed. `where` is the machine and folder it ran in, as `machine:folder`.",
        message=Reason,
        code=Annotated[str, Meta(max_length=128)],
        exit_code=ExitCode | None,
        where=Reason | None,
        seconds=WorkSeconds,
        not_understood=Annotated[
            bool,
            Meta(
                description="Nothing was begun: this worker does not know a name in the job, such as"
                " an argument. The job is given back for a worker that does, at no cost, a bounded"
                " number of times."
            ),
        ],
        not_started=Annotated[
            bool,
            Meta(
                description="Nothing was begun: this machine lacks what the job needs, such as its"
                " folder, or cannot use it now. The job is given back for another machine, at no"
                " cost, a bounded number of times."
            ),
        ],
        traceback=Annotated[
            str | None,
            Meta(
                description="Of the exception that ended the attempt, as text; `code` is its type. Of"
                " a long one, the beginning and the end are stored."
            ),
        ],
    )
    StoppedForm = derive_form(
        Stopped,
        "StoppedForm",
        "The work stopped on request. `where` is the machine and folder it ran in.",
        reason=Reason | None,
        where=Reason | None,
        seconds=WorkSeconds,
    )


def spec_of(form: SpecForm) -> Spec:
    """Return the spec that a form describes. What it leaves out about retries depends on its kind."""
    default = COMMAND_RETRY if form.kind == COMMAND_KIND else RETRY_DEFAULT
    return value_of(form, retry=form.retry or default)


class JobRequestForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to create."""

    spec: SpecForm
    request_id: Annotated[
        Id | None, Meta(description="Sent again for this queue, it returns the same job.")
    ] = None
    job_id: Annotated[Id | None, Meta(description="The id of the job, chosen by the client.")] = None
    register: Annotated[bool, Meta(description="Keep it `pending` until a handoff.")] = False
    submitted_by: Actor | None = None
    correlation_id: Id | None = None
    trace_id: Id | None = None
    traceparent: Annotated[
        TraceParent | None, Meta(description="W3C trace context, if the header is not sent.")
    ] = None

    def job_request(self) -> JobRequest:
        fields = structs.asdict(self)
        fields.pop("reuse", None)
        return JobRequest(**{**fields, "spec": spec_of(self.spec)})

    def to_request(self) -> Enqueue:
        return Enqueue(requests=(self.job_request(),))


class JobForm(JobRequestForm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to create, or to complete from outputs that exist already."""

    reuse: Reuse = False

    def to_request(self) -> Enqueue:
        return Enqueue(requests=(self.job_request(),), reuse=self.reuse)


class JobBatchForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs to create together, and the actor."""

    requests: Annotated[tuple[JobRequestForm, ...], Meta(min_length=1, max_length=BATCH_ITEMS_MAX)]
    actor: Actor = ""
    reuse: Reuse = False

    def to_request(self) -> Enqueue:
        requests = tuple(one.job_request() for one in self.requests)
        return Enqueue(requests=requests, actor=self.actor, reuse=self.reuse)


class AcquireForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Claim this job; with `create`, create it first unless it exists."""

    job_id: Id
    owner: Id
    op_id: OpId = None
    lease: LeaseTime = None
    heartbeat_interval: HeartbeatInterval = None
    region: Name | None = None
    executor: Name | None = None
    create: SpecForm | None = None
    keeps_timeout: KeepsTimeout = False

    def to_request(self) -> Acquire:
        made = None
        if self.create is not None:
            made = JobRequest(spec=spec_of(self.create), job_id=self.job_id)
        return Acquire(**{**structs.asdict(self), "create": made})


class HeartbeatForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A renewal of the lease; the first one starts the job."""

    task_token: TaskToken
    lease: LeaseTime = None
    progress: ProgressForm | None = None
    checkpoint: Annotated[Json, Meta(description="Handed to the next attempt, if this one is lost.")] = None

    def to_request(self) -> Heartbeat:
        progress = None if self.progress is None else value_of(self.progress)
        return Heartbeat(**{**structs.asdict(self), "progress": progress})


class WorkerEventForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One event of a worker about its attempt."""

    event_type: WorkerEventType
    occurred_at: Moment
    sequence: Annotated[Sequence, Meta(description="Strictly rising, from 1 in each attempt.")]
    end_sequence: Sequence | None = None
    stream: Annotated[str, Meta(max_length=128, examples=["stdout"])] | None = None
    attributes: dict[str, Json] = {}
    data: Annotated[bytes, Meta(description="Output, in base64.")] | None = None


class PublishForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events of a worker about its attempt."""

    task_token: TaskToken
    events: Annotated[tuple[WorkerEventForm, ...], Meta(min_length=1, max_length=EVENTS_PER_PUBLISH_MAX)]

    def to_request(self) -> Publish:
        events = tuple(Event(event_class=EventClass.WORKER, **structs.asdict(one)) for one in self.events)
        return Publish(task_token=self.task_token, events=events)


class CompletionForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an attempt ended: exactly one of `success`, `failure` and `stopped`."""

    task_token: TaskToken
    success: SuccessForm | UnsetType = UNSET
    failure: FailureForm | UnsetType = UNSET
    stopped: StoppedForm | UnsetType = UNSET
    op_id: OpId = None
    compensated: bool | None = None
    follow_ups: Annotated[tuple[JobRequestForm, ...], Meta(max_length=FOLLOW_UPS_MAX)] = ()

    def completion(self) -> AttemptCompletion:
        given = (self.success, self.failure, self.stopped)
        outcomes: list[Outcome] = [value_of(one) for one in given if one is not UNSET]
        return AttemptCompletion(
            task_token=self.task_token,
            outcome=outcomes[0] if len(outcomes) == 1 else None,
            op_id=self.op_id,
            compensated=self.compensated,
            follow_ups=tuple(one.job_request() for one in self.follow_ups),
        )

    def to_request(self) -> Complete:
        return Complete((self.completion(),))


class CompletionsForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How several attempts ended."""

    completions: Annotated[tuple[CompletionForm, ...], Meta(min_length=1, max_length=BATCH_ITEMS_MAX)]

    def to_request(self) -> Complete:
        return Complete(tuple(one.completion() for one in self.completions))


class ExternalEventForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event from outside of holdfast."""

    event_id: Annotated[Id, Meta(description="Chosen by the client: an event sent twice is stored once.")]
    event_type: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
            max_length=128,
            description="A name of the client's own, in the past tense.",
            examples=["invoice_sent"],
        ),
    ]
    occurred_at: Moment
    job_id: Id | None = None
    task_id: Id | None = None
    attempt: WholeNumber | None = None
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
    """Events from outside of holdfast."""

    events: Annotated[tuple[ExternalEventForm, ...], Meta(min_length=1, max_length=BATCH_ITEMS_MAX)]

    def to_request(self) -> Record:
        return Record(events=tuple(one.event() for one in self.events))
