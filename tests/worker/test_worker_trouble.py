"""A worker in trouble: leases that are over, stores that do not answer, signals."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from shop import Shop, Silent, stop

from holdfast.core.errors import HoldfastError, Unavailable
from holdfast.core.job import Job
from holdfast.core.spec import COMMAND_KIND
from holdfast.core.state import State
from holdfast.ports import Grant
from holdfast.registry.local import LocalRegistry
from holdfast.system import SystemClock, SystemIds
from holdfast.worker.claims import Claims, Settings
from holdfast.worker.commands import Commands
from holdfast.worker.endings import Endings
from holdfast.worker.executor import Host
from holdfast.worker.faults import machine_fault
from holdfast.worker.hold import Hold
from holdfast.worker.keeper import Keeper
from holdfast.worker.pace import Pace
from holdfast.worker.processes import Processes
from holdfast.worker.reserve import RESERVE_MAX, Reserve
from holdfast.worker.spool import MemorySpool
from holdfast.worker.tasks import stop as end
from holdfast.worker.worker import Worker


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@asynccontextmanager
async def worker_of(
    registry: LocalRegistry, report: Silent, **settings: object
) -> AsyncIterator[Worker]:
    chosen = Settings(owner="w-1", **settings)  # type: ignore[arg-type]
    processes = Processes(SystemClock())
    yield Worker(
        registry,
        chosen,
        report,
        clock=SystemClock(),
        ids=SystemIds(),
        executors=[Commands(processes, own=os.environ)],
        spool=MemorySpool(),
    )
    await processes.close()


def test_a_command_is_not_started_under_a_lease_that_is_over(shop: Shop, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    job_id = shop.submit("touch", str(trace))

    async def work(registry: LocalRegistry) -> None:
        grant = await registry.acquire(job_id, owner="w-1")
        async with worker_of(registry, shop.report) as worker:
            assert not await worker.run_one(grant, SystemClock().monotonic() - 1)

    shop.use(work)

    assert not trace.exists()
    assert "over before" in shop.report.losses[0]


def test_a_worker_whose_store_does_not_answer_leaves_when_told(shop: Shop) -> None:
    class Deaf(LocalRegistry):
        async def claim(self, *words: object, **more: object) -> list[Grant]:
            raise Unavailable("nobody there")

    async def work(registry: LocalRegistry) -> None:
        deaf = Deaf(registry._store, SystemIds())
        async with asyncio.timeout(5), worker_of(deaf, shop.report) as worker:
            asyncio.get_running_loop().call_later(0.2, worker.leave)
            await worker.run()

    shop.use(work)

    assert shop.report.troubles


def test_a_lease_counts_from_the_asking_that_was_answered(shop: Shop) -> None:
    """A store that was away for longer than a lease gives a fresh lease, not one that is over."""

    class Slow(LocalRegistry):
        away = 3

        async def claim(self, *words: object, **more: object) -> list[Grant]:
            if self.away:
                self.away -= 1
                raise Unavailable("away")
            return await super().claim(*words, **more)  # type: ignore[arg-type]

    job_id = shop.submit("true", lease=timedelta(seconds=1))

    async def work(registry: LocalRegistry) -> None:
        slow = Slow(registry._store, SystemIds())
        async with asyncio.timeout(20), worker_of(slow, shop.report, drain=True) as worker:
            await worker.run()

    shop.use(work)

    job = shop.job(job_id)
    assert (job.state, job.attempt, job.crashes) == (State.SUCCEEDED, 1, 0)


def test_renewals_follow_the_lease_as_it_is_now(shop: Shop) -> None:
    """A grant that was nearly over and is renewed for a minute is not renewed at its old pace."""
    job_id = shop.submit("true")

    async def work(registry: LocalRegistry) -> int:
        grant = replace(await registry.acquire(job_id, owner="w-1"), lease_seconds=0.3)
        clock = SystemClock()
        keeper = Keeper(registry, clock, lambda hold: None)
        keeper.add([Hold(grant, clock.monotonic() + 1.5)])
        keeping = asyncio.create_task(keeper.keep())
        await clock.sleep(1.5)
        await end(keeping)
        return (await registry.get(job_id)).heartbeats

    assert shop.use(work) == 1


def test_a_closed_terminal_gives_the_job_back_as_a_sigterm_does(shop: Shop) -> None:
    job_id = shop.shell("sleep 60")
    worker = shop.worker("w-1", "--leave", "0.2s")
    try:
        shop.until(job_id, lambda job: job.state is State.RUNNING)
        worker.send_signal(signal.SIGHUP)

        assert worker.wait(20) == 0
    finally:
        stop(worker)

    job = shop.job(job_id)
    assert (job.state, job.attempt, job.crashes) == (State.QUEUED, 2, 0)


def test_an_interrupted_run_exits_with_130_and_its_job_is_cancelled(shop: Shop) -> None:
    command = [sys.executable, "-m", "holdfast", "run", "--store", shop.url, "--job-id", "mine"]
    process = subprocess.Popen([*command, "--", "sleep", "60"])
    try:
        shop.until("mine", lambda job: job.state is State.RUNNING)
        process.send_signal(signal.SIGINT)

        assert process.wait(20) == 130
    finally:
        stop(process)

    assert shop.job("mine").state is State.CANCELLED


def test_a_job_that_the_worker_has_ended_itself_is_not_reported_as_lost(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    telling = Endings._tell

    def tell(self: Endings, hold: Hold, answer: Job | HoldfastError) -> None:
        hold.lose("the job is succeeded")  # as the keeper hears it, a moment before it is let go
        telling(self, hold, answer)

    monkeypatch.setattr(Endings, "_tell", tell)
    shop.submit("true")

    shop.drain()

    assert shop.report.losses == []


class Sick:
    """An executor that can begin nothing, and tells its worker to leave after so many tries."""

    kinds: tuple[str, ...] = (COMMAND_KIND,)

    def __init__(self, tries: int) -> None:
        self.tries = tries
        self.tried: list[str] = []
        self.freed: list[int] = []
        self.leave: Callable[[], None] | None = None

    async def open(self, host: Host) -> None:
        self._host = host

    def run(self, holds: Sequence[Hold]) -> None:
        asyncio.get_running_loop().call_soon(self._fail, list(holds))

    def _fail(self, holds: list[Hold]) -> None:
        assert self.leave is not None
        self.tried += [hold.job_id for hold in holds]
        before = len(os.listdir("/proc/self/fd"))
        for hold in holds:
            self._host.ended(hold, machine_fault(OSError(24, "Too many open files"), "sh"))
        self.freed.append(before - len(os.listdir("/proc/self/fd")))
        if len(self.tried) >= self.tries:
            self.leave()

    def renewed(self, hold: Hold) -> None: ...

    async def close(self) -> None: ...


def run_sick(shop: Shop, sick: Sick, jobs: list[str]) -> list[Job]:
    """The jobs, after a worker with one slot has tried to run them."""

    async def work(registry: LocalRegistry) -> list[Job]:
        worker = Worker(
            registry,
            Settings(owner="w-1", slots=1),
            shop.report,
            clock=SystemClock(),
            ids=SystemIds(),
            executors=[sick],
            spool=MemorySpool(),
        )
        sick.leave = worker.leave
        await worker.run()
        return [await registry.get(job_id) for job_id in jobs]

    return shop.use(work)


def test_what_was_claimed_ahead_is_given_back_untried_when_the_machine_is_at_fault(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "wanted", lambda _, waiting, held: 5 - held)
    jobs = [shop.submit("true") for _ in range(5)]
    sick = Sick(tries=1)

    given = run_sick(shop, sick, jobs)

    assert len(sick.tried) == 1
    assert sick.freed == [RESERVE_MAX]  # descriptors, with which the store can be told
    assert {(job.state, job.attempt, job.failures, job.crashes) for job in given} == {
        (State.QUEUED, 2, 0, 0)
    }
    assert [job.reason for job in given].count("the worker cannot run jobs now") == 4


def test_after_a_fault_of_the_machine_one_job_at_a_time_is_claimed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ask = Claims.ask

    async def counted(self: Claims, op_id: str, wanted: int, leaving: asyncio.Event) -> list[Hold]:
        asked.append(wanted)
        return await ask(self, op_id, wanted, leaving)

    monkeypatch.setattr(Claims, "ask", counted)
    monkeypatch.setattr(Pace, "wanted", lambda _, waiting, held: 5 - held)
    monkeypatch.setattr("holdfast.worker.pause.PAUSE_SECONDS", 0.01)
    jobs = [shop.submit("true") for _ in range(5)]

    given = run_sick(shop, Sick(tries=4), jobs)

    assert asked == [5, 1, 1, 1]
    assert {(job.state, job.failures, job.crashes) for job in given} == {(State.QUEUED, 0, 0)}


def test_a_reserve_takes_what_there_is_and_frees_all_of_it() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before, limits = count(), resource.getrlimit(resource.RLIMIT_NOFILE)
    reserve = Reserve()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        reserve.take()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert count() == before
    reserve.take()
    reserve.take()
    assert count() == before + RESERVE_MAX
    reserve.free()
    assert count() == before
