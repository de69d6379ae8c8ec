"""The verbs of `holdfast.v1`: the request and the response of each, and how these are encoded."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from holdfast.core.limits import BATCH_ITEMS_MAX, EVENTS_PER_PUBLISH_MAX
from holdfast.ports import Announced, EventPage, HistoryPage, JobPage, OutputPage, PruneResult, Resumption
from holdfast.wire import requests, responses
from holdfast.wire.batch_codecs import BatchCodec, CompletionsCodec
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.mapping import Mapping
from holdfast.wire.values import (
    EVENT,
    FINDING,
    GRANT,
    JOB,
    JOB_REQUEST,
    KEY,
    OUTPUT,
    OUTPUT_PROMISE,
    PROGRESS,
    QUEUE,
    RESOURCE_LOCK,
    VALIDATION_RESULT,
    VERIFICATION,
    WORKER,
)


class Codec(Protocol):
    """Values of one type as messages of another, both ways."""

    value: type[Any]

    def encode(self, value: Any, /) -> Any: ...  # noqa: ANN401

    def decode(self, message: Any, /) -> Any: ...  # noqa: ANN401

    def read(self, message: Any, /) -> Any: ...  # noqa: ANN401


class Load(StrEnum):
    """What a call costs the server: calls of one load do not wait behind calls of another."""

    OWNER = "owner"
    """Made by the owner of an attempt, whose lease runs meanwhile: served before all others."""
    LIGHT = "light"
    HEAVY = "heavy"
    """Reads or returns much."""
    CHORE = "chore"
    """Reads the whole store, or an output store, however long that takes."""
    WAIT = "wait"
    """Waits for something to happen, at almost no cost."""


class Caller(StrEnum):
    """Who may call a verb of which the server only checks the caller, and then calls the registry with the
    fields of the request. Such a verb needs no code in the server, and no route."""

    SUBMITTER = "submitter"
    """The submitter of the job `job_id`, or an admin of its queue."""
    OWNER = "owner"
    """The owner of the attempt, whom `task_token` identifies."""


class Verb(Struct, frozen=True):
    """One verb. Its name is that of its method, here and in the service. `jobs` returns how many jobs a
    request reads by their ids: above a few, the call is heavy. A verb that only `reads` leaves nothing
    behind, however its call ends. `list_limits` are the limits of its
    lists. A verb without `caller` has a method in `server.verbs` and a route in `server.rest.routes`."""

    name: str
    request: Codec
    response: Codec
    stream: bool = False
    reads: bool = False
    load: Load = Load.LIGHT
    caller: Caller | None = None
    jobs: Callable[[Any], int] | None = None
    list_limits: dict[str, int] = {}

    @property
    def rpc(self) -> str:
        """The name of its RPC."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def waits(self) -> bool:
        """Whether a call may take long by design: it waits, or reads the whole store."""
        return self.load in (Load.WAIT, Load.CHORE)

    def decode_request(self, message: Any) -> Any:  # noqa: ANN401
        """Return the request in a message. Of a list that is too long, only one item above the limit is
        decoded: that is enough for the verb to refuse it."""
        for name, limit in self.list_limits.items():
            del getattr(message, name)[limit + 1 :]
        return self.request.decode(message)

    def load_of(self, request: Any) -> Load:  # noqa: ANN401
        """Return what a call with this request costs."""
        return Load.HEAVY if self.jobs_of(request) > JOBS_LIGHT_MAX else self.load

    def jobs_of(self, request: Any) -> int:  # noqa: ANN401
        """Return how many jobs a call with this request reads by their ids."""
        return 0 if self.jobs is None else self.jobs(request)


JOBS_LIGHT_MAX = 4
"""The most jobs that a light call reads: each may have a payload, a result and a checkpoint of 256
KiB."""


_CLAIM = Mapping(requests.Claim, pb.ClaimRequest)
_JOB = Mapping(responses.JobResponse, pb.JobResponse, JOB)
_EVENT_PAGE = Mapping(EventPage, pb.EventPage, EVENT)

VERBS = (
    Verb(
        "enqueue",
        Mapping(requests.Enqueue, pb.EnqueueRequest, JOB_REQUEST),
        Mapping(responses.JobList, pb.EnqueueResponse, JOB),
        list_limits={"requests": BATCH_ITEMS_MAX},
    ),
    Verb("handoff", Mapping(requests.Handoff, pb.HandoffRequest), _JOB, caller=Caller.SUBMITTER),
    Verb("replay", Mapping(requests.Replay, pb.ReplayRequest), _JOB),
    Verb("claim", _CLAIM, Mapping(responses.GrantList, pb.ClaimResponse, GRANT), load=Load.WAIT),
    Verb(
        "acquire",
        Mapping(requests.Acquire, pb.AcquireRequest, JOB_REQUEST),
        Mapping(responses.GrantResponse, pb.AcquireResponse, GRANT),
    ),
    Verb(
        "heartbeat",
        Mapping(requests.Heartbeat, pb.HeartbeatRequest, PROGRESS),
        _JOB,
        load=Load.OWNER,
        caller=Caller.OWNER,
    ),
    Verb(
        "publish",
        Mapping(requests.Publish, pb.PublishRequest, EVENT),
        _JOB,
        load=Load.OWNER,
        list_limits={"events": EVENTS_PER_PUBLISH_MAX},
    ),
    Verb(
        "aggregate",
        Mapping(requests.Aggregate, pb.AggregateRequest),
        _JOB,
        load=Load.OWNER,
        caller=Caller.OWNER,
    ),
    Verb(
        "complete",
        CompletionsCodec(),
        BatchCodec(pb.CompleteResponse),
        load=Load.OWNER,
        list_limits={"completions": BATCH_ITEMS_MAX},
    ),
    Verb(
        "release",
        Mapping(requests.Release, pb.ReleaseRequest),
        _JOB,
        load=Load.OWNER,
        caller=Caller.OWNER,
    ),
    Verb("cancel", Mapping(requests.Cancel, pb.CancelRequest), _JOB, caller=Caller.SUBMITTER),
    Verb("report_validation", Mapping(requests.ReportValidation, pb.ReportValidationRequest), _JOB),
    Verb(
        "complete_validation",
        Mapping(requests.CompleteValidation, pb.CompleteValidationRequest, VALIDATION_RESULT, OUTPUT),
        _JOB,
    ),
    Verb(
        "list_outputs",
        Mapping(requests.ListOutputs, pb.ListOutputsRequest),
        Mapping(OutputPage, pb.ListOutputsResponse, OUTPUT),
        load=Load.HEAVY,
        reads=True,
    ),
    Verb("validate", Mapping(requests.Validate, pb.ValidateRequest), _JOB, load=Load.WAIT),
    Verb(
        "resume",
        Mapping(requests.Resume, pb.ResumeRequest, OUTPUT_PROMISE),
        Mapping(Resumption, pb.ResumeResponse, JOB),
        load=Load.CHORE,
    ),
    Verb(
        "store_manifest",
        Mapping(requests.StoreManifest, pb.StoreManifestRequest),
        Mapping(responses.StoredManifest, pb.StoreManifestResponse),
    ),
    Verb(
        "status",
        Mapping(requests.Status, pb.StatusRequest),
        BatchCodec(pb.StatusResponse),
        jobs=lambda request: len(request.job_ids),
        reads=True,
    ),
    Verb(
        "list_jobs",
        Mapping(requests.ListJobs, pb.ListJobsRequest, Mapping(requests.ListFilter, pb.JobFilter)),
        Mapping(JobPage, pb.ListJobsResponse, JOB),
        load=Load.HEAVY,
        reads=True,
    ),
    Verb(
        "counts",
        Mapping(requests.Counts, pb.CountsRequest),
        Mapping(responses.JobCounts, pb.CountsResponse),
        reads=True,
    ),
    Verb(
        "why",
        Mapping(requests.JobById, pb.WhyRequest),
        Mapping(responses.Explanation, pb.WhyResponse),
        reads=True,
    ),
    Verb(
        "history",
        Mapping(requests.History, pb.HistoryRequest),
        Mapping(HistoryPage, pb.HistoryResponse, EVENT),
        load=Load.HEAVY,
        reads=True,
    ),
    Verb("logs", Mapping(requests.Logs, pb.LogsRequest), _EVENT_PAGE, load=Load.HEAVY, reads=True),
    Verb("events", Mapping(requests.Events, pb.EventsRequest), _EVENT_PAGE, load=Load.HEAVY, reads=True),
    Verb(
        "tail",
        Mapping(requests.Empty, pb.TailRequest),
        Mapping(responses.EventCursor, pb.TailResponse),
        reads=True,
    ),
    Verb(
        "watch",
        Mapping(requests.Watch, pb.WatchRequest),
        _EVENT_PAGE,
        stream=True,
        load=Load.WAIT,
        reads=True,
    ),
    Verb("locks", Mapping(requests.Locks, pb.LocksRequest), RESOURCE_LOCK, reads=True),
    Verb(
        "announce",
        Mapping(requests.Announce, pb.AnnounceRequest),
        Mapping(Announced, pb.AnnounceResponse, WORKER),
    ),
    Verb(
        "workers",
        Mapping(requests.Workers, pb.WorkersRequest),
        Mapping(responses.WorkerList, pb.WorkersResponse, WORKER),
        reads=True,
    ),
    Verb(
        "queues",
        Mapping(requests.Empty, pb.QueuesRequest),
        Mapping(responses.QueueList, pb.QueuesResponse, QUEUE),
        load=Load.HEAVY,
        reads=True,
    ),
    Verb(
        "changes",
        Mapping(requests.Changes, pb.ChangesRequest, _CLAIM),
        Mapping(responses.ChangeMark, pb.ChangesResponse),
        load=Load.WAIT,
        reads=True,
    ),
    Verb(
        "record",
        Mapping(requests.Record, pb.RecordRequest, EVENT),
        Mapping(responses.RecordResult, pb.RecordResponse),
        list_limits={"events": BATCH_ITEMS_MAX},
    ),
    Verb(
        "expire",
        Mapping(requests.Expire, pb.ExpireRequest),
        Mapping(responses.ExpireResult, pb.ExpireResponse),
    ),
    Verb(
        "prune",
        Mapping(requests.Prune, pb.PruneRequest),
        Mapping(PruneResult, pb.PruneResponse),
        load=Load.CHORE,
    ),
    Verb("verify", Mapping(requests.Empty, pb.VerifyRequest), VERIFICATION, load=Load.CHORE, reads=True),
    Verb(
        "doctor",
        Mapping(requests.Empty, pb.DoctorRequest),
        Mapping(responses.DoctorReport, pb.DoctorResponse, FINDING),
        load=Load.CHORE,
        reads=True,
    ),
    Verb(
        "now",
        Mapping(requests.Empty, pb.NowRequest),
        Mapping(responses.StoreTime, pb.NowResponse),
        reads=True,
    ),
    Verb(
        "create_key",
        Mapping(requests.CreateKey, pb.CreateKeyRequest),
        Mapping(responses.CreatedKey, pb.CreateKeyResponse, KEY),
    ),
    Verb(
        "list_keys",
        Mapping(requests.Empty, pb.ListKeysRequest),
        Mapping(responses.KeyList, pb.ListKeysResponse, KEY),
        reads=True,
    ),
    Verb(
        "revoke_key",
        Mapping(requests.RevokeKey, pb.RevokeKeyRequest),
        Mapping(responses.RevokedKey, pb.RevokeKeyResponse, KEY),
    ),
)
"""All verbs, in the order of the service."""

VERBS_BY_NAME = {verb.name: verb for verb in VERBS}
