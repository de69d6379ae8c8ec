"""The verbs of `holdfast.v1`: what each is asked with, and how its messages say ask and answer."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal, Protocol

from msgspec import Struct
from protobuf import Message, Oneof

from holdfast.core.errors import HoldfastError, Invalid, Unavailable
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Outcome, Stopped, Success
from holdfast.core.limits import BATCH_ITEMS_MAX, EVENTS_PER_PUBLISH_MAX, check_follow_ups, clip
from holdfast.core.spec import Json, check_struct
from holdfast.ports import HistoryPage, OutputPage, Page, Pruned, Resumption, Slice
from holdfast.wire import answers, asks
from holdfast.wire.errors import detail, error_of
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.mapping import Mapping, json_given, json_text, optional
from holdfast.wire.values import (
    EVENT,
    FAILURE,
    FINDING,
    FOUND,
    GRANT,
    JOB,
    KEY,
    OUTPUT,
    PROGRESS,
    PROMISE,
    REQUEST,
    RESOURCE,
    VERIFICATION,
    AJob,
    AnError,
)


class Codec(Protocol):
    """Values of one type as messages of another, both ways."""

    value: type[Any]

    def encode(self, value: Any, /) -> Any: ...  # noqa: ANN401

    def decode(self, message: Any, /) -> Any: ...  # noqa: ANN401

    def read(self, message: Any, /) -> Any: ...  # noqa: ANN401


class _Completion:
    """How one attempt ended."""

    def encode(self, ended: asks.Ended) -> pb.Completion:
        return pb.Completion(
            task_token=ended.task_token,
            outcome=None if ended.outcome is None else _said(ended.outcome),
            op_id=ended.op_id,
            compensated=ended.compensated,
            follow_ups=list(map(REQUEST.encode, ended.follow_ups)),
        )

    def decode(self, message: pb.Completion) -> asks.Ended:
        check_follow_ups(len(message.follow_ups))
        return asks.Ended(
            task_token=message.task_token,
            outcome=_outcome(message),
            op_id=optional(message, "op_id"),
            compensated=optional(message, "compensated"),
            follow_ups=tuple(map(REQUEST.decode, message.follow_ups)),
        )


COMPLETION = _Completion()


class _Completions:
    """Each is decoded on its own: what is wrong with one leaves the others as they are."""

    value = asks.Complete

    def encode(self, value: asks.Complete) -> pb.CompleteRequest:
        ended = [one for one in value.completions if isinstance(one, asks.Ended)]
        return pb.CompleteRequest(completions=list(map(COMPLETION.encode, ended)))

    def decode(self, message: pb.CompleteRequest) -> asks.Complete:
        return asks.Complete(tuple(map(_decoded, message.completions)))

    read = decode


def _decoded(one: pb.Completion) -> asks.Ended | HoldfastError:
    try:
        return COMPLETION.decode(one)
    except Invalid as error:
        return error


_Succeeded = Oneof[Literal["success"], pb.Success]
_Failed = Oneof[Literal["failure"], pb.Failure]
_Stopped = Oneof[Literal["stopped"], pb.Stopped]


def _said(outcome: Outcome) -> _Succeeded | _Failed | _Stopped:
    match outcome:
        case Success(result=result, where=where):
            text = None if result is None else _json(result)
            return _Succeeded("success", pb.Success(result=text, where=where))
        case Failure():
            return _Failed("failure", FAILURE.encode(check_struct(outcome)))
        case Stopped(reason=reason, where=where):
            words = None if reason is None else clip(reason)
            return _Stopped("stopped", pb.Stopped(reason=words, where=where))


def _json(result: Json) -> str:
    try:
        return json_text(result)
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"result cannot be written as JSON: {error}") from error


def _outcome(one: pb.Completion) -> Outcome | None:
    match one.outcome.value if one.outcome else None:
        case pb.Success() as success:
            text = optional(success, "result")
            result = None if text is None else json_given(text, "result")
            return Success(result=result, where=optional(success, "where"))
        case pb.Failure() as failure:
            return FAILURE.decode(failure)
        case pb.Stopped() as stopped:
            return Stopped(reason=optional(stopped, "reason"), where=optional(stopped, "where"))
    return None


class _Each:
    """The responses of a batch, each on its own."""

    value = answers.OfEach

    def __init__(self, message: type[pb.CompleteResponse] | type[pb.GetJobsResponse]) -> None:
        self._message = message

    def encode(self, value: answers.OfEach) -> Message:
        return self._message(answers=list(map(_answer, value.answers)))

    def decode(self, message: pb.CompleteResponse | pb.GetJobsResponse) -> answers.OfEach:
        return answers.OfEach(tuple(map(_answered, message.answers)))

    read = decode


def _answer(one: Job | HoldfastError | None) -> pb.Answer:
    if one is None:
        return pb.Answer()
    if isinstance(one, HoldfastError):
        return pb.Answer(answer=AnError("error", detail(one)))
    return pb.Answer(answer=AJob("job", JOB.encode(one)))


def _answered(one: pb.Answer) -> Job | HoldfastError | None:
    match one.answer.value if one.answer else None:
        case pb.Job() as job:
            try:
                return JOB.read(job)
            except Unavailable as error:
                return error
        case pb.ErrorDetail() as error:
            return error_of(error)
    return None


class Load(StrEnum):
    """What a call costs the server that answers it, so that no kind of call waits behind another kind."""

    OWNER = "owner"
    """By the owner of an attempt, whose lease runs meanwhile: answered before all others."""
    LIGHT = "light"
    HEAVY = "heavy"
    """Reads much, or answers with much."""
    CHORE = "chore"
    """Goes through the store, or through an output store, for as long as that takes."""
    WAIT = "wait"
    """Waits for something to happen, and costs next to nothing meanwhile."""


class Verb(Struct, frozen=True):
    """One verb. Its name is that of its method, here and in the service. `jobs` tells how many
    jobs an ask reads by their ids: above a few, it is a heavy one. `most` is how many items it takes in
    each list of messages."""

    name: str
    request: Codec
    response: Codec
    stream: bool = False
    load: Load = Load.LIGHT
    jobs: Callable[[Any], int] | None = None
    most: dict[str, int] = {}

    @property
    def rpc(self) -> str:
        """The name of its method in the service."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def waits(self) -> bool:
        """Whether a call may take long by design: it waits, or goes through the whole store."""
        return self.load in (Load.WAIT, Load.CHORE)

    def understood(self, message: Any) -> Any:  # noqa: ANN401
        """The ask in a message. Of a list that is too long, one item too many is understood, for which the
        verb refuses it, and none of the others."""
        for name, most in self.most.items():
            del getattr(message, name)[most + 1 :]
        return self.request.decode(message)

    def load_of(self, ask: Any) -> Load:  # noqa: ANN401
        """What a call with this ask costs."""
        return Load.HEAVY if self.jobs_of(ask) > JOBS_LIGHT_MAX else self.load

    def jobs_of(self, ask: Any) -> int:  # noqa: ANN401
        """How many jobs a call with this ask reads by their ids."""
        return 0 if self.jobs is None else self.jobs(ask)


JOBS_LIGHT_MAX = 4
"""Jobs that a light call reads: each may have a payload, a result and a checkpoint of 256 KiB."""


_CLAIM = Mapping(asks.Claim, pb.ClaimRequest)
_JOB = Mapping(answers.OfJob, pb.JobResponse, JOB)
_SLICE = Mapping(Slice, pb.Slice, EVENT)

VERBS = (
    Verb(
        "enqueue",
        Mapping(asks.Enqueue, pb.EnqueueRequest, REQUEST),
        Mapping(answers.OfJobs, pb.EnqueueResponse, JOB),
        most={"requests": BATCH_ITEMS_MAX},
    ),
    Verb("handoff", Mapping(asks.Handoff, pb.HandoffRequest), _JOB),
    Verb("replay", Mapping(asks.Replay, pb.ReplayRequest), _JOB),
    Verb("claim", _CLAIM, Mapping(answers.Granted, pb.ClaimResponse, GRANT), load=Load.WAIT),
    Verb(
        "acquire",
        Mapping(asks.Acquire, pb.AcquireRequest, REQUEST),
        Mapping(answers.Acquired, pb.AcquireResponse, GRANT),
    ),
    Verb(
        "heartbeat", Mapping(asks.Heartbeat, pb.HeartbeatRequest, PROGRESS), _JOB, load=Load.OWNER
    ),
    Verb(
        "publish",
        Mapping(asks.Publish, pb.PublishRequest, EVENT),
        _JOB,
        load=Load.OWNER,
        most={"events": EVENTS_PER_PUBLISH_MAX},
    ),
    Verb("aggregate", Mapping(asks.Aggregate, pb.AggregateRequest), _JOB, load=Load.OWNER),
    Verb(
        "complete",
        _Completions(),
        _Each(pb.CompleteResponse),
        load=Load.OWNER,
        most={"completions": BATCH_ITEMS_MAX},
    ),
    Verb("release", Mapping(asks.Release, pb.ReleaseRequest), _JOB, load=Load.OWNER),
    Verb("cancel", Mapping(asks.Cancel, pb.CancelRequest), _JOB),
    Verb("look", Mapping(asks.Look, pb.LookRequest), _JOB),
    Verb("judge", Mapping(asks.Judge, pb.JudgeRequest, FOUND, OUTPUT), _JOB),
    Verb(
        "list_outputs",
        Mapping(asks.ListOutputs, pb.ListOutputsRequest),
        Mapping(OutputPage, pb.ListOutputsResponse, OUTPUT),
        load=Load.HEAVY,
    ),
    Verb("validate", Mapping(asks.Validate, pb.ValidateRequest), _JOB, load=Load.WAIT),
    Verb(
        "resume",
        Mapping(asks.Resume, pb.ResumeRequest, PROMISE),
        Mapping(Resumption, pb.ResumeResponse, JOB),
        load=Load.CHORE,
    ),
    Verb(
        "keep_manifest",
        Mapping(asks.KeepManifest, pb.KeepManifestRequest),
        Mapping(answers.Kept, pb.KeepManifestResponse),
    ),
    Verb(
        "get_jobs",
        Mapping(asks.GetJobs, pb.GetJobsRequest),
        _Each(pb.GetJobsResponse),
        jobs=lambda ask: len(ask.job_ids),
    ),
    Verb(
        "list_jobs",
        Mapping(asks.ListJobs, pb.ListJobsRequest, Mapping(asks.Which, pb.Filter)),
        Mapping(Page, pb.ListJobsResponse, JOB),
        load=Load.HEAVY,
    ),
    Verb(
        "count_jobs",
        Mapping(asks.CountJobs, pb.CountJobsRequest),
        Mapping(answers.Counted, pb.CountJobsResponse),
    ),
    Verb("why", Mapping(asks.OneJob, pb.WhyRequest), Mapping(answers.Because, pb.WhyResponse)),
    Verb(
        "history",
        Mapping(asks.History, pb.HistoryRequest),
        Mapping(HistoryPage, pb.HistoryResponse, EVENT),
        load=Load.HEAVY,
    ),
    Verb("read_log", Mapping(asks.ReadLog, pb.ReadLogRequest), _SLICE, load=Load.HEAVY),
    Verb("read_feed", Mapping(asks.ReadFeed, pb.ReadFeedRequest), _SLICE, load=Load.HEAVY),
    Verb("tail", Mapping(asks.Nothing, pb.TailRequest), Mapping(answers.Place, pb.TailResponse)),
    Verb("watch", Mapping(asks.Watch, pb.WatchRequest), _SLICE, stream=True, load=Load.WAIT),
    Verb("get_resource", Mapping(asks.GetResource, pb.GetResourceRequest), RESOURCE),
    Verb(
        "await_change",
        Mapping(asks.AwaitChange, pb.AwaitChangeRequest, _CLAIM),
        Mapping(answers.Marked, pb.AwaitChangeResponse),
        load=Load.WAIT,
    ),
    Verb(
        "record",
        Mapping(asks.Record, pb.RecordRequest, EVENT),
        Mapping(answers.Recorded, pb.RecordResponse),
        most={"events": BATCH_ITEMS_MAX},
    ),
    Verb(
        "expire",
        Mapping(asks.Expire, pb.ExpireRequest),
        Mapping(answers.Expired, pb.ExpireResponse),
    ),
    Verb(
        "prune",
        Mapping(asks.Prune, pb.PruneRequest),
        Mapping(Pruned, pb.PruneResponse),
        load=Load.CHORE,
    ),
    Verb("verify", Mapping(asks.Nothing, pb.VerifyRequest), VERIFICATION, load=Load.CHORE),
    Verb(
        "examine",
        Mapping(asks.Nothing, pb.ExamineRequest),
        Mapping(answers.Examined, pb.ExamineResponse, FINDING),
        load=Load.CHORE,
    ),
    Verb("now", Mapping(asks.Nothing, pb.NowRequest), Mapping(answers.Time, pb.NowResponse)),
    Verb(
        "create_key",
        Mapping(asks.CreateKey, pb.CreateKeyRequest),
        Mapping(answers.KeyMade, pb.CreateKeyResponse, KEY),
    ),
    Verb(
        "list_keys",
        Mapping(asks.Nothing, pb.ListKeysRequest),
        Mapping(answers.AllKeys, pb.ListKeysResponse, KEY),
    ),
    Verb(
        "revoke_key",
        Mapping(asks.RevokeKey, pb.RevokeKeyRequest),
        Mapping(answers.KeyRevoked, pb.RevokeKeyResponse, KEY),
    ),
)
"""All of them, as the service has them."""

BY_NAME = {verb.name: verb for verb in VERBS}
