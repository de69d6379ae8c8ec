"""A worker that is told to leave, at any moment, leaves no job behind in its name."""

import asyncio
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

from holdfast.core.errors import Unavailable
from holdfast.core.state import LEASED, State
from holdfast.ports import Grant, JobFilter
from holdfast.registry.local import LocalRegistry
from holdfast.system import SystemIds
from tests.stores.postgres.running_server import server
from tests.worker.command_workers import CommandWorkers, SilentObserver, open_worker
from tests.worker.function_workers import FunctionWorkers, open_workers
from tests.worker.live_processes import PATIENCE_SECONDS, stop, wait_until
from verify.wire_proxy import WireProxy

APP = """
@app.job
async def naps(ctx: holdfast.Context, seconds: float):
    await asyncio.sleep(seconds)
    return ctx.attempt

@app.job
def stubborn(ctx: holdfast.Context):
    Path("here").write_text(str(os.getpid()))
    time.sleep(60)
"""
MINUTE = timedelta(seconds=60)


def left(workers: FunctionWorkers) -> list[str]:
    """Who still has a job."""
    which = JobFilter(states=tuple(sorted(LEASED)))
    return [job.owner or "" for job in workers.use(lambda r: r.list_jobs(which, limit=1000)).jobs]


def test_workers_that_are_told_to_leave_while_they_claim_leave_nothing_behind(
    workers: FunctionWorkers,
) -> None:
    for _ in range(300):
        workers.enqueue("naps", {"seconds": 0.02}, lease=MINUTE)
    for n in range(3):
        workers.start(f"w-{n}", "--lease", "60s", "-c", "8", "--leave", "5s")
    wait_until(lambda: all("runs plant:app" in workers.worker_log(f"w-{n}") for n in range(3)))
    for n in range(3):
        time.sleep(0.05)
        workers.processes[f"w-{n}"].send_signal(signal.SIGTERM)

    assert [workers.processes[f"w-{n}"].wait(PATIENCE_SECONDS) for n in range(3)] == [0, 0, 0]
    assert left(workers) == []
    jobs = workers.use(lambda r: r.list_jobs(limit=1000)).jobs
    assert {job.state for job in jobs} <= {State.QUEUED, State.SUCCEEDED}
    assert all(job.crashes == job.failures == 0 for job in jobs)
    workers.assert_consistent()


def test_a_claim_that_is_granted_while_the_worker_leaves_is_given_back(tmp_path: Path) -> None:
    with open_workers("postgres", tmp_path, APP) as workers, WireProxy(server().port) as proxy:
        for n in range(5):  # an empty answer may be on its way when the proxy freezes
            name = f"w-{n}"
            workers.start(name, "--lease", "60s", url=proxy.through(workers.url))
            wait_until(lambda: "runs plant:app" in workers.worker_log(name))  # noqa: B023
            proxy.freeze()
            job_id = workers.enqueue("naps", {"seconds": 30}, lease=MINUTE)
            time.sleep(1.5)  # a worker with nothing to do asks twice a second
            workers.processes[name].send_signal(signal.SIGTERM)
            wait_until(lambda: "Leaving" in workers.worker_log(name))  # noqa: B023
            proxy.thaw()

            assert workers.processes[name].wait(PATIENCE_SECONDS) == 0
            job = workers.job(job_id)
            assert (job.state, job.owner, job.crashes) == (State.QUEUED, None, 0)
            if workers.types(job_id) == ["job_queued", "job_claimed", "job_requeued"]:
                return
        raise AssertionError("no claim was ever under way when the worker left")


def test_no_time_to_leave_and_a_second_signal_give_back_at_once(
    sqlite_workers: FunctionWorkers,
) -> None:
    workers = sqlite_workers
    jobs = [workers.enqueue("naps", {"seconds": 30}, lease=MINUTE) for _ in range(2)]
    for n, leave in enumerate(("0s", "60s")):
        workers.start(f"w-{n}", "--lease", "60s", "-c", "1", "--leave", leave)
    for job_id in jobs:
        workers.running(job_id)
    workers.processes["w-0"].send_signal(signal.SIGTERM)
    workers.processes["w-1"].send_signal(signal.SIGTERM)
    wait_until(lambda: "Leaving" in workers.worker_log("w-1"))
    workers.processes["w-1"].send_signal(signal.SIGTERM)

    assert [workers.processes[name].wait(PATIENCE_SECONDS) for name in ("w-0", "w-1")] == [0, 0]
    for job_id in jobs:
        job = workers.job(job_id)
        assert (job.state, job.attempt, job.crashes, job.failures) == (State.QUEUED, 2, 0, 0)


def test_a_thread_that_does_not_heed_cannot_keep_the_worker(
    sqlite_workers: FunctionWorkers,
) -> None:
    workers = sqlite_workers
    job_id = workers.enqueue("stubborn", lease=MINUTE)
    workers.start("w-1", "--lease", "60s", "--leave", "0s")
    workers.file("here")
    workers.running(job_id)
    before = time.monotonic()

    assert workers.leave("w-1") == 0
    assert time.monotonic() - before < 30
    job = workers.job(job_id)
    assert (job.state, job.attempt, job.crashes) == (State.QUEUED, 2, 0)


class AbsentRegistry(LocalRegistry):
    """A registry that grants nothing."""

    async def claim(self, *words: object, **more: object) -> list[Grant]:
        raise Unavailable("nobody there")


async def test_a_worker_whose_store_does_not_answer_leaves_when_told(
    command_workers: CommandWorkers,
) -> None:
    observer = SilentObserver()
    async with command_workers.open() as registry:
        absent = AbsentRegistry(registry._store, SystemIds())
        async with asyncio.timeout(PATIENCE_SECONDS), open_worker(absent, observer) as worker:
            asyncio.get_running_loop().call_later(0.2, worker.leave)
            await worker.run()

    assert observer.troubles


def test_a_closed_terminal_gives_the_job_back_as_a_sigterm_does(
    command_workers: CommandWorkers,
) -> None:
    job_id = command_workers.shell("sleep 60")
    worker = command_workers.start("w-1", "--leave", "0.2s")
    try:
        command_workers.until(job_id, lambda job: job.state is State.RUNNING)
        worker.send_signal(signal.SIGHUP)

        assert worker.wait(PATIENCE_SECONDS) == 0
    finally:
        stop(worker)

    job = command_workers.job(job_id)
    assert (job.state, job.attempt, job.crashes) == (State.QUEUED, 2, 0)


def test_an_interrupted_run_exits_with_130_and_its_job_is_cancelled(
    command_workers: CommandWorkers,
) -> None:
    program = [sys.executable, "-m", "holdfast", "run", "--store", command_workers.url]
    process = subprocess.Popen([*program, "--job-id", "mine", "--", "sleep", "60"])
    try:
        command_workers.until("mine", lambda job: job.state is State.RUNNING)
        process.send_signal(signal.SIGINT)

        assert process.wait(PATIENCE_SECONDS) == 130
    finally:
        stop(process)

    assert command_workers.job("mine").state is State.CANCELLED
