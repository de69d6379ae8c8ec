"""Scenarios 21 and 35 over the wire: cancelling, and one job in the words of each protocol."""

import asyncio
import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from connectrpc.code import Code
from wire_load_world import sqlite_url
from wire_scenes import Scene, play, refusal

from holdfast.core.job import Job
from holdfast.core.lifecycle import HandoffStep, Success
from holdfast.core.outputs import Found
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Filter, Request
from holdfast.sdk.open import open_local
from holdfast.testing.world import PERMANENT, TRANSIENT
from holdfast.wire.generated.job.v1 import job_pb as pb
from wire_world import serving


async def cancel(here: Scene, job_id: str, *, hard: bool = False) -> pb.Job:
    asked = pb.CancelJobRequest(job_id=job_id, reason="enough", hard=hard)
    job = (await here.clients.jobs.cancel_job(asked)).job
    assert job is not None
    return job


async def stop(here: Scene, token: str) -> None:
    """What a worker of job.v1 says when it was asked to stop, and did."""
    result = pb.JobResult(success=False, exit_code=143, error_message="terminated")
    asked = pb.CompleteJobRequest(task_token=token, job_result=result)
    await here.clients.jobs.complete_job(asked)


def test_a_soft_cancel_is_told_to_the_worker_who_stops() -> None:
    """Scenario 21."""

    async def body(here: Scene) -> None:
        job_id = await here.clients.enqueue()
        token = (await here.clients.taken()).task_token
        update = pb.UpdateJobRequest(task_token=token)
        before = await here.clients.jobs.update_job(update)
        asked = await cancel(here, job_id)
        told = await here.clients.jobs.update_job(update)
        await stop(here, token)

        job = await here.clients.get(job_id)
        assert (before.cancel_requested, told.cancel_requested) == (False, True)
        assert (asked.state, asked.cancel_requested) == (pb.JobState.RUNNING, True)
        assert job.state == pb.JobState.CANCELLED
        assert await here.clients.dequeue() == []

    play(body)


def test_a_soft_cancel_that_is_ignored_ends_the_job_with_its_lease() -> None:
    """Scenario 21."""

    async def body(here: Scene) -> None:
        job_id = await here.clients.enqueue()
        token = (await here.clients.taken(visibility_timeout_seconds=60)).task_token
        await cancel(here, job_id)
        await here.pass_by(61)

        assert (await here.clients.get(job_id)).state == pb.JobState.CANCELLED
        assert await refusal(here.clients.complete(token)) is Code.NOT_FOUND
        assert await here.clients.dequeue() == []

    play(body)


def test_after_a_hard_cancel_the_workers_completion_is_refused() -> None:
    """Scenario 21; and a job that was never claimed never runs."""

    async def body(here: Scene) -> None:
        job_id = await here.clients.enqueue()
        token = (await here.clients.taken()).task_token
        ended = await cancel(here, job_id, hard=True)
        refused = await refusal(here.clients.complete(token))
        waiting = await cancel(here, await here.clients.enqueue())

        assert ended.state == waiting.state == pb.JobState.CANCELLED
        assert ended.reason == "enough"
        assert refused is Code.NOT_FOUND
        assert await refusal(cancel(here, job_id)) is Code.FAILED_PRECONDITION
        assert await here.clients.dequeue() == []

    play(body)


WORDS = {
    State.PENDING: pb.JobState.SCHEDULED,
    State.SUBMITTING: pb.JobState.SCHEDULED,
    State.QUEUED: pb.JobState.SCHEDULED,
    State.ASSIGNED: pb.JobState.RUNNING,
    State.RUNNING: pb.JobState.RUNNING,
    State.AGGREGATING: pb.JobState.RUNNING,
    State.VALIDATING: pb.JobState.RUNNING,
    State.SUCCEEDED: pb.JobState.COMPLETED,
    State.PARTIAL_SUCCESS: pb.JobState.FAILED,
    State.FAILED: pb.JobState.FAILED,
    State.CANCELLED: pb.JobState.CANCELLED,
    State.TIMEOUT: pb.JobState.FAILED,
    State.DEAD_LETTERED: pb.JobState.FAILED,
}
"""The mapping of the requirements, 2.2."""


async def brought_to(here: Scene, state: State) -> Job:
    """A job in this state."""
    registry = here.registry
    spec = Spec(
        kind="command",
        queue=f"in-{state}",
        promised_outputs=2 if state in (State.VALIDATING, State.PARTIAL_SUCCESS) else 0,
        ttl=timedelta(seconds=60) if state is State.TIMEOUT else None,
        retry=Retry(
            max_failures=1,
            on_exhausted=OnExhausted.FAIL if state is State.TIMEOUT else OnExhausted.DEAD_LETTER,
        ),
    )
    apart = state in (State.PENDING, State.SUBMITTING)
    asked = Request(spec=spec, register=apart)
    job_id = (await registry.enqueue(asked, actor="user:ana")).job_id
    if state is State.SUBMITTING:
        await registry.handoff(job_id, HandoffStep.BEGIN, actor="user:ana")
    elif state is State.CANCELLED:
        await registry.cancel(job_id, actor="user:ana")
    elif state is State.TIMEOUT:
        await here.pass_by(61)
    elif not apart and state is not State.QUEUED:
        await owned(here, job_id, state)
    return await registry.get(job_id)


async def owned(here: Scene, job_id: str, state: State) -> None:
    registry, grant = here.registry, await here.registry.acquire(job_id, owner="w-1")
    if state is State.RUNNING:
        await registry.heartbeat(grant)
    elif state is State.AGGREGATING:
        await registry.aggregate(grant)
    elif state is State.FAILED:
        await registry.complete(grant, PERMANENT)
    elif state is State.DEAD_LETTERED:
        await registry.complete(grant, TRANSIENT)
    elif state is not State.ASSIGNED:
        await registry.complete(grant, Success())
    if state is State.PARTIAL_SUCCESS:
        found = Found(verified=1, missing=1)
        await registry.judge(job_id, found, actor="validator:v")


@pytest.mark.parametrize("state", State)
def test_every_state_has_its_word_in_each_protocol(state: State) -> None:
    """Scenario 35."""

    async def body(here: Scene) -> None:
        made = await brought_to(here, state)
        told = await here.clients.get(made.job_id)
        listed = {}
        for word in set(WORDS.values()):
            asked = pb.ListJobsRequest(queue=made.spec.queue, state=word)
            answer = await here.clients.jobs.list_jobs(asked)
            listed[word] = [job.job_id for job in answer.jobs]
        ours = await here.remote.list_jobs(Filter(states=(state,)))

        assert made.state is state
        assert told.state == WORDS[state]
        assert [word for word, ids in listed.items() if ids] == [WORDS[state]]
        assert ours.jobs == (made,)
        assert (told.result is not None) == made.ended
        if told.result is not None:
            assert told.result.success == (state is State.SUCCEEDED)
            assert bool(told.result.error_message) == (state is not State.SUCCEEDED)
        if state is State.PARTIAL_SUCCESS:
            assert told.result is not None
            assert told.result.error_message == "1 of 2 promised outputs are missing."

    play(body)


async def holdfast(store: str, *arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "holdfast",
        *arguments,
        env={**os.environ, "HOLDFAST_STORE": store},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        told, _ = await process.communicate()
    return process.returncode, told.decode()


def test_commands_show_the_same_by_a_server_as_by_its_store(tmp_path: Path) -> None:
    """Scenario 35: `status`, `status --watch` of what has ended, and `list --state`."""

    async def body() -> None:
        registry = await open_local(sqlite_url(tmp_path))
        retry = Retry(on_exhausted=OnExhausted.FAIL)
        spec = Spec(kind="report", ttl=timedelta(milliseconds=1), retry=retry)
        job = await registry.enqueue(Request(spec=spec), actor="user:ana")
        await registry.enqueue(Request(spec=Spec(kind="report")), actor="user:ana")
        async with asyncio.timeout(60):
            while not (await registry.get(job.job_id)).ended:
                await registry.expire()
        async with serving(registry) as served:
            shown = [
                (
                    await holdfast(store, "status", job.job_id, "--json"),
                    await holdfast(store, "list", "--state", "timeout", "--json"),
                    (await holdfast(store, "status", job.job_id, "--watch"))[0],
                )
                for store in (served.url, sqlite_url(tmp_path))
            ]
        await registry.close()

        status, listed, watched = shown[0]
        assert shown[0] == shown[1]
        assert json.loads(status[1])["state"] == "timeout"
        assert [one["job_id"] for one in json.loads(listed[1])["jobs"]] == [job.job_id]
        assert watched not in (0, None)

    asyncio.run(body())


def test_an_attempt_that_has_had_its_time_is_ended_when_it_asks_for_more() -> None:
    async def body(here: Scene) -> None:
        params = pb.JobParams(command="sleep", args=["1000"], timeout_seconds=60)
        made = await here.clients.jobs.enqueue_job(pb.EnqueueJobRequest(job_params=params))
        got = await here.clients.taken()
        asked = pb.UpdateJobRequest(task_token=got.task_token)
        await here.clients.jobs.update_job(asked)
        await here.pass_by(59)
        await here.clients.jobs.update_job(asked)
        await here.pass_by(1)

        assert await refusal(here.clients.jobs.update_job(asked)) is Code.NOT_FOUND

        answer = await here.clients.jobs.get_job(pb.GetJobRequest(job_id=made.job_id))
        assert answer.job is not None
        assert answer.job.state is pb.JobState.FAILED
        assert answer.job.result is not None
        assert "timeout of 60 s" in answer.job.result.error_message

    play(body)
