"""The verbs of `holdfast.v1`: what each is asked with, and how its messages say ask and answer."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from protobuf import Message

from holdfast.core.errors import HoldfastError, Invalid
from holdfast.core.job import Job
from holdfast.core.lifecycle import Outcome, Stopped, Success
from holdfast.core.limits import BATCH_ITEMS_MAX, EVENTS_PER_PUBLISH_MAX, check_follow_ups
from holdfast.ports import HistoryPage, OutputPage, Page, Pruned, Resumption, Slice
from holdfast.wire import answers, asks
from holdfast.wire.errors import detail
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.mapping import Mapping, json_given, optional
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

V = TypeVar("V", bound=Struct)
M = TypeVar("M", bound=Message)


class Decoder(Protocol):
    """Reads an ask out of a message."""

    def decode(self, message: Any, /) -> Any: ...  # noqa: ANN401


class Encoder(Protocol):
    """Writes an answer as a message."""

    def encode(self, value: Any, /) -> Any: ...  # noqa: ANN401


class _Completions:
    """Each is understood on its own: what is wrong with one leaves the others as they are."""

    def decode(self, message: pb.CompleteRequest) -> asks.Complete:
        return asks.Complete(tuple(map(_ended, message.completions)))


def _ended(one: pb.Completion) -> asks.Ended | HoldfastError:
    try:
        check_follow_ups(len(one.follow_ups))
        return asks.Ended(
            task_token=one.task_token,
            outcome=_outcome(one),
            op_id=optional(one, "op_id"),
            compensated=optional(one, "compensated"),
            follow_ups=tuple(map(REQUEST.decode, one.follow_ups)),
        )
    except Invalid as error:
        return error


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
    """The answers of many, each on its own."""

    def __init__(self, message: type[pb.CompleteResponse] | type[pb.GetJobsResponse]) -> None:
        self._message = message

    def encode(self, value: answers.OfEach) -> Message:
        return self._message(answers=list(map(_said, value.answers)))


def _said(one: Job | HoldfastError | None) -> pb.Answer:
    if one is None:
        return pb.Answer()
    if isinstance(one, HoldfastError):
        return pb.Answer(answer=AnError("error", detail(one)))
    return pb.Answer(answer=AJob("job", JOB.encode(one)))


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
    ask: Decoder
    answer: Encoder
    stream: bool = False
    load: Load = Load.LIGHT
    jobs: Callable[[Any], int] | None = None
    most: dict[str, int] = {}

    def understood(self, message: Any) -> Any:  # noqa: ANN401
        """The ask in a message. Of a list that is too long, one item too many is understood, for which the
        verb refuses it, and none of the others."""
        for name, most in self.most.items():
            del getattr(message, name)[most + 1 :]
        return self.ask.decode(message)

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
