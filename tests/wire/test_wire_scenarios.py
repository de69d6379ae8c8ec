"""Scenarios of the requirements as existing clients of job.v1 see them.

The forms of holdfast.v1 are in tests/scenarios: the `server` variant of the `run` fixture plays each of
them through a server. What job.v1 has no word for is shown there alone.

| scenario | job.v1 | holdfast.v1, by a server |
|---|---|---|
| 2, 3, 4, 6 | here | test_life |
| 5 | test_wire_bad_input, test_wire_curl | test_wire_errors |
| 7 | here | here, and test_ownership |
| 8 | no word | here |
| 9 | test_wire_zombie | test_ownership |
| 10, 11, 13 | here | test_ownership |
| 12 | test_wire_gone | test_wire_gone |
| 14, 15, 16 | no word | test_ownership |
| 18, 19, 20 | here: a failure is the end | test_retry_and_cancel |
| 21 | here | test_retry_and_cancel |
| 22 to 26 | test_wire_streams | test_events |
| 35 | test_wire_words | test_wire_words |
"""

import asyncio
import time

import pytest
from connectrpc.code import Code
from wire_scenes import Scene, play, refusal

from holdfast.core.errors import Conflict
from holdfast.server.context import Settings
from holdfast.wire.generated.job.v1 import job_pb as pb

REQUEST_ID = "018f3c5e-7c1a-7e6b-9f30-2b5d0f3f8a11"


def named(command: str) -> pb.EnqueueJobRequest:
    return pb.EnqueueJobRequest(
        request_id=REQUEST_ID, job_params=pb.JobParams(command=command, args=["x"])
    )


def test_twenty_equal_requests_at_once_make_one_job() -> None:
    """Scenario 2."""

    async def body(here: Scene) -> None:
        answers = await asyncio.gather(
            *(here.clients.jobs.enqueue_job(named("echo")) for _ in range(20))
        )
        again = await here.clients.jobs.enqueue_job(named("echo"))
        other = await refusal(here.clients.jobs.enqueue_job(named("rm")))

        assert {answer.job_id for answer in answers} == {again.job_id}
        assert all(answer.created_at == again.created_at for answer in answers)
        assert await here.types(again.job_id) == ["job_queued"]
        assert other is Code.FAILED_PRECONDITION

    play(body)


@pytest.mark.parametrize("success", [False, True])
def test_a_command_that_exits_3_has_failed_with_3(success: bool) -> None:
    """Scenario 3; and scenarios 18 to 20: a failure of a command is its end."""

    async def body(here: Scene) -> None:
        job_id = await here.clients.enqueue()
        token = (await here.clients.taken()).task_token
        result = pb.JobResult(success=success, exit_code=3, error_message="no such file")
        asked = pb.CompleteJobRequest(task_token=token, job_result=result)
        await here.clients.jobs.complete_job(asked)
        await here.clients.jobs.complete_job(asked)

        job = await here.clients.get(job_id)
        [failed] = await here.events(job_id, "job_failed")
        assert await refusal(here.clients.complete(token)) is Code.NOT_FOUND
        error = failed.attributes["error"]
        assert job.state == pb.JobState.FAILED
        assert job.result is not None
        assert (job.result.success, job.result.exit_code) == (False, 3)
        assert job.result.error_message == "no such file"
        assert isinstance(error, dict)
        assert error["exit_code"] == 3
        here.clock.advance(3600)
        assert await here.clients.dequeue() == []

    play(body)


def test_jobs_are_dequeued_in_order_each_with_its_own_token() -> None:
    """Scenario 4: A, B, C, and then nothing, after as long as the server waits."""

    async def body(here: Scene) -> None:
        made = [await here.clients.enqueue() for _ in "ABC"]
        taken = [await here.clients.taken() for _ in "ABC"]
        began = time.monotonic()
        nothing = await here.clients.dequeue()
        waited = time.monotonic() - began

        assert [one.job.job_id for one in taken if one.job] == made
        assert len({one.task_token for one in taken}) == 3
        assert nothing == []
        assert 0.9 <= waited < 30
        assert Settings().poll_seconds == 5

    play(body, poll_seconds=1.0)


def test_120_jobs_are_three_pages_while_new_ones_arrive() -> None:
    """Scenario 6."""

    async def body(here: Scene) -> None:
        made = [await here.clients.enqueue("reports") for _ in range(120)]
        await here.clients.enqueue("others")
        await here.clients.taken(queue="others")
        seen: list[str] = []
        for page in (1, 2, 3):
            asked = pb.ListJobsRequest(
                queue="reports", state=pb.JobState.SCHEDULED, page=page, page_size=50
            )
            answer = await here.clients.jobs.list_jobs(asked)
            seen += [job.job_id for job in answer.jobs]
            assert answer.last_page == 3
            for _ in range(3):
                made.append(await here.clients.enqueue("reports"))

        running = await here.clients.jobs.list_jobs(pb.ListJobsRequest(state=pb.JobState.RUNNING))
        assert seen == made[: len(seen)]
        assert len(seen) >= 120
        assert [job.queue for job in running.jobs] == ["others"]
        assert running.last_page == 1

    play(body)


def test_of_64_clients_one_gets_the_job() -> None:
    """Scenario 7."""

    async def body(here: Scene) -> None:
        job_id = await here.clients.enqueue()
        rest = await here.clients.enqueue("rest")
        answers = await asyncio.gather(*(here.clients.dequeue() for _ in range(64)))
        claims = await asyncio.gather(
            *(here.remote.acquire(rest, owner=f"w-{n}") for n in range(64)), return_exceptions=True
        )

        [taken] = [one for answer in answers for one in answer]
        assert taken.fencing_token == 1
        assert await here.types(job_id) == ["job_queued", "job_claimed"]
        assert sum(isinstance(claim, Conflict) for claim in claims) == 63
        assert await here.types(rest) == ["job_queued", "job_claimed"]
        assert sum(kind.conflicts for kind in here.registry.counted.kinds.values()) == 63
        assert (await here.registry.get(rest)).fencing_token == 1

    play(body)


def test_a_job_with_an_owner_is_refused_to_others_by_its_name() -> None:
    """Scenario 8."""

    async def body(here: Scene) -> None:
        job_id = await here.clients.enqueue()
        await here.clients.taken(worker_id="worker-7")
        before = await here.registry.get(job_id)

        with pytest.raises(Conflict, match="owned by worker-7"):
            await here.remote.acquire(job_id, owner="worker-9")

        assert await here.registry.get(job_id) == before
        assert (await here.clients.get(job_id)).owner == "worker-7"

    play(body)


def test_the_job_of_a_worker_that_is_gone_goes_on_as_attempt_two() -> None:
    """Scenario 10."""

    async def body(here: Scene) -> None:
        job_id = await here.clients.enqueue()
        first = await here.clients.taken(visibility_timeout_seconds=60)
        await here.pass_by(61)
        second = await here.clients.taken()
        update = pb.UpdateJobRequest(task_token=first.task_token)

        [requeued] = await here.events(job_id, "job_requeued")
        assert (first.attempt, second.attempt) == (1, 2)
        assert second.fencing_token > first.fencing_token
        assert requeued.attributes["cause"] == "lease_expired"
        assert await refusal(here.clients.jobs.update_job(update)) is Code.NOT_FOUND
        assert sum(kind.lapsed for kind in here.registry.counted.kinds.values()) == 1

    play(body)


def test_a_worker_that_updates_every_200_seconds_is_never_reclaimed() -> None:
    """Scenario 11: the timeout of 300 s is the default of job.v1."""

    async def body(here: Scene) -> None:
        job_id = await here.clients.enqueue()
        taken = await here.clients.taken()
        update = pb.UpdateJobRequest(task_token=taken.task_token)
        for _ in range(20):
            await here.pass_by(200)
            assert await here.clients.dequeue() == []
            assert (await here.clients.jobs.update_job(update)).lease_seconds == 300
        await here.clients.complete(taken.task_token)

        job = await here.clients.get(job_id)
        assert (job.state, job.attempt) == (pb.JobState.COMPLETED, 1)
        assert taken.lease_seconds == 300

    play(body)


def test_a_declared_heartbeat_that_fails_to_come_twice_is_flagged_and_then_reclaimed() -> None:
    """Scenario 11."""

    async def body(here: Scene) -> None:
        job_id = await here.clients.enqueue()
        taken = await here.clients.taken(heartbeat_interval_seconds=30)
        await here.pass_by(61)
        flags = await here.events(job_id, "job_orphan_suspected")
        assert await here.clients.dequeue() == []
        await here.pass_by(30)
        again = await here.clients.taken()

        assert taken.lease_seconds == 90
        assert len(flags) == 1
        assert again.attempt == 2

    play(body)


def test_a_dequeue_that_is_repeated_brings_the_same_grant_back() -> None:
    """Scenario 13."""

    async def body(here: Scene) -> None:
        job_id, other = await here.clients.enqueue(), await here.clients.enqueue()
        first = await here.clients.taken(request_id=REQUEST_ID)
        again = await here.clients.taken(request_id=REQUEST_ID)

        assert again == first
        assert await here.types(job_id) == ["job_queued", "job_claimed"]
        assert await here.types(other) == ["job_queued"]

    play(body)
