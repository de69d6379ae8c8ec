"""Every method of every service, called with real arguments about one job."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec
from connectrpc.errors import ConnectError
from msgspec import Struct
from protobuf import Message, Oneof
from protobuf.wkt import Duration, Timestamp

from holdfast.system import SystemIds
from holdfast.wire.errors import error_from_detail, row_of
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.generated.job.v1 import job_pb as old
from tests.server.connect_client import ConnectClient
from tests.server.job_v1_client import output
from tests.server.keyed_server import (
    LAST_SEQUENCE,
    NAMES,
    NOT_FOUND,
    QUEUE,
    REGION,
    CallOutcome,
    Subject,
    canary,
    fact,
    refused,
)

TASK = {"bundle": f"sha256:{64 * 'a'}", "entrypoint": "models.seir/baseline", "seed": 7}
SPEC = pb.Spec(kind="report", queue=QUEUE, region=REGION)

Call = Callable[[ConnectClient, Subject], Awaitable[list[Message]]]


class MethodCall(Struct, frozen=True):
    """How a method is called: about a job in this state. `found` tells whether the response has the
    job; a job that the response leaves out counts as not found."""

    state: str
    call: Call
    found: Callable[[Subject, list[Any]], bool] = lambda subject, answers: True
    kind: str = "report"


async def ask(way: MethodCall, caller: ConnectClient, subject: Subject) -> CallOutcome:
    """Call the method, and return the outcome."""
    try:
        messages = await way.call(caller, subject)
        there = way.found(subject, messages)
    except ConnectError as error:
        return refused(error)
    return CallOutcome("ok" if there else NOT_FOUND, tuple(messages))


def unary(service: str, method: str, request: Callable[[Subject], Message]) -> Call:
    async def call(caller: ConnectClient, subject: Subject) -> list[Message]:
        client = getattr(caller, service)
        return [await getattr(client, method)(request(subject))]

    return call


def stream(
    service: str,
    method: str,
    request: Callable[[Subject], Message],
    last: Callable[[Any], bool] = lambda message: False,
) -> Call:
    """Read a stream to its end, or up to a message that is the `last` of interest."""

    async def call(caller: ConnectClient, subject: Subject) -> list[Message]:
        client = getattr(caller, service)
        answers = getattr(client, method)(request(subject))
        heard = []
        async with aclosing(answers):
            async for message in answers:
                heard.append(message)
                if last(message):
                    break
        return heard

    return call


def read_enough(message: pb.EventPage) -> bool:
    """Whether the page is empty, or has the last event that the worker published."""
    return not message.events or any(event.sequence == LAST_SEQUENCE for event in message.events)


async def publish_old(caller: ConnectClient, subject: Subject) -> list[Message]:
    async def requests() -> AsyncIterator[old.PublishJobEventsRequest]:
        event = output(100)
        yield old.PublishJobEventsRequest(task_token=subject.token, events=[event])

    return [await caller.events.publish_job_events(requests())]


def claim(region: str | None = REGION) -> pb.ClaimRequest:
    return pb.ClaimRequest(queues=[QUEUE], owner="w-1", region=region, limit=100)


def published_event() -> pb.Event:
    return pb.Event(
        event_type="output",
        event_class="worker",
        occurred_at=Timestamp(seconds=1),
        sequence=100,
        stream="stdout",
        data=canary("output").encode(),
    )


def among_jobs(subject: Subject, answers: list[Any]) -> bool:
    return any(job.job_id == subject.job_id for answer in answers for job in answer.jobs)


def among_events(subject: Subject, answers: list[Any]) -> bool:
    return any(event.job_id == subject.job_id for answer in answers for event in answer.events)


def answered(subject: Subject, answers: list[Any]) -> bool:
    match answers[0].answers[0].answer:
        case Oneof(field="job", value=job):
            return bool(job.job_id == subject.job_id)
        case Oneof(field="error", value=error):
            raise ConnectError(row_of(error_from_detail(error)).code, error.message, [error])
    return False


def granted(subject: Subject, answers: list[Any]) -> bool:
    return any(grant.job.job_id == subject.job_id for answer in answers for grant in answer.grants)


def dequeue(region: str) -> MethodCall:
    asked = old.DequeueJobRequest(queue=QUEUE, region=region, max_jobs=100)
    return MethodCall(
        "queued",
        stream("jobs", "dequeue_job", lambda _: asked),
        lambda one, answers: any(answer.job.job_id == one.job_id for answer in answers),
        "command",
    )


JOB_V1 = {
    "JobService.EnqueueJob": MethodCall(
        "queued",
        unary(
            "jobs",
            "enqueue_job",
            lambda _: old.EnqueueJobRequest(queue=QUEUE, job_params=old.JobParams(command="true")),
        ),
    ),
    "JobService.DequeueJob": dequeue(REGION),
    "JobService.DequeueJob of any region": dequeue(""),
    "JobService.UpdateJob": MethodCall(
        "running",
        unary("jobs", "update_job", lambda one: old.UpdateJobRequest(task_token=one.token)),
    ),
    "JobService.CompleteJob": MethodCall(
        "running",
        unary(
            "jobs",
            "complete_job",
            lambda one: old.CompleteJobRequest(
                task_token=one.token, job_result=old.JobResult(success=True)
            ),
        ),
    ),
    "JobService.ListJobs": MethodCall(
        "running",
        unary(
            "jobs", "list_jobs", lambda _: old.ListJobsRequest(queue=QUEUE, page_size=1000)
        ),
        among_jobs,
    ),
    "JobService.GetJob": MethodCall(
        "running", unary("jobs", "get_job", lambda one: old.GetJobRequest(job_id=one.job_id))
    ),
    "JobService.CancelJob": MethodCall(
        "running",
        unary("jobs", "cancel_job", lambda one: old.CancelJobRequest(job_id=one.job_id)),
    ),
    "JobEventsService.StreamJobEvents": MethodCall(
        "running",
        stream(
            "events",
            "stream_job_events",
            lambda one: old.StreamJobEventsRequest(job_id=one.job_id),
            lambda message: message.event.sequence == LAST_SEQUENCE,
        ),
    ),
    "JobEventsService.PublishJobEvents": MethodCall("running", publish_old),
}  # fmt: skip


def registry(
    method: str,
    request: Callable[[Subject], Message],
    state: str = "running",
    **more: Any,  # noqa: ANN401
) -> MethodCall:
    return MethodCall(state, unary("registry", method, request), **more)


def completion(subject: Subject) -> pb.CompleteRequest:
    success = pb.Success(result=f'"{canary("result")}"')
    return pb.CompleteRequest(completions=[done(subject.token, success)])


def done(token: str, success: pb.Success) -> pb.Completion:
    outcome = Oneof("success", success)
    return pb.Completion(task_token=token, outcome=outcome)  # type: ignore[arg-type]


def new_key(subject: Subject) -> pb.CreateKeyRequest:
    name = f"{QUEUE}:spare-{SystemIds().new()}"
    return pb.CreateKeyRequest(name=name, scopes=["admin:keys"], queues=[QUEUE])


OWNER_CALLS = {
    "Enqueue": registry("enqueue", lambda _: pb.EnqueueRequest(requests=[pb.JobRequest(spec=SPEC)])),
    "Handoff": registry(
        "handoff", lambda one: pb.HandoffRequest(job_id=one.job_id, step="begin"), "registered"
    ),
    "Replay": registry("replay", lambda one: pb.ReplayRequest(job_id=one.job_id), "dead"),
    "Claim": registry("claim", lambda _: claim(), "queued", found=granted),
    "Claim of any region": registry("claim", lambda _: claim(None), "queued", found=granted),
    "Acquire": registry("acquire", lambda one: pb.AcquireRequest(job_id=one.job_id, owner="w-1"), "queued"),
    "Heartbeat": registry("heartbeat", lambda one: pb.HeartbeatRequest(task_token=one.token)),
    "Publish": registry(
        "publish", lambda one: pb.PublishRequest(task_token=one.token, events=[published_event()])
    ),
    "Aggregate": registry("aggregate", lambda one: pb.AggregateRequest(task_token=one.token)),
    "Complete": registry("complete", completion, found=answered),
    "Release": registry("release", lambda one: pb.ReleaseRequest(task_token=one.token)),
    "Cancel": registry("cancel", lambda one: pb.CancelRequest(job_id=one.job_id)),
}


def judgement(subject: Subject) -> pb.CompleteValidationRequest:
    return pb.CompleteValidationRequest(job_id=subject.job_id, found=pb.ValidationResult(verified=len(NAMES)))


def overriding(subject: Subject) -> pb.CompleteValidationRequest:
    return pb.CompleteValidationRequest(job_id=subject.job_id, override="succeeded", reason="it is there")


OUTPUT_CALLS = {
    "ReportValidation": registry(
        "report_validation", lambda one: pb.ReportValidationRequest(job_id=one.job_id), "validating"
    ),
    "CompleteValidation": registry("complete_validation", judgement, "validating"),
    "CompleteValidation overriding": registry("complete_validation", overriding, "validating"),
    "ListOutputs": registry("list_outputs", lambda one: pb.ListOutputsRequest(job_id=one.job_id), "partial"),
    "Validate": registry("validate", lambda one: pb.ValidateRequest(job_id=one.job_id), "validating"),
    "Resume": registry("resume", lambda one: pb.ResumeRequest(job_id=one.job_id), "partial"),
    "Resume as told": registry(
        "resume",
        lambda one: pb.ResumeRequest(
            job_id=one.job_id, promise=pb.OutputPromise(names=["table"], store="elsewhere")
        ),
        "partial",
    ),
    "StoreManifest": registry(
        "store_manifest",
        lambda _: pb.StoreManifestRequest(lines=[msgspec.json.encode(TASK).decode()]),
    ),
}


def announcement(_: Subject) -> pb.AnnounceRequest:
    return pb.AnnounceRequest(name="w-1", instance="1", queues=[QUEUE], region=REGION)


READ_CALLS = {
    "Status": registry("status", lambda one: pb.StatusRequest(job_ids=[one.job_id]), found=answered),
    "ListJobs": registry("list_jobs", lambda _: pb.ListJobsRequest(limit=1000), found=among_jobs),
    "Counts": registry("counts", lambda _: pb.CountsRequest(queue=QUEUE)),
    "Counts of all": registry("counts", lambda _: pb.CountsRequest()),
    "Why": registry("why", lambda one: pb.WhyRequest(job_id=one.job_id)),
    "History": registry("history", lambda one: pb.HistoryRequest(job_id=one.job_id)),
    "Logs": registry("logs", lambda one: pb.LogsRequest(job_id=one.job_id)),
    "Events": registry("events", lambda one: pb.EventsRequest(after=one.cursor), found=among_events),
    "Tail": registry("tail", lambda _: pb.TailRequest()),
    "Watch": MethodCall(
        "running",
        stream("registry", "watch", lambda one: pb.WatchRequest(job_id=one.job_id), read_enough),
    ),
    "Watch of all": MethodCall(
        "running",
        stream("registry", "watch", lambda one: pb.WatchRequest(after=one.cursor), read_enough),
        among_events,
    ),
    "Locks": registry(
        "locks",
        lambda one: pb.LocksRequest(key=one.lock),
        found=lambda one, answers: answers[0].holder == one.job_id,
    ),
    "Announce": registry("announce", announcement),
    "Workers": registry("workers", lambda _: pb.WorkersRequest()),
    "Queues": registry("queues", lambda _: pb.QueuesRequest()),
    "Changes": registry("changes", lambda one: pb.ChangesRequest(job_id=one.job_id, seconds=0)),
    "Changes of all": registry("changes", lambda _: pb.ChangesRequest()),
    "Changes for a claim": registry("changes", lambda _: pb.ChangesRequest(claim=claim(), seconds=0)),
}

ADMIN_CALLS = {
    "Record": registry("record", lambda one: pb.RecordRequest(events=[fact(one.job_id)])),
    "Record about no job": registry("record", lambda _: pb.RecordRequest(events=[fact(None)])),
    "Expire": registry("expire", lambda _: pb.ExpireRequest()),
    "Prune": registry("prune", lambda _: pb.PruneRequest(older_than=Duration(seconds=10**8))),
    "Verify": registry("verify", lambda _: pb.VerifyRequest()),
    "Doctor": registry("doctor", lambda _: pb.DoctorRequest()),
    "Now": registry("now", lambda _: pb.NowRequest()),
    "CreateKey": registry("create_key", new_key),
    "ListKeys": registry("list_keys", lambda _: pb.ListKeysRequest()),
    "RevokeKey": registry("revoke_key", lambda one: pb.RevokeKeyRequest(key_id=one.key_id), "key"),
}

METHOD_CALLS = JOB_V1 | {
    f"RegistryService.{name}": way
    for name, way in (OWNER_CALLS | OUTPUT_CALLS | READ_CALLS | ADMIN_CALLS).items()
}
"""How every method is called; what follows a space tells two ways of calling one method apart."""
