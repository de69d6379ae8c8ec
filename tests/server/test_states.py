"""Scenario 35: every state of a job in the words of each protocol."""

import asyncio
import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from holdfast.core.job import Job
from holdfast.core.lifecycle import HandoffStep, Success
from holdfast.core.outputs import ValidationResult
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobFilter, JobRequest
from holdfast.sdk.open import open_local
from holdfast.testing.world import PERMANENT, TRANSIENT
from holdfast.wire.generated.job.v1 import job_pb as pb
from tests.server.running_server import serving
from tests.server.served_registry import ServedRegistry
from tests.server.server_process import sqlite_url

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
"""The words of job.v1: the mapping of the requirements, 2.2."""

FACADE_WORDS = {
    state: word
    for word, states in {
        "PENDING": "pending submitting queued",
        "RUNNING": "assigned running aggregating validating",
        "COMPLETED": "succeeded",
        "FAILED": "partial_success failed cancelled timeout dead_lettered",
    }.items()
    for state in map(State, states.split())
}
"""The words of `/registry`."""


async def brought_to(served: ServedRegistry, state: State) -> Job:
    """A job in this state."""
    registry = served.registry
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
    asked = JobRequest(spec=spec, register=apart)
    job_id = (await registry.enqueue(asked, actor="user:ana")).job_id
    if state is State.SUBMITTING:
        await registry.handoff(job_id, HandoffStep.BEGIN, actor="user:ana")
    elif state is State.CANCELLED:
        await registry.cancel(job_id, actor="user:ana")
    elif state is State.TIMEOUT:
        await served.pass_by(61)
    elif not apart and state is not State.QUEUED:
        await owned(served, job_id, state)
    return await registry.status(job_id)


async def owned(served: ServedRegistry, job_id: str, state: State) -> None:
    registry, grant = served.registry, await served.registry.acquire(job_id, owner="w-1")
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
        found = ValidationResult(verified=1, missing=1)
        await registry.complete_validation(job_id, found, actor="validator:v")


@pytest.mark.parametrize("state", State)
async def test_every_state_has_its_word_in_each_protocol(state: State, served: ServedRegistry) -> None:
    """Scenario 35."""
    made = await brought_to(served, state)
    told = await served.job_v1.get(made.job_id)
    listed = {}
    for word in set(WORDS.values()):
        asked = pb.ListJobsRequest(queue=made.spec.queue, state=word)
        answer = await served.job_v1.jobs.list_jobs(asked)
        listed[word] = [job.job_id for job in answer.jobs]
    ours = await served.remote.list_jobs(JobFilter(states=(state,)))

    async with httpx.AsyncClient(base_url=served.server.url) as rest:
        facade = (await rest.get(f"/registry/job-status/{made.job_id}")).json()
        document = (await rest.get(f"/v1/jobs/{made.job_id}")).json()
        page = (await rest.get(f"/v1/jobs?states={state}")).json()

    assert made.state is state
    assert facade["state"] == FACADE_WORDS[state]
    assert document["state"] == state
    assert [one["job_id"] for one in page["jobs"]] == [made.job_id]
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


async def test_commands_list_every_state_by_its_name(served: ServedRegistry) -> None:
    """Scenario 35."""
    made = {}
    for state in sorted(State, key=lambda one: one is not State.TIMEOUT):  # time passes first
        made[(await brought_to(served, state)).job_id] = state

    code, told = await holdfast(served.server.url, "list", "--json")

    assert code == 0
    assert {one["job_id"]: one["state"] for one in json.loads(told)["jobs"]} == made


async def test_commands_show_the_same_by_a_server_as_by_its_store(tmp_path: Path) -> None:
    """Scenario 35: `status`, `status --watch` of what has ended, and `list --state`."""

    registry = await open_local(sqlite_url(tmp_path))
    retry = Retry(on_exhausted=OnExhausted.FAIL)
    spec = Spec(kind="report", ttl=timedelta(milliseconds=1), retry=retry)
    job = await registry.enqueue(JobRequest(spec=spec), actor="user:ana")
    await registry.enqueue(JobRequest(spec=Spec(kind="report")), actor="user:ana")
    async with asyncio.timeout(60):
        while not (await registry.status(job.job_id)).ended:
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
