"""kill -9 at any moment, many times: nothing acknowledged is lost, and log and state stay one."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from holdfast.core.job import Job
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import ENDED, State
from holdfast.ports import Request
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_registry

PROCESS = Path(__file__).with_name("claimer_process.py")
JOBS = 1_000
WORKERS = 4
WORKER_KILLS = 30
SECONDS_MAX = 120
WRITER_KILLS = 1_000 if os.environ.get("HOLDFAST_LONG") == "1" else 60

T = TypeVar("T")


def asked(url: str, question: Callable[[LocalRegistry], Awaitable[T]]) -> T:
    """Open the store as after a restart, ask, and close it."""

    async def body() -> T:
        registry = await open_registry(url)
        try:
            return await question(registry)
        finally:
            await registry.close()

    return asyncio.run(body())


async def check_log_and_state_are_one(registry: LocalRegistry) -> None:
    verification = await registry.verify()
    assert verification.equal, verification.mismatches


def acknowledged(path: Path) -> list[tuple[str, State, int]]:
    """What the processes knew to be done: job, state and version."""
    lines = path.read_text(encoding="ascii").splitlines()
    return [
        (job_id, State(state), int(version)) for job_id, state, version in map(str.split, lines)
    ]


def the_jobs(url: str, job_ids: list[str]) -> dict[str, Job]:
    """Those of the jobs that exist, by id."""

    async def question(registry: LocalRegistry) -> dict[str, Job]:
        found: dict[str, Job] = {}
        for start in range(0, len(job_ids), 500):
            page = await registry.get_many(job_ids[start : start + 500])
            found |= {job.job_id: job for job in page if job is not None}
        return found

    return asked(url, question)


def test_1000_jobs_whose_workers_are_killed_all_end_and_nothing_acknowledged_is_lost(
    tmp_path: Path,
) -> None:
    url, acknowledgements = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "acknowledged"
    retry = Retry(
        max_failures=100,
        max_crashes=100,
        backoff=timedelta(milliseconds=20),
        backoff_max=timedelta(milliseconds=100),
    )
    requests = [Request(spec=Spec(retry=retry))] * JOBS
    made = asked(url, lambda registry: registry.enqueue_many(requests, actor="user:load"))

    kills = run_workers_and_kill_them(url, acknowledgements)

    jobs = the_jobs(url, [job.job_id for job in made])
    assert kills == WORKER_KILLS
    assert sum(job.crashes for job in jobs.values()) > WORKER_KILLS  # the kills hit work
    assert {job.state for job in jobs.values()} == {State.SUCCEEDED}
    assert len(jobs) == JOBS
    for job_id, state, version in acknowledged(acknowledgements):
        assert jobs[job_id].version >= version
        if state in ENDED:
            assert (jobs[job_id].state, jobs[job_id].version) == (state, version)
    asked(url, check_log_and_state_are_one)


def run_workers_and_kill_them(url: str, acknowledgements: Path) -> int:
    """Keep four workers going until all jobs have ended, killing one now and then; how many."""
    chance = random.Random(1000)
    started = 0

    def worker() -> subprocess.Popen[bytes]:
        nonlocal started
        started += 1
        command = [sys.executable, str(PROCESS), "work", url, f"w{started}", str(acknowledgements)]
        return subprocess.Popen(command)

    workers = [worker() for _ in range(WORKERS)]
    until = time.monotonic() + SECONDS_MAX
    try:
        for _ in range(WORKER_KILLS):
            time.sleep(chance.uniform(0.1, 0.6))
            n = chance.randrange(WORKERS)
            os.kill(workers[n].pid, signal.SIGKILL)
            workers[n].wait()
            workers[n] = worker()
        codes = [process.wait(timeout=max(1, until - time.monotonic())) for process in workers]
        assert codes == [0] * WORKERS
    finally:
        for process in workers:
            process.kill()
            process.wait()
    return started - WORKERS


def test_a_writer_killed_at_any_point_leaves_one_event_per_transition(tmp_path: Path) -> None:
    """Acceptance scenario 28. HOLDFAST_LONG=1 kills a thousand times."""
    url, acknowledgements = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "acknowledged"
    chance = random.Random(28)
    command = [sys.executable, str(PROCESS), "nursery", url, "", str(acknowledgements)]
    nursery = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    try:
        for kill in range(1, WRITER_KILLS + 1):
            pid = fork_a_writer(nursery, f"writer-{kill}")
            time.sleep(chance.uniform(0, 0.03))
            os.kill(pid, signal.SIGKILL)
            assert heard(nursery) == "gone"
            if kill % 20 == 0:
                asked(url, check_log_and_state_are_one)
    finally:
        nursery.kill()
        nursery.communicate()

    enqueued = [job_id for job_id, _, _ in acknowledged(acknowledgements)]
    assert enqueued
    assert the_jobs(url, enqueued).keys() == set(enqueued)


def fork_a_writer(nursery: subprocess.Popen[str], name: str) -> int:
    """The pid of a writer that has opened the store and begun."""
    assert nursery.stdin is not None
    nursery.stdin.write(f"{name}\n")
    nursery.stdin.flush()
    first, second = heard(nursery), heard(nursery)
    assert "writing" in (first, second)
    return int(second if first == "writing" else first)


def heard(nursery: subprocess.Popen[str]) -> str:
    assert nursery.stdout is not None
    return nursery.stdout.readline().strip()
