"""Every method of every service, called with real arguments about one job."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec
from connectrpc.errors import ConnectError
from msgspec import Struct
from protobuf import Message, Oneof
from protobuf.wkt import Duration, Timestamp
from wire_access_world import (
    NAMES,
    NOT_FOUND,
    QUEUE,
    REGION,
    SAID,
    Answered,
    Caller,
    Subject,
    canary,
    fact,
    refused,
)
from wire_load_clients import output

from holdfast.system import SystemIds
from holdfast.wire.errors import error_of, row_of
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.generated.job.v1 import job_pb as old

TASK = {"bundle": f"sha256:{64 * 'a'}", "entrypoint": "models.seir/baseline", "seed": 7}
SPEC = pb.Spec(kind="report", queue=QUEUE, region=REGION)

Call = Callable[[Caller, Subject], Awaitable[list[Message]]]


class Way(Struct, frozen=True):
    """How a method is called: about a job in this state. `found` says whether the answer has the job:
    one that an answer keeps silent about is not found."""

    state: str
    call: Call
    found: Callable[[Subject, list[Any]], bool] = lambda subject, answers: True
    kind: str = "report"


async def ask(way: Way, caller: Caller, subject: Subject) -> Answered:
    """Call it, and say how it went."""
    try:
        messages = await way.call(caller, subject)
        there = way.found(subject, messages)
    except ConnectError as error:
        return refused(error)
    return Answered("ok" if there else NOT_FOUND, tuple(messages))


def unary(service: str, method: str, request: Callable[[Subject], Message]) -> Call:
    async def call(caller: Caller, subject: Subject) -> list[Message]:
        client = getattr(caller, service)
        return [await getattr(client, method)(request(subject), headers=caller.headers)]

    return call


def stream(
    service: str,
    method: str,
    request: Callable[[Subject], Message],
    last: Callable[[Any], bool] = lambda message: False,
) -> Call:
    """Read a stream to its end, or up to a message that is the `last` of interest."""

    async def call(caller: Caller, subject: Subject) -> list[Message]:
        client = getattr(caller, service)
        answers = getattr(client, method)(request(subject), headers=caller.headers)
        heard = []
        async with aclosing(answers):
            async for message in answers:
                heard.append(message)
                if last(message):
                    break
        return heard

    return call


def told_all(message: pb.Slice) -> bool:
    """Whether nothing more is said, or only what is not for this caller."""
    return not message.events or any(event.sequence == SAID for event in message.events)


async def publish_old(caller: Caller, subject: Subject) -> list[Message]:
    async def requests() -> AsyncIterator[old.PublishJobEventsRequest]:
        event = output(100)
        yield old.PublishJobEventsRequest(task_token=subject.token, events=[event])

    return [await caller.events.publish_job_events(requests(), headers=caller.headers)]


def claim(region: str | None = REGION) -> pb.ClaimRequest:
    return pb.ClaimRequest(queues=[QUEUE], owner="w-1", region=region, limit=100)


def said() -> pb.Event:
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
            raise ConnectError(row_of(error_of(error)).code, error.message, [error])
    return False


def granted(subject: Subject, answers: list[Any]) -> bool:
    return any(grant.job.job_id == subject.job_id for answer in answers for grant in answer.grants)


def dequeue(region: str) -> Way:
    asked = old.DequeueJobRequest(queue=QUEUE, region=region, max_jobs=100)
    return Way(
        "queued",
        stream("jobs", "dequeue_job", lambda _: asked),
        lambda one, answers: any(answer.job.job_id == one.job_id for answer in answers),
        "command",
    )


JOB_V1 = {
    "JobService.EnqueueJob": Way(
        "queued",
        unary(
            "jobs",
            "enqueue_job",
            lambda _: old.EnqueueJobRequest(queue=QUEUE, job_params=old.JobParams(command="true")),
        ),
    ),
    "JobService.DequeueJob": dequeue(REGION),
    "JobService.DequeueJob of any region": dequeue(""),
    "JobService.UpdateJob": Way(
        "running",
        unary("jobs", "update_job", lambda one: old.UpdateJobRequest(task_token=one.token)),
    ),
    "JobService.CompleteJob": Way(
        "running",
        unary(
            "jobs",
            "complete_job",
            lambda one: old.CompleteJobRequest(
                task_token=one.token, job_result=old.JobResult(success=True)
            ),
        ),
    ),
    "JobService.ListJobs": Way(
        "running",
        unary(
            "jobs", "list_jobs", lambda _: old.ListJobsRequest(queue=QUEUE, page_size=1000)
        ),
        among_jobs,
    ),
    "JobService.GetJob": Way(
        "running", unary("jobs", "get_job", lambda one: old.GetJobRequest(job_id=one.job_id))
    ),
    "JobService.CancelJob": Way(
        "running",
        unary("jobs", "cancel_job", lambda one: old.CancelJobRequest(job_id=one.job_id)),
    ),
    "JobEventsService.StreamJobEvents": Way(
        "running",
        stream(
            "events",
            "stream_job_events",
            lambda one: old.StreamJobEventsRequest(job_id=one.job_id),
            lambda message: message.event.sequence == SAID,
        ),
    ),
    "JobEventsService.PublishJobEvents": Way("running", publish_old),
}  # fmt: skip


def registry(
    method: str,
    request: Callable[[Subject], Message],
    state: str = "running",
    **more: Any,  # noqa: ANN401
) -> Way:
    return Way(state, unary("registry", method, request), **more)


def completion(subject: Subject) -> pb.CompleteRequest:
    success = pb.Success(result=f'"{canary("result")}"')
    return pb.CompleteRequest(completions=[done(subject.token, success)])


def done(token: str, success: pb.Success) -> pb.Completion:
    outcome = Oneof("success", success)
    return pb.Completion(task_token=token, outcome=outcome)  # type: ignore[arg-type]


def new_key(subject: Subject) -> pb.CreateKeyRequest:
    name = f"{QUEUE}:spare-{SystemIds().new()}"
    return pb.CreateKeyRequest(name=name, scopes=["admin:keys"], queues=[QUEUE])


OWNING = {
    "Enqueue": registry("enqueue", lambda _: pb.EnqueueRequest(requests=[pb.Request(spec=SPEC)])),
    "Handoff": registry(
        "handoff", lambda one: pb.HandoffRequest(job_id=one.job_id, step="begin"), "registered"
    ),
    "Replay": registry("replay", lambda one: pb.ReplayRequest(job_id=one.job_id), "dead"),
    "Claim": registry("claim", lambda _: claim(), "queued", found=granted),
    "Claim of any region": registry("claim", lambda _: claim(None), "queued", found=granted),
    "Acquire": registry(
        "acquire", lambda one: pb.AcquireRequest(job_id=one.job_id, owner="w-1"), "queued"
    ),
    "Heartbeat": registry("heartbeat", lambda one: pb.HeartbeatRequest(task_token=one.token)),
    "Publish": registry(
        "publish", lambda one: pb.PublishRequest(task_token=one.token, events=[said()])
    ),
    "Aggregate": registry("aggregate", lambda one: pb.AggregateRequest(task_token=one.token)),
    "Complete": registry("complete", completion, found=answered),
    "Release": registry("release", lambda one: pb.ReleaseRequest(task_token=one.token)),
    "Cancel": registry("cancel", lambda one: pb.CancelRequest(job_id=one.job_id)),
}


def judgement(subject: Subject) -> pb.JudgeRequest:
    return pb.JudgeRequest(job_id=subject.job_id, found=pb.Found(verified=len(NAMES)))


def overriding(subject: Subject) -> pb.JudgeRequest:
    return pb.JudgeRequest(job_id=subject.job_id, override="succeeded", reason="it is there")


JUDGING = {
    "Look": registry("look", lambda one: pb.LookRequest(job_id=one.job_id), "validating"),
    "Judge": registry("judge", judgement, "validating"),
    "Judge overriding": registry("judge", overriding, "validating"),
    "ListOutputs": registry(
        "list_outputs", lambda one: pb.ListOutputsRequest(job_id=one.job_id), "partial"
    ),
    "Validate": registry(
        "validate", lambda one: pb.ValidateRequest(job_id=one.job_id), "validating"
    ),
    "Resume": registry("resume", lambda one: pb.ResumeRequest(job_id=one.job_id), "partial"),
    "Resume as told": registry(
        "resume",
        lambda one: pb.ResumeRequest(
            job_id=one.job_id, promise=pb.Promise(names=["table"], store="elsewhere")
        ),
        "partial",
    ),
    "KeepManifest": registry(
        "keep_manifest",
        lambda _: pb.KeepManifestRequest(lines=[msgspec.json.encode(TASK).decode()]),
    ),
}

LOOKING = {
    "GetJobs": registry(
        "get_jobs", lambda one: pb.GetJobsRequest(job_ids=[one.job_id]), found=answered
    ),
    "ListJobs": registry("list_jobs", lambda _: pb.ListJobsRequest(limit=1000), found=among_jobs),
    "CountJobs": registry("count_jobs", lambda _: pb.CountJobsRequest(queue=QUEUE)),
    "CountJobs of all": registry("count_jobs", lambda _: pb.CountJobsRequest()),
    "Why": registry("why", lambda one: pb.WhyRequest(job_id=one.job_id)),
    "History": registry("history", lambda one: pb.HistoryRequest(job_id=one.job_id)),
    "ReadLog": registry("read_log", lambda one: pb.ReadLogRequest(job_id=one.job_id)),
    "ReadFeed": registry(
        "read_feed", lambda one: pb.ReadFeedRequest(after=one.cursor), found=among_events
    ),
    "Tail": registry("tail", lambda _: pb.TailRequest()),
    "Watch": Way(
        "running",
        stream("registry", "watch", lambda one: pb.WatchRequest(job_id=one.job_id), told_all),
    ),
    "Watch of all": Way(
        "running",
        stream("registry", "watch", lambda one: pb.WatchRequest(after=one.cursor), told_all),
        among_events,
    ),
    "GetResource": registry(
        "get_resource",
        lambda one: pb.GetResourceRequest(key=one.lock),
        found=lambda one, answers: answers[0].holder == one.job_id,
    ),
    "AwaitChange": registry(
        "await_change", lambda one: pb.AwaitChangeRequest(job_id=one.job_id, seconds=0)
    ),
    "AwaitChange of all": registry("await_change", lambda _: pb.AwaitChangeRequest()),
    "AwaitChange for a claim": registry(
        "await_change", lambda _: pb.AwaitChangeRequest(claim=claim(), seconds=0)
    ),
}

KEEPING = {
    "Record": registry("record", lambda one: pb.RecordRequest(events=[fact(one.job_id)])),
    "Record about no job": registry("record", lambda _: pb.RecordRequest(events=[fact(None)])),
    "Expire": registry("expire", lambda _: pb.ExpireRequest()),
    "Prune": registry("prune", lambda _: pb.PruneRequest(older_than=Duration(seconds=10**8))),
    "Verify": registry("verify", lambda _: pb.VerifyRequest()),
    "Examine": registry("examine", lambda _: pb.ExamineRequest()),
    "Now": registry("now", lambda _: pb.NowRequest()),
    "CreateKey": registry("create_key", new_key),
    "ListKeys": registry("list_keys", lambda _: pb.ListKeysRequest()),
    "RevokeKey": registry("revoke_key", lambda one: pb.RevokeKeyRequest(key_id=one.key_id), "key"),
}

WAYS = JOB_V1 | {
    f"RegistryService.{name}": way for name, way in (OWNING | JUDGING | LOOKING | KEEPING).items()
}
"""How every method is called; what follows a space tells two ways of calling one method apart."""
