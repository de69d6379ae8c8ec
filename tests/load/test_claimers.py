"""64 claimers on one SQLite file: every job is claimed once, by the log."""

import asyncio
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

from holdfast.core.catalogue import EventType
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobRequest, Registry
from holdfast.sdk.open import open_registry
from tests import ROOT

JOBS = 1_000
CLAIMERS = 64
PROCESS = "tests.load.claimer_process"


async def opened_with_jobs(url: str) -> Registry:
    registry = await open_registry(url)
    await registry.enqueue_many([JobRequest(spec=Spec())] * JOBS, actor="user:load")
    return registry


async def check_each_claimed_once(registry: Registry) -> None:
    claims: Counter[str | None] = Counter()
    cursor: str | None = None
    for _ in range(JOBS):
        page = await registry.events(after=cursor)
        claims.update(e.job_id for e in page.events if e.event_type == EventType.CLAIMED)
        cursor = page.cursor
        if not page.events:
            break
    assert len(claims) == JOBS
    assert set(claims.values()) == {1}
    assert await registry.counts() == {State.SUCCEEDED: JOBS}
    verification = await registry.verify()
    assert verification.equal, verification.mismatches


def test_64_threads_draining_1000_jobs_never_claim_one_twice(tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()
    runner = Thread(target=loop.run_forever)
    runner.start()
    registry = asyncio.run_coroutine_threadsafe(
        opened_with_jobs(f"sqlite:///{tmp_path}/jobs.db"), loop
    ).result(60)

    def claimer(n: int) -> list[str]:
        mine: list[str] = []
        for _ in range(JOBS + 1):
            claim = registry.claim(["default"], owner=f"thread-{n}")
            grants = asyncio.run_coroutine_threadsafe(claim, loop).result(60)
            if not grants:
                break
            complete = registry.complete(grants[0], Success())
            asyncio.run_coroutine_threadsafe(complete, loop).result(60)
            mine.append(grants[0].job_id)
        return mine

    try:
        with ThreadPoolExecutor(CLAIMERS) as threads:
            found = [job_id for mine in threads.map(claimer, range(CLAIMERS)) for job_id in mine]
        asyncio.run_coroutine_threadsafe(check_each_claimed_once(registry), loop).result(60)
    finally:
        asyncio.run_coroutine_threadsafe(registry.close(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        runner.join()
        loop.close()

    assert len(found) == len(set(found)) == JOBS


async def test_8_processes_of_8_claimers_draining_1000_jobs_never_claim_one_twice(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"

    registry = await opened_with_jobs(url)
    try:
        found = await asyncio.to_thread(drained_by_processes, url)
        await check_each_claimed_once(registry)
    finally:
        await registry.close()

    assert len(found) == len(set(found)) == JOBS


def drained_by_processes(url: str) -> list[str]:
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", PROCESS, "drain", url, f"process-{n}", "8"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(CLAIMERS // 8)
    ]
    try:
        return [job_id for process in processes for job_id in process.communicate(timeout=60)[0].split()]
    finally:
        for process in processes:
            process.kill()
            process.wait()
