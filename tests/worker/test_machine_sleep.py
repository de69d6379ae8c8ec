"""A closed lid: everything on the machine is frozen for longer than a lease, and thawed again."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from holdfast.core.errors import Unavailable
from holdfast.core.job import Job
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_registry
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from holdfast.worker.held_job import HeldJob
from holdfast.worker.lease_renewer import RENEW_SECONDS, TICK_SECONDS, LeaseRenewer
from holdfast.worker.tasks import stop
from tests.worker.function_workers import FunctionWorkers
from tests.worker.live_processes import PATIENCE_SECONDS, children_of, wait_until

APP = """
def work(name):
    with open(name, "a") as began: began.write("began\\n")
    while not Path("enough").exists(): time.sleep(0.01)

@app.job
def compute(): work("compute")

@app.job(isolation="process")
def compute_apart(): work("compute_apart")
"""


def tree(pid: int) -> Iterator[int]:
    """The process and all that it has started, directly or not."""
    yield pid
    for child in children_of(pid):
        yield from tree(child)


class Lid:
    """What closes and opens: all processes of these workers."""

    def __init__(self, workers: FunctionWorkers, *names: str) -> None:
        self.workers = workers
        self.pids = [pid for name in names for pid in tree(workers.processes[name].pid)]

    def close_for_longer_than_the_lease_of(self, job_ids: list[str]) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: all(self._over(job_id) for job_id in job_ids))

    def _over(self, job_id: str) -> bool:
        job, now = self.workers.job(job_id), self.workers.use(lambda r: r.now())
        return job.lease is None or (now - job.lease.expires_at).total_seconds() > 1.5

    def open(self) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):  # those that are awake may end others
                os.kill(pid, signal.SIGCONT)


def command(workers: FunctionWorkers, name: str) -> str:
    os.mkfifo(workers.folder / "go")
    script = f"echo began >> {name}; read word < go"  # without a child, which would come and go
    return workers.enqueue("command", {"argv": ["sh", "-c", script], "cwd": str(workers.folder)})


def enough(workers: FunctionWorkers) -> None:
    (workers.folder / "enough").touch()
    if (workers.folder / "go").exists():
        (workers.folder / "go").write_text("on\n")


def test_after_a_closed_lid_every_job_goes_on_where_it_was_and_is_charged_nothing(
    workers: FunctionWorkers,
) -> None:
    jobs = {
        "compute": workers.enqueue("compute"),
        "compute_apart": workers.enqueue("compute_apart"),
        "command": command(workers, "command"),
    }
    workers.start("w-1", "--commands")
    workers.start("idle", "--commands")
    for name, job_id in jobs.items():
        workers.running(job_id)
        workers.file(name)
    versions = {job_id: workers.job(job_id).version for job_id in jobs.values()}
    lid = Lid(workers, "w-1", "idle")

    lid.close_for_longer_than_the_lease_of(list(jobs.values()))
    lid.open()
    for job_id in jobs.values():
        workers.until(job_id, lambda job: _renewed(workers, job))
    enough(workers)

    for name, job_id in jobs.items():
        job = workers.succeeded(job_id)
        assert (job.attempt, job.crashes, job.failures) == (1, 0, 0), workers.all_logs()
        assert job.version == versions[job_id] + 1
        assert workers.file(name) == "began\n"
    assert "this machine was asleep for " in workers.all_logs()
    assert "no longer ours" not in workers.all_logs()
    workers.assert_consistent()


def _renewed(workers: FunctionWorkers, job: Job) -> bool:
    return job.lease is not None and job.lease.expires_at > workers.use(lambda r: r.now())


def test_what_another_worker_took_meanwhile_is_charged_and_its_sleeper_is_fenced(
    workers: FunctionWorkers,
) -> None:
    job_id = workers.enqueue("compute_apart")
    workers.start("w-1")
    workers.running(job_id)
    workers.file("compute_apart")
    lid = Lid(workers, "w-1")

    for pid in lid.pids:
        os.kill(pid, signal.SIGSTOP)
    workers.start("w-2")
    workers.until(job_id, lambda job: job.state is State.RUNNING and job.owner == "w-2")
    lid.open()
    wait_until(lambda: "no longer ours" in workers.worker_log("w-1"))
    enough(workers)

    job = workers.succeeded(job_id)
    assert (job.attempt, job.crashes) == (2, 1)
    assert "is no longer ours: this machine was asleep for " in workers.worker_log("w-1")
    assert workers.job(job_id).version == job.version
    workers.assert_consistent()


class AwayRegistry(LocalRegistry):
    """A registry whose store is away."""

    async def heartbeat(self, *words: object, **more: object) -> Job:
        raise Unavailable("away")


class Sleeper:
    """A lease of two seconds and its renewer, on a clock that only the test moves."""

    def __init__(self, registry: LocalRegistry, grant: Grant, *, away: bool = False) -> None:
        self.clock = ManualClock()
        self.told: list[str] = []
        self.renewed = asyncio.Event()
        self.held = HeldJob(grant, self.clock.monotonic() + 2)
        self.held.begun_at = 0.0
        self.lost = asyncio.Event()
        self.held.listener = self.lost.set
        chosen = AwayRegistry(registry._store, SystemIds()) if away else registry
        self.renewer = LeaseRenewer(
            chosen, self.clock, lambda _: self.renewed.set(), trouble=self.told.append
        )
        self.renewer.add([self.held])
        self.held.renew_at = self.held.deadline  # nothing is due before it sleeps

    async def wake_after(self, seconds: float) -> None:
        """Let the renewer tick once, and sleep; it has not ticked since."""
        self.running = asyncio.create_task(self.renewer.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.clock.advance(seconds)

    async def until(self, event: asyncio.Event) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await event.wait()
        await stop(self.running)


@pytest.fixture
async def registry() -> LocalRegistry:
    opened = await open_registry("memory://")
    assert isinstance(opened, LocalRegistry)
    await opened.enqueue(JobRequest(spec=Spec(), job_id="job-1"), actor="user:ana")
    return opened


async def test_a_lease_that_ended_in_a_sleep_is_renewed_with_the_newest_token(
    registry: LocalRegistry,
) -> None:
    sleeper = Sleeper(registry, await registry.acquire("job-1", owner="w-1"))

    await sleeper.wake_after(9)
    await sleeper.until(sleeper.renewed)

    assert sleeper.held.lost is None
    assert sleeper.held.deadline == 9 + 60
    assert sleeper.held.slept == 0
    assert sleeper.told == ["this machine was asleep for 8.9 s; the lease of 1 job ended, and may be renewed"]


async def test_a_lease_that_another_worker_took_in_a_sleep_is_lost(registry: LocalRegistry) -> None:
    grant = await registry.acquire("job-1", owner="w-1")
    sleeper = Sleeper(registry, grant)
    await registry.release(grant)
    await registry.acquire("job-1", owner="w-2")

    await sleeper.wake_after(9)
    await sleeper.until(sleeper.lost)

    expected = "this machine was asleep for 8.9 s: Token 1 is stale: w-2 holds token 2."
    assert sleeper.held.lost == expected
    assert not sleeper.renewed.is_set()


async def test_a_store_that_stays_away_after_a_sleep_loses_the_lease_after_a_moment(
    registry: LocalRegistry,
) -> None:
    sleeper = Sleeper(registry, await registry.acquire("job-1", owner="w-1"), away=True)
    await sleeper.wake_after(9)
    seconds = 0.0

    while sleeper.held.lost is None and seconds < 2 * RENEW_SECONDS:
        for _ in range(5):
            await asyncio.sleep(0)
        sleeper.clock.advance(TICK_SECONDS)
        seconds += TICK_SECONDS
    await stop(sleeper.running)

    assert RENEW_SECONDS - 0.5 < seconds < RENEW_SECONDS + 0.5
    assert sleeper.held.lost == (
        "this machine was asleep for 8.9 s: the store could not be reached before the lease ended"
    )


async def test_without_a_sleep_a_lease_is_given_up_before_its_end(registry: LocalRegistry) -> None:
    sleeper = Sleeper(registry, await registry.acquire("job-1", owner="w-1"), away=True)
    await sleeper.wake_after(0)
    seconds = 0.0

    while sleeper.held.lost is None and seconds < 3:
        for _ in range(5):
            await asyncio.sleep(0)
        sleeper.clock.advance(TICK_SECONDS)
        seconds += TICK_SECONDS
    await stop(sleeper.running)

    assert seconds < 1.5
    assert sleeper.held.lost == "the store could not be reached before the lease ended"
    assert not sleeper.told
