"""Owners are bound to their keys: no worker passes for another key's, in any protocol."""

import asyncio
from datetime import timedelta
from typing import Any, Literal

import pytest
from protobuf import Oneof

from holdfast.core.access import Scope
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.generated.job.v1 import job_pb as old
from tests.server.connect_client import ConnectClient
from tests.server.keyed_server import QUEUE, KeyedServer, key
from tests.server.raw_http_client import ThreadedServer
from tests.server.rest.rest_client import RestClient, result_of

FORGED = "payments-prod-1"


async def claim(caller: ConnectClient, job_id: str) -> None:
    asked = pb.ClaimRequest(queues=[QUEUE], owner=FORGED)
    [grant] = (await caller.registry.claim(asked)).grants
    assert grant.job is not None
    assert grant.job.job_id == job_id
    beat = pb.HeartbeatRequest(task_token=grant.task_token)
    await caller.registry.heartbeat(beat)


async def acquire(caller: ConnectClient, job_id: str) -> None:
    asked = pb.AcquireRequest(job_id=job_id, owner=FORGED)
    await caller.registry.acquire(asked)


async def dequeue(caller: ConnectClient, job_id: str) -> None:
    asked = old.DequeueJobRequest(queue=QUEUE, worker_id=FORGED)
    async for one in caller.jobs.dequeue_job(asked):
        assert one.job is not None
        assert one.job.job_id == job_id
        beat = old.UpdateJobRequest(task_token=one.task_token)
        await caller.jobs.update_job(beat)


@pytest.mark.parametrize("way", [claim, acquire, dequeue])
async def test_an_owner_is_kept_with_the_name_of_its_key(way: Any, keyed: KeyedServer) -> None:  # noqa: ANN401
    worker = await key(keyed, "reports", Scope.WORK, queues=(QUEUE,))
    spec = Spec(queue=QUEUE, kind="command" if way is dequeue else "report")
    made = await keyed.registry.enqueue(JobRequest(spec=spec), actor="user:root")

    await way(worker, made.job_id)

    job = await keyed.registry.status(made.job_id)
    mine = f"{FORGED}@reports"
    actors = {event.actor for event in await keyed.registry.history(made.job_id)}
    assert job.owner == mine
    assert actors == {"user:root", f"worker:{mine}"}
    assert mine in await keyed.registry.why(made.job_id)
    listed = pb.ListJobsRequest(which=pb.JobFilter(owner=mine))
    shown = await worker.registry.list_jobs(listed)
    assert [one.job_id for one in shown.jobs] == [made.job_id]


async def test_a_key_cannot_make_up_the_name_of_an_owner_of_another_key(keyed: KeyedServer) -> None:
    """Neither by an @ of its own, nor by a key whose name has a colon in it."""

    owners = set()
    for name, said_owner in (("a", "b:c"), ("a:b", "c"), ("a", ""), ("a", "a")):
        worker = await key(keyed, name, Scope.WORK, queues=(QUEUE,))
        made = await keyed.registry.enqueue(
            JobRequest(spec=Spec(queue=QUEUE, kind="command")), actor="user:root"
        )
        asked = old.DequeueJobRequest(queue=QUEUE, worker_id=said_owner)
        async for _ in worker.jobs.dequeue_job(asked):
            pass
        owners.add((await keyed.registry.status(made.job_id)).owner)
        for one in await keyed.registry.list_keys():
            await keyed.registry.revoke_key(one.key_id, actor="user:root")
    assert owners == {"b:c@a", "c@a:b", "a"}


async def test_the_registry_of_executions_knows_its_callers_by_the_names_they_give(
    keyed: KeyedServer,
) -> None:
    made = await keyed.registry.create_key(
        name="reports", scopes=(Scope.WORK,), queues=(QUEUE,), actor="user:root"
    )
    job = await keyed.registry.enqueue(JobRequest(spec=Spec(queue=QUEUE)), actor="user:root")
    server = ThreadedServer(keyed.server, keyed.registry, asyncio.get_running_loop())
    caller = RestClient(server, made[1])

    def play_a_life() -> list[Any]:
        taken = caller.post("/registry/acquire-job", {"job_id": job.job_id, "worker_id": "w-1"})
        token = result_of(taken)["fencing_token"]
        held = {"job_id": job.job_id, "worker_id": "w-1", "fencing_token": token}
        return [
            result_of(caller.get(f"/registry/job-status/{job.job_id}"))["owner"],
            caller.post("/registry/heartbeat", held | {"worker_id": "w-2"}).status,
            caller.post("/registry/heartbeat", held).status,
            caller.post("/registry/complete-job", held | {"result": 7}).status,
            caller.post("/registry/complete-job", held | {"result": 7}).status,
        ]

    assert await asyncio.to_thread(play_a_life) == ["w-1", 409, 200, 200, 200]
    actors = {event.actor for event in await keyed.registry.history(job.job_id)}
    assert actors == {"user:root", "worker:w-1@reports"}


@pytest.mark.parametrize("end", ["release", "complete"])
async def test_a_repeat_tells_an_earlier_owner_nothing_of_a_later_one(end: str, keyed: KeyedServer) -> None:
    """Whoever held a job once holds it no more: what the next owner keeps in it is not for them."""

    ana, bob = [await key(keyed, name, Scope.WORK, queues=(QUEUE,)) for name in ("ana", "bob")]
    retry = Retry(max_failures=3, backoff=timedelta(0))
    spec = Spec(queue=QUEUE, kind="report", retry=retry)
    made = await keyed.registry.enqueue(JobRequest(spec=spec), actor="user:root")

    async def take(caller: ConnectClient) -> str:
        asked = pb.AcquireRequest(job_id=made.job_id, owner="w-1")
        grant = (await caller.registry.acquire(asked)).grant
        assert grant is not None
        return grant.task_token

    async def give_up(token: str) -> pb.Job | None:
        if end == "release":
            back = pb.ReleaseRequest(task_token=token, op_id="op-1")
            return (await ana.registry.release(back)).job
        failure = Oneof[Literal["failure"], pb.Failure]("failure", pb.Failure(message="no"))
        done = pb.Completion(task_token=token, op_id="op-1", outcome=failure)
        asked = pb.CompleteRequest(completions=[done])
        [one] = (await ana.registry.complete(asked)).answers
        return one.answer.value if one.answer and one.answer.field == "job" else None

    token = await take(ana)
    first = await give_up(token)
    beat = pb.HeartbeatRequest(
        task_token=await take(bob),
        checkpoint='"canary"',
        progress=pb.Progress(done=1, total=2, message="canary"),
    )
    await bob.registry.heartbeat(beat)
    again = await give_up(token)

    assert (await keyed.registry.status(made.job_id)).checkpoint == "canary"
    assert first is not None
    assert again is not None
    assert (again.state, again.version) == (first.state, first.version)
    assert b"canary" not in again.to_binary()
