"""Claims by workers of job.v1: which jobs they get, how long they wait, and how long their lease is."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest

from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_local
from holdfast.server.context import ServerSettings
from tests.server.job_v1_poller import PollingWorker, Refused
from tests.server.programs import environment, service
from tests.server.programs import until as found
from tests.server.running_server import RunningServer, serving
from tests.server.served_registry import ServedRegistry
from tests.server.server_process import until

TIMEOUT_SECONDS = 60


def holdfast(url: str, *words: str) -> str:
    """What the program says."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words],
        env=environment(HOLDFAST_STORE=url, PASSWORD="hunter2"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def submitted(url: str, *options: str) -> str:
    return holdfast(url, "submit", "--cwd", "/", *options, "--", "true").split()[-1]


def state_of(worker: PollingWorker, job_id: str) -> str:
    return str(worker.call("JobService/GetJob", jobId=job_id)["job"]["state"])


def test_a_job_with_limits_goes_to_a_holdfast_worker_and_blocks_nobody_else(tmp_path: Path) -> None:
    with service(tmp_path) as url:
        limited = submitted(url, "--memory", "20MB")
        secret = submitted(url, "--secret", "PASSWORD")
        promising = submitted(url, "--output", "/etc/hostname")
        plain = submitted(url, "--timeout", "2s", "--lock", "disk", "--pty")
        worker = PollingWorker(url)

        got = worker.poll(3, maxJobs=10).jobs
        more = worker.poll(3, maxJobs=10).jobs

        assert ([one["job"]["jobId"] for one in got], more) == ([plain], [])
        assert "needs a holdfast worker: it has a memory limit" in holdfast(url, "why", limited)
        assert "takes secrets" in holdfast(url, "why", secret)
        assert "promises outputs" in holdfast(url, "why", promising)

        worker.complete(got[0]["taskToken"])
        holdfast(url, "worker", "--drain", "--spool", str(tmp_path / "spool"))

        for job_id in (limited, secret, plain):
            assert state_of(worker, job_id) == "JOB_STATE_COMPLETED"


def test_the_server_ends_by_itself_what_a_foreign_worker_lets_run_too_long(tmp_path: Path) -> None:
    with service(tmp_path) as url:
        worker = PollingWorker(url)
        made = worker.call(
            "JobService/EnqueueJob",
            jobParams={"command": "sleep", "args": ["60"], "timeoutSeconds": 1},
        )
        [taken] = worker.poll().jobs
        worker.begin(taken["taskToken"])

        found(lambda: state_of(worker, made["jobId"]) == "JOB_STATE_FAILED" or None, "the timeout")

        job = worker.call("JobService/GetJob", jobId=made["jobId"])["job"]
        assert job["result"]["errorMessage"] == "It ran longer than its timeout of 1 s."
        with pytest.raises(Refused, match="timeout of 1 s") as late:
            worker.complete(taken["taskToken"])
        assert late.value.code == "not_found"


@asynccontextmanager
async def open_polled(poll_seconds: float) -> AsyncIterator[tuple[LocalRegistry, RunningServer]]:
    registry = await open_local("memory://")
    async with serving(registry, ServerSettings(poll_seconds=poll_seconds)) as here:
        yield registry, here
    await registry.close()


async def test_a_poll_with_a_deadline_is_held_beyond_the_time_of_one_without() -> None:
    async with open_polled(0.2) as (registry, here):
        patient = asyncio.create_task(asyncio.to_thread(PollingWorker(here.url).poll, 60))
        await until(lambda: here.app.context.claim_waiters.waiting() == 1)

        hasty = await asyncio.to_thread(PollingWorker(here.url).poll, None)

        assert (hasty.jobs, hasty.pause_seconds) == ([], 1.0)
        assert not patient.done()
        made = await registry.enqueue(
            JobRequest(spec=Spec(payload=encode_process_spec(ProcessSpec(argv=("true",))))),
            actor="user:ana",
        )
        got = await patient
        assert [one["job"]["jobId"] for one in got.jobs] == [made.job_id]
        assert got.pause_seconds == 0


async def test_a_poll_ends_empty_before_its_client_gives_up() -> None:
    """A deadline that passed would be an error, and errors make such a worker pause for longer."""

    async with open_polled(300) as (_, here):
        got = await asyncio.to_thread(PollingWorker(here.url).poll, 3)
        assert got.jobs == []


def asked(url: str, path: str, **body: object) -> dict[str, Any]:
    """A question as any client of REST, or of Connect, asks it."""
    told = {"content-type": "application/json"}
    request = HttpRequest(f"{url}{path}", json.dumps(body).encode(), told)
    with urlopen(request) as answer:
        said: dict[str, Any] = json.loads(answer.read())
        return said


def by_rest(url: str) -> None:
    [grant] = asked(url, "/v1/grants", queues=["default"], owner="w")["grants"]
    asked(url, "/v1/grants/heartbeat", task_token=grant["task_token"])


def by_connect(url: str) -> None:
    there = "/holdfast.v1.RegistryService"
    [grant] = asked(url, f"{there}/Claim", queues=["default"], owner="w")["grants"]
    asked(url, f"{there}/Heartbeat", taskToken=grant["taskToken"])


def by_acquiring(url: str) -> None:
    there = "/holdfast.v1.RegistryService"
    job = asked(url, f"{there}/ListJobs")["jobs"][0]["jobId"]
    grant = asked(url, f"{there}/Acquire", jobId=job, owner="w")["grant"]
    asked(url, f"{there}/Heartbeat", taskToken=grant["taskToken"])


def by_the_registry(url: str) -> None:
    job = asked(url, "/holdfast.v1.RegistryService/ListJobs")["jobs"][0]["jobId"]
    got = asked(url, "/registry/acquire-job", job_id=job, worker_id="w")
    asked(url, "/registry/heartbeat", job_id=job, worker_id="w", fencing_token=got["fencing_token"])


def by_job_v1(url: str) -> None:
    worker = PollingWorker(url)
    [taken] = worker.poll(5).jobs
    worker.begin(taken["taskToken"])


@pytest.mark.parametrize("way", [by_rest, by_connect, by_acquiring, by_the_registry, by_job_v1])
async def test_whoever_says_nothing_of_timeouts_has_them_kept_by_the_registry(
    way: Callable[[str], None], served: ServedRegistry
) -> None:
    made = await served.registry.enqueue(_timed(), actor="user:ana")
    await asyncio.to_thread(way, served.job_v1.url)

    await served.pass_by(TIMEOUT_SECONDS)

    job = await served.registry.status(made.job_id)
    assert job.error is not None
    assert (job.error.code, job.failures, job.crashes) == ("Timeout", 1, 0)


async def test_a_holdfast_worker_keeps_its_timeouts_itself(served: ServedRegistry) -> None:
    await served.registry.enqueue(_timed("1"), actor="user:ana")
    await served.registry.enqueue(_timed("2"), actor="user:ana")
    [first] = await served.remote.claim(["default"], owner="w", lease=timedelta(hours=1))
    second = await served.remote.acquire("2", owner="w", lease=timedelta(hours=1))
    grants: list[Grant] = [first, second]
    for grant in grants:
        await served.remote.heartbeat(grant)

    await served.pass_by(2 * TIMEOUT_SECONDS)

    for grant in grants:
        job = await served.registry.status(grant.job_id)
        assert job.state is State.RUNNING
        assert job.lease is not None
        assert not job.lease.timed


def _timed(job_id: str | None = None) -> JobRequest:
    spec = Spec(
        payload=encode_process_spec(ProcessSpec(argv=("sleep", "600"))),
        timeout=timedelta(seconds=TIMEOUT_SECONDS),
        lease=timedelta(hours=1),
    )
    return JobRequest(spec=spec, job_id=job_id)
