"""Scenarios of the requirements as existing clients of job.v1 see them.

`tests/scenarios` plays the forms of holdfast.v1, also through a server: the `server` variant of `world`.
What job.v1 has no word for is shown there alone.

| scenario | job.v1 | holdfast.v1, by a server |
|---|---|---|
| 2, 3, 4, 6 | here | scenarios/test_lifecycle |
| 5 | test_bad_input, test_curl | wire/test_errors |
| 7 | here | here, and scenarios/test_ownership |
| 8 | no word | wire/test_errors |
| 9 | test_frozen_worker | test_frozen_worker, scenarios/test_ownership |
| 10, 11, 13 | here | scenarios/test_ownership |
| 12 | test_grants | test_grants |
| 14, 15, 16 | no word | scenarios/test_ownership |
| 18, 19, 20 | here: a failure is the end | scenarios/test_retry_and_cancel |
| 21 | here | scenarios/test_retry_and_cancel |
| 22 to 26 | test_event_streams | scenarios/test_events |
| 35 | test_states | test_states |
"""

import asyncio
import time

import pytest
from connectrpc.code import Code

from holdfast.core.errors import Conflict
from holdfast.core.spec import JOB_V1_KIND
from holdfast.server.context import ServerSettings
from holdfast.wire.generated.job.v1 import job_pb as pb
from tests.server.connect_client import refusal_code
from tests.server.served_registry import ServedRegistry, open_served

REQUEST_ID = "018f3c5e-7c1a-7e6b-9f30-2b5d0f3f8a11"


def named(command: str) -> pb.EnqueueJobRequest:
    return pb.EnqueueJobRequest(request_id=REQUEST_ID, job_params=pb.JobParams(command=command, args=["x"]))


async def test_twenty_equal_requests_at_once_make_one_job(served: ServedRegistry) -> None:
    """Scenario 2."""
    answers = await asyncio.gather(*(served.job_v1.jobs.enqueue_job(named("echo")) for _ in range(20)))
    again = await served.job_v1.jobs.enqueue_job(named("echo"))
    other = await refusal_code(served.job_v1.jobs.enqueue_job(named("rm")))

    assert {answer.job_id for answer in answers} == {again.job_id}
    assert all(answer.created_at == again.created_at for answer in answers)
    assert await served.types(again.job_id) == ["job_queued"]
    assert other is Code.FAILED_PRECONDITION


@pytest.mark.parametrize("success", [False, True])
async def test_a_command_that_exits_3_has_failed_with_3(success: bool, served: ServedRegistry) -> None:
    """Scenario 3; and scenarios 18 to 20: a failure of a command is its end."""
    job_id = await served.job_v1.enqueue()
    token = (await served.job_v1.taken()).task_token
    result = pb.JobResult(success=success, exit_code=3, error_message="no such file")
    asked = pb.CompleteJobRequest(task_token=token, job_result=result)
    await served.job_v1.jobs.complete_job(asked)
    await served.job_v1.jobs.complete_job(asked)

    job = await served.job_v1.get(job_id)
    [failed] = await served.events(job_id, "job_failed")
    assert await refusal_code(served.job_v1.complete(token)) is Code.NOT_FOUND
    error = failed.attributes["error"]
    assert job.state == pb.JobState.FAILED
    assert job.result is not None
    assert (job.result.success, job.result.exit_code) == (False, 3)
    assert job.result.error_message == "no such file"
    assert isinstance(error, dict)
    assert error["exit_code"] == 3
    served.clock.advance(3600)
    assert await served.job_v1.dequeue() == []


async def test_jobs_are_dequeued_in_order_each_with_its_own_token() -> None:
    """Scenario 4: A to E, and then nothing, after as long as the server waits."""

    async with open_served(ServerSettings(poll_seconds=1.0)) as served:
        made = [await served.job_v1.enqueue() for _ in "ABCDE"]
        taken = await served.job_v1.dequeue(max_jobs=2)
        taken += [await served.job_v1.taken() for _ in "CDE"]
        began = time.monotonic()
        nothing = await served.job_v1.dequeue()
        waited = time.monotonic() - began

        assert [one.job.job_id for one in taken if one.job] == made
        assert len({one.task_token for one in taken}) == 5
        assert nothing == []
        assert 0.9 <= waited < 30
        assert ServerSettings().poll_seconds == 5


async def test_120_jobs_are_three_pages_while_new_ones_arrive(served: ServedRegistry) -> None:
    """Scenario 6."""
    made = [await served.job_v1.enqueue("reports") for _ in range(120)]
    await served.job_v1.enqueue("others")
    await served.job_v1.taken(queue="others")
    seen: list[str] = []
    for page in (1, 2, 3):
        asked = pb.ListJobsRequest(queue="reports", state=pb.JobState.SCHEDULED, page=page, page_size=50)
        answer = await served.job_v1.jobs.list_jobs(asked)
        seen += [job.job_id for job in answer.jobs]
        assert answer.last_page == 3
        for _ in range(3):
            made.append(await served.job_v1.enqueue("reports"))

    running = await served.job_v1.jobs.list_jobs(pb.ListJobsRequest(state=pb.JobState.RUNNING))
    assert seen == made[: len(seen)]
    assert len(seen) >= 120
    assert [job.queue for job in running.jobs] == ["others"]
    assert running.last_page == 1


async def test_of_64_clients_one_gets_the_job(served: ServedRegistry) -> None:
    """Scenario 7."""
    job_id = await served.job_v1.enqueue()
    rest = await served.job_v1.enqueue("rest")
    answers = await asyncio.gather(*(served.job_v1.dequeue() for _ in range(64)))
    claims = await asyncio.gather(
        *(served.remote.acquire(rest, owner=f"w-{n}") for n in range(64)), return_exceptions=True
    )

    [taken] = [one for answer in answers for one in answer]
    assert taken.fencing_token == 1
    assert await served.types(job_id) == ["job_queued", "job_claimed"]
    assert sum(isinstance(claim, Conflict) for claim in claims) == 63
    assert await served.types(rest) == ["job_queued", "job_claimed"]
    assert sum(kind.conflicts for kind in served.registry.counters.kinds.values()) == 63
    assert (await served.registry.status(rest)).fencing_token == 1


async def test_the_job_of_a_worker_that_is_gone_goes_on_as_attempt_two(
    served: ServedRegistry,
) -> None:
    """Scenario 10."""
    job_id = await served.job_v1.enqueue()
    first = await served.job_v1.taken(visibility_timeout_seconds=60)
    await served.pass_by(61)
    second = await served.job_v1.taken()
    update = pb.UpdateJobRequest(task_token=first.task_token)

    [requeued] = await served.events(job_id, "job_requeued")
    assert (first.attempt, second.attempt) == (1, 2)
    assert second.fencing_token > first.fencing_token
    assert requeued.attributes["cause"] == "lease_expired"
    assert await refusal_code(served.job_v1.jobs.update_job(update)) is Code.NOT_FOUND
    assert sum(kind.lapsed for kind in served.registry.counters.kinds.values()) == 1


async def test_a_worker_that_updates_every_200_seconds_is_never_reclaimed(
    served: ServedRegistry,
) -> None:
    """Scenario 11: the timeout of 300 s is the default of job.v1."""
    job_id = await served.job_v1.enqueue()
    taken = await served.job_v1.taken()
    update = pb.UpdateJobRequest(task_token=taken.task_token)
    for _ in range(20):
        await served.pass_by(200)
        assert await served.job_v1.dequeue() == []
        assert (await served.job_v1.jobs.update_job(update)).lease_seconds == 300
    await served.job_v1.complete(taken.task_token)

    job = await served.job_v1.get(job_id)
    assert (job.state, job.attempt) == (pb.JobState.COMPLETED, 1)
    assert taken.lease_seconds == 300


async def test_a_declared_heartbeat_that_fails_to_come_twice_is_flagged_and_then_reclaimed(
    served: ServedRegistry,
) -> None:
    """Scenario 11."""
    job_id = await served.job_v1.enqueue()
    taken = await served.job_v1.taken(heartbeat_interval_seconds=30)
    await served.pass_by(61)
    flags = await served.events(job_id, "job_orphan_suspected")
    assert await served.job_v1.dequeue() == []
    await served.pass_by(30)
    again = await served.job_v1.taken()

    assert taken.lease_seconds == 90
    assert len(flags) == 1
    assert again.attempt == 2


async def test_a_dequeue_that_is_repeated_brings_the_same_grant_back(
    served: ServedRegistry,
) -> None:
    """Scenario 13."""
    job_id, other = await served.job_v1.enqueue(), await served.job_v1.enqueue()
    first = await served.job_v1.taken(request_id=REQUEST_ID)
    again = await served.job_v1.taken(request_id=REQUEST_ID)

    assert again == first
    assert await served.types(job_id) == ["job_queued", "job_claimed"]
    assert await served.types(other) == ["job_queued"]


DAY_SECONDS = 24 * 3600


@pytest.mark.parametrize(
    "metadata", [{"note": "v" * 300}, {f"k{n}": "v" for n in range(70)}, {"k" * 300: "v"}]
)
async def test_metadata_of_job_v1_comes_back_as_it_was_given(
    metadata: dict[str, str], served: ServedRegistry
) -> None:
    clients = served.job_v1
    params = pb.JobParams(command="echo", args=["a"], owner="ana", metadata=metadata)
    made = await clients.jobs.enqueue_job(pb.EnqueueJobRequest(job_params=params))
    taken = await clients.taken()

    for job in (await clients.get(made.job_id), taken.job):
        assert job is not None
        assert (job.kind, job.job_params) == (JOB_V1_KIND, params)


async def test_more_than_a_day_of_visibility_is_a_day(served: ServedRegistry) -> None:
    clients = served.job_v1
    await clients.enqueue()
    taken = await clients.taken(visibility_timeout_seconds=2 * DAY_SECONDS)
    assert taken.lease_seconds == DAY_SECONDS
    asked = pb.UpdateJobRequest(task_token=taken.task_token, visibility_timeout_seconds=2**31 - 1)
    assert (await clients.jobs.update_job(asked)).lease_seconds == DAY_SECONDS


async def cancel(served: ServedRegistry, job_id: str, *, hard: bool = False) -> pb.Job:
    asked = pb.CancelJobRequest(job_id=job_id, reason="enough", hard=hard)
    job = (await served.job_v1.jobs.cancel_job(asked)).job
    assert job is not None
    return job


async def stop(served: ServedRegistry, token: str) -> None:
    """What a worker of job.v1 says when it was asked to stop, and did."""
    result = pb.JobResult(success=False, exit_code=143, error_message="terminated")
    asked = pb.CompleteJobRequest(task_token=token, job_result=result)
    await served.job_v1.jobs.complete_job(asked)


async def test_a_soft_cancel_is_told_to_the_worker_who_stops(served: ServedRegistry) -> None:
    """Scenario 21."""
    job_id = await served.job_v1.enqueue()
    token = (await served.job_v1.taken(worker_id="worker-7")).task_token
    update = pb.UpdateJobRequest(task_token=token)
    before = await served.job_v1.jobs.update_job(update)
    asked = await cancel(served, job_id)
    told = await served.job_v1.jobs.update_job(update)
    await stop(served, token)

    job = await served.job_v1.get(job_id)
    assert (before.cancel_requested, told.cancel_requested) == (False, True)
    assert (asked.state, asked.cancel_requested) == (pb.JobState.RUNNING, True)
    assert asked.owner == "worker-7"
    assert job.state == pb.JobState.CANCELLED
    assert await served.job_v1.dequeue() == []


async def test_a_soft_cancel_that_is_ignored_ends_the_job_with_its_lease(
    served: ServedRegistry,
) -> None:
    """Scenario 21."""
    job_id = await served.job_v1.enqueue()
    token = (await served.job_v1.taken(visibility_timeout_seconds=60)).task_token
    await cancel(served, job_id)
    await served.pass_by(61)

    assert (await served.job_v1.get(job_id)).state == pb.JobState.CANCELLED
    assert await refusal_code(served.job_v1.complete(token)) is Code.NOT_FOUND
    assert await served.job_v1.dequeue() == []


async def test_after_a_hard_cancel_the_workers_completion_is_refused(
    served: ServedRegistry,
) -> None:
    """Scenario 21; and a job that was never claimed never runs."""
    job_id = await served.job_v1.enqueue()
    token = (await served.job_v1.taken()).task_token
    ended = await cancel(served, job_id, hard=True)
    refused = await refusal_code(served.job_v1.complete(token))
    waiting = await cancel(served, await served.job_v1.enqueue())

    assert ended.state == waiting.state == pb.JobState.CANCELLED
    assert ended.reason == "enough"
    assert refused is Code.NOT_FOUND
    assert await refusal_code(cancel(served, job_id)) is Code.FAILED_PRECONDITION
    assert await served.job_v1.dequeue() == []


async def test_an_attempt_that_has_had_its_time_is_ended_when_it_asks_for_more(
    served: ServedRegistry,
) -> None:
    params = pb.JobParams(command="sleep", args=["1000"], timeout_seconds=60)
    made = await served.job_v1.jobs.enqueue_job(pb.EnqueueJobRequest(job_params=params))
    got = await served.job_v1.taken()
    asked = pb.UpdateJobRequest(task_token=got.task_token)
    await served.job_v1.jobs.update_job(asked)
    await served.pass_by(59)
    await served.job_v1.jobs.update_job(asked)
    await served.pass_by(1)

    assert await refusal_code(served.job_v1.jobs.update_job(asked)) is Code.NOT_FOUND

    answer = await served.job_v1.jobs.get_job(pb.GetJobRequest(job_id=made.job_id))
    assert answer.job is not None
    assert answer.job.state is pb.JobState.FAILED
    assert answer.job.result is not None
    assert "timeout of 60 s" in answer.job.result.error_message
