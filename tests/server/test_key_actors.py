"""In whose name a key acts; and each item of a batch is checked on its own."""

import pytest
from connectrpc.code import Code
from protobuf.wkt import Timestamp

from holdfast.core.access import Scope
from holdfast.core.errors import NotFound
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobFilter, JobRequest
from holdfast.server.context import ServerSettings
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.generated.job.v1 import job_pb as old
from tests.server.access_calls import done
from tests.server.connect_client import refusal_code
from tests.server.keyed_server import ALL, QUEUE, KeyedServer, create, fact, key
from tests.server.served_registry import open_served


def follow_up(queue: str) -> pb.JobRequest:
    return pb.JobRequest(spec=pb.Spec(kind="report", queue=queue), submitted_by="user:admin")


async def test_a_worker_submits_nothing_but_follow_ups_into_its_own_queues(
    keyed: KeyedServer,
) -> None:
    worker = await key(keyed, "limited", Scope.WORK, queues=(QUEUE, "next"))
    subject = await keyed.subject("limited", "running")

    async def complete(queue: str) -> pb.JobOrError:
        ends = done(subject.token, pb.Success())
        ends.follow_ups = [follow_up(queue)]
        asked = pb.CompleteRequest(completions=[ends])
        return (await worker.registry.complete(asked)).answers[0]

    refused, before = await complete("far"), await keyed.registry.status(subject.job_id)
    taken = await complete("next")

    [made] = (await keyed.registry.list_jobs(JobFilter(queue="next"))).jobs
    assert refused.answer is not None
    assert (refused.answer.field, taken.answer and taken.answer.field) == ("error", "job")
    assert not before.ended
    assert made.submitted_by == "worker:w-1"
    asked = pb.EnqueueRequest(requests=[follow_up(QUEUE)])
    call = worker.registry.enqueue(asked)
    assert await refusal_code(call) is Code.PERMISSION_DENIED


async def test_nobody_acts_in_the_name_of_somebody_else(keyed: KeyedServer) -> None:
    root, forged = await key(keyed, "root", *ALL), "user:admin"
    asked = pb.EnqueueRequest(requests=[follow_up(QUEUE)], actor=forged)
    [job] = (await root.registry.enqueue(asked)).jobs
    claim = pb.ClaimRequest(queues=[QUEUE], owner="w-1")
    [grant] = (await root.registry.claim(claim)).grants
    said = pb.Event(
        event_type="custom",
        event_class="worker",
        occurred_at=Timestamp(seconds=1),
        sequence=1,
        actor=forged,
    )
    fact = pb.Event(
        event_type="sent",
        event_class="external",
        occurred_at=Timestamp(seconds=1),
        given_id="fact-1",
        job_id=job.job_id,
        actor=forged,
    )
    publish = pb.PublishRequest(task_token=grant.task_token, events=[said])
    await root.registry.publish(publish)
    await root.registry.record(pb.RecordRequest(events=[fact]))
    cancel = pb.CancelRequest(job_id=job.job_id, actor=forged, hard=True)
    await root.registry.cancel(cancel)
    made = await create(root, name="new", scopes=["work"], queues=["*"], actor=forged)

    log = (await keyed.registry.logs(job.job_id)).events
    assert job.submitted_by == "key:root"
    assert {event.actor for event in log} == {"user:root", "worker:w-1@root"}
    assert made.key is not None
    assert made.key.created_by == "user:root"


async def test_each_item_of_a_batch_is_judged_on_its_own(keyed: KeyedServer) -> None:
    """What the first may be says nothing about the others."""

    caller = await key(keyed, "limited", *ALL, queues=("other", QUEUE), regions=("us",))
    far, token = await keyed.subject("zoe", "running"), "A" * 60
    near = follow_up("other")
    [mine] = (await caller.registry.enqueue(pb.EnqueueRequest(requests=[near]))).jobs
    claim = pb.ClaimRequest(queues=["other"], owner="w-1")
    [grant] = (await caller.registry.claim(claim)).grants

    mixed = pb.EnqueueRequest(requests=[near, follow_up("third")])
    claims = pb.ClaimRequest(queues=["other", "third"], owner="w-1")
    facts = [fact(mine.job_id), fact(far.job_id)]
    codes = [
        await refusal_code(caller.registry.enqueue(mixed)),
        await refusal_code(caller.registry.claim(claims)),
        await refusal_code(caller.registry.record(pb.RecordRequest(events=facts))),
    ]
    asked = pb.StatusRequest(job_ids=[far.job_id, mine.job_id])
    shown = (await caller.registry.status(asked)).answers
    tokens = (token, far.token, grant.task_token)
    ends = pb.CompleteRequest(completions=[done(one, pb.Success()) for one in tokens])
    ended = await caller.registry.complete(ends)

    denied, missing = Code.PERMISSION_DENIED, Code.NOT_FOUND
    assert codes == [denied, denied, missing]
    assert sum((await keyed.registry.counts()).values()) == 2
    assert [one.answer and one.answer.field for one in shown] == [None, "job"]
    assert [one.answer and one.answer.field for one in ended.answers] == [
        "error",
        "error",
        "job",
    ]
    assert not (await keyed.registry.status(far.job_id)).ended
    assert all(event.given_id is None for event in (await keyed.registry.logs(mine.job_id)).events)


async def test_a_key_does_not_own_what_somebody_of_its_name_submitted_at_the_store() -> None:
    async with open_served(ServerSettings(keys=True)) as served:
        spec = Spec(queue="q")
        await served.registry.enqueue(JobRequest(spec=spec, job_id="theirs"), actor="user:alice")
        _, text = await served.registry.create_key(name="alice", scopes=[Scope.SUBMIT], actor="user:root")
        alice, clients = served.server.remote(text), await served.key("alice", Scope.SUBMIT)

        with pytest.raises(NotFound):
            await alice.status("theirs")
        with pytest.raises(NotFound):
            await alice.cancel("theirs", actor="user:alice")

        forged = JobRequest(spec=spec, job_id="hers", submitted_by="user:root")
        assert (await alice.enqueue(forged, actor="user:alice")).submitted_by == "key:alice"
        assert (await alice.cancel("hers", actor="user:alice")).state is State.CANCELLED
        asked = old.EnqueueJobRequest(job_params=old.JobParams(command="echo"))
        made = await clients.jobs.enqueue_job(asked)
        assert (await served.registry.status(made.job_id)).submitted_by == "key:alice"
        await alice.close()
