"""A worker in trouble: leases that are over, stores that do not answer, signals."""

import asyncio
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from shop import Shop, Silent, gone, stop

from holdfast.core.errors import Unavailable
from holdfast.core.job import Job
from holdfast.core.lifecycle import Outcome
from holdfast.core.state import State
from holdfast.ports import Grant
from holdfast.registry.local import LocalRegistry
from holdfast.system import SystemClock, SystemIds
from holdfast.worker.execution import Commands
from holdfast.worker.groups import Groups
from holdfast.worker.hold import Hold
from holdfast.worker.keeper import Keeper
from holdfast.worker.worker import Settings, Worker


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def worker_of(registry: LocalRegistry, report: Silent, **settings: object) -> Worker:
    chosen = Settings(owner="w-1", **settings)  # type: ignore[arg-type]
    clock, ids = SystemClock(), SystemIds()
    commands = Commands(clock, own=os.environ)
    return Worker(registry, chosen, report, clock=clock, ids=ids, executor=commands)


def test_a_command_is_not_started_under_a_lease_that_is_over(shop: Shop, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    job_id = shop.submit("touch", str(trace))

    async def work(registry: LocalRegistry) -> None:
        grant = await registry.acquire(job_id, owner="w-1")
        worker = worker_of(registry, shop.report)
        assert await worker.run_one(grant, SystemClock().monotonic() - 1) is None

    shop.use(work)

    assert not trace.exists()
    assert "over before" in shop.report.losses[0]


def test_a_worker_whose_store_does_not_answer_leaves_when_told(shop: Shop) -> None:
    class Deaf(LocalRegistry):
        async def claim(self, *words: object, **more: object) -> list[Grant]:
            raise Unavailable("nobody there")

    async def work(registry: LocalRegistry) -> None:
        deaf = Deaf(registry._store, SystemIds())
        worker = worker_of(deaf, shop.report)
        asyncio.get_running_loop().call_later(0.2, worker.leave)
        async with asyncio.timeout(5):
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
        async with asyncio.timeout(20):
            await worker_of(slow, shop.report, drain=True).run()

    shop.use(work)

    job = shop.job(job_id)
    assert (job.state, job.attempt, job.crashes) == (State.SUCCEEDED, 1, 0)


def test_renewals_follow_the_lease_as_it_is_now(shop: Shop) -> None:
    """A grant that was nearly over and is renewed for a minute is not renewed at its old pace."""
    job_id = shop.submit("true")

    async def work(registry: LocalRegistry) -> int:
        grant = replace(await registry.acquire(job_id, owner="w-1"), lease_seconds=0.3)
        clock = SystemClock()
        groups = Groups(clock)
        keeper = Keeper(registry, clock, groups)
        keeping = asyncio.create_task(keeper.keep(Hold(grant, clock.monotonic() + 1.5)))
        await clock.sleep(1.5)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        groups.close()
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
        shop.use(lambda r: asyncio.sleep(0))  # the store exists before it is looked at
        shop_until_there(shop)
        process.send_signal(signal.SIGINT)

        assert process.wait(20) == 130
    finally:
        stop(process)

    assert shop.job("mine").state is State.CANCELLED


def shop_until_there(shop: Shop) -> None:
    async def there(registry: LocalRegistry) -> bool:
        [job] = await registry.get_many(["mine"])
        return job is not None and job.state is State.RUNNING

    for _ in range(200):
        if shop.use(there):
            return
    raise AssertionError("the job did not start")


def test_a_process_that_cannot_be_guarded_is_killed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shop.submit("sleep", "60")
    started: list[int] = []

    def govern(keeper: Keeper, hold: Hold, group: int) -> None:
        started.append(group)
        raise RuntimeError("no warden")

    monkeypatch.setattr(Keeper, "govern", govern)

    async def work(registry: LocalRegistry) -> None:
        grant = await registry.acquire(job_id, owner="w-1")
        deadline = SystemClock().monotonic() + grant.lease_seconds
        with pytest.raises(RuntimeError, match="no warden"):
            await worker_of(registry, shop.report).run_one(grant, deadline)

    shop.use(work)

    assert gone(started[0], seconds=2)


def test_a_job_that_the_worker_has_ended_itself_is_not_reported_as_lost(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = Worker._end

    async def end(self: Worker, hold: Hold, outcome: Outcome, *, stopped: bool) -> Job | None:
        job = await ending(self, hold, outcome, stopped=stopped)
        hold.lose("the job is succeeded")  # as the keeper hears it, a moment before it is let go
        return job

    monkeypatch.setattr(Worker, "_end", end)
    shop.submit("true")

    shop.drain()

    assert shop.report.losses == []
