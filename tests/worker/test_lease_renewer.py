"""Leases: one that is over starts nothing, and each is renewed as it is now."""

import asyncio
from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from holdfast.core.errors import Unavailable
from holdfast.core.state import State
from holdfast.ports import Grant
from holdfast.registry.local import LocalRegistry
from holdfast.system import SystemClock, SystemIds
from holdfast.worker.held_job import HeldJob
from holdfast.worker.lease_renewer import LeaseRenewer
from holdfast.worker.tasks import stop
from tests.worker.command_workers import (
    CommandWorkers,
    SilentObserver,
    enqueue_command,
    open_worker,
)


async def test_a_command_is_not_started_under_a_lease_that_is_over(
    command_workers: CommandWorkers, tmp_path: Path
) -> None:
    trace, observer = tmp_path / "trace", SilentObserver()
    async with command_workers.open() as registry, open_worker(registry, observer) as worker:
        job_id = await enqueue_command(registry, "touch", str(trace))
        grant = await registry.acquire(job_id, owner="w-1")

        assert not await worker.run_one(grant, SystemClock().monotonic() - 1)

    assert not trace.exists()
    assert "over before" in observer.losses[0]


class SlowRegistry(LocalRegistry):
    """A registry that grants the fourth claim."""

    away = 3

    async def claim(self, *words: object, **more: object) -> list[Grant]:
        if self.away:
            self.away -= 1
            raise Unavailable("away")
        return await super().claim(*words, **more)  # type: ignore[arg-type]


async def test_a_lease_counts_from_the_asking_that_was_answered(
    command_workers: CommandWorkers,
) -> None:
    """A store that was away for longer than a lease gives a fresh lease, not one that is over."""
    async with command_workers.open() as registry:
        job_id = await enqueue_command(registry, "true", lease=timedelta(seconds=1))
        slow = SlowRegistry(registry._store, SystemIds())

        async with open_worker(slow, SilentObserver(), drain=True) as worker:
            await worker.run()

        job = await registry.status(job_id)
    assert (job.state, job.attempt, job.crashes) == (State.SUCCEEDED, 1, 0)


async def test_renewals_follow_the_lease_as_it_is_now(command_workers: CommandWorkers) -> None:
    """A grant that was nearly over and is renewed for a minute is not renewed at its old pace."""
    async with command_workers.open() as registry:
        job_id = await enqueue_command(registry, "true")
        grant = replace(await registry.acquire(job_id, owner="w-1"), lease_seconds=0.3)
        clock = SystemClock()
        renewer = LeaseRenewer(registry, clock, lambda hold: None)
        renewer.add([HeldJob(grant, clock.monotonic() + 1.5)])

        renewing = asyncio.create_task(renewer.run())
        await clock.sleep(1.5)
        await stop(renewing)

        assert (await registry.status(job_id)).heartbeats == 1
