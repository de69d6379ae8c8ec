"""The keeper: renews every lease of this worker, and hears first when one is lost or cancelled.

It lives in the worker's process, where no handler runs: whatever a job does, it cannot starve it.
"""

import asyncio
from collections.abc import Callable, Iterable

from holdfast.core.errors import Fenced, HoldfastError, NotFound, Unavailable
from holdfast.core.job import Job, Progress
from holdfast.core.spec import Json
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Registry
from holdfast.worker.hold import MARGIN_SECONDS, Hold
from holdfast.worker.tasks import stop

TICK_SECONDS = 0.1
START_SECONDS = 0.2
UNTOLD_SECONDS = 10.0
RENEWALS_PER_LEASE = 3
RENEWAL_SECONDS_MIN = 0.1
PROGRESS_SECONDS = 0.5
RETRY_SECONDS = 1.0
LOOK_SECONDS = 0.2
EARLIER_SECONDS = 0.25
UNREACHED = "the store could not be reached before the lease ended"
UNHEEDED = "it was told to stop, and did not"


class Keeper:
    """Owns the holds of a worker from claim to end."""

    def __init__(self, registry: Registry, clock: Clock, renewed: Callable[[Hold], None]) -> None:
        self._registry = registry
        self._clock = clock
        self._renewed = renewed
        self._some = asyncio.Event()
        self._renewing: dict[Hold, asyncio.Task[None]] = {}
        self.holds: dict[str, Hold] = {}
        self.renewals = 0

    def add(self, holds: Iterable[Hold]) -> None:
        """Keep these leases from now on."""
        now = self._clock.monotonic()
        for hold in holds:
            hold.renew_at = now + (hold.deadline - now) / RENEWALS_PER_LEASE
            self.holds[hold.job_id] = hold
        self._some.set()

    def begin(self, hold: Hold, now: float) -> None:
        """The work begins: what is not over in a moment is shown as running."""
        hold.begun_at = now
        hold.renew_at = min(hold.renew_at, now + START_SECONDS)

    def end(self, hold: Hold) -> None:
        """The work is over, and about to be told: renew its lease only if that takes long."""
        hold.ended_at = self._clock.monotonic()
        hold.renew_at = max(hold.renew_at, hold.deadline - UNTOLD_SECONDS)

    def remove(self, hold: Hold) -> None:
        if self.holds.get(hold.job_id) is hold:  # this worker may have got the job again
            del self.holds[hold.job_id]
        if self._renewing and (renewing := self._renewing.pop(hold, None)) is not None:
            renewing.cancel()

    def progress(self, hold: Hold, progress: Progress) -> None:
        """Store this soon, with the next sign of life."""
        hold.progress = progress
        hold.renew_at = min(hold.renew_at, self._clock.monotonic() + PROGRESS_SECONDS)

    async def checkpoint(self, hold: Hold, value: Json) -> None:
        """Store this now, or as soon as the store is back; raises what `heartbeat` raises."""
        while True:
            asked_at = self._clock.monotonic()
            try:
                job = await self._registry.heartbeat(
                    hold.grant, checkpoint=value, progress=hold.progress
                )
            except Unavailable:
                if hold.lost:
                    raise
                await self._clock.sleep(RETRY_SECONDS)
            else:
                hold.checkpoint = value
                self._heard(hold, job, asked_at)
                return

    async def keep(self) -> None:
        """Renew what is due, and end the time of what has had it. Runs until cancelled."""
        try:
            while True:
                if not self.holds:
                    self._some.clear()
                    await self._some.wait()
                self._look_at_clock()
                await self._clock.sleep(TICK_SECONDS)
        finally:
            await stop(*self._renewing.values())

    def _look_at_clock(self) -> None:
        now = self._clock.monotonic()
        soon = now + MARGIN_SECONDS + EARLIER_SECONDS
        for hold in [
            hold
            for hold in self.holds.values()
            if hold.renew_at <= now or hold.deadline <= soon or hold.grant.job.spec.timeout
        ]:
            self._look_at(hold, now)

    def _look_at(self, hold: Hold, now: float) -> None:
        if hold.lost:
            return
        if hold.deadline - now <= _margin(hold):
            hold.lose(UNHEEDED if hold.silent else UNREACHED)
            return
        limit, begun_at = hold.grant.job.spec.timeout, hold.begun_at
        if limit and begun_at is not None and now - begun_at >= limit.total_seconds():
            hold.time_out()
        if hold.renew_at <= now and not hold.silent and hold not in self._renewing:
            self._renewing[hold] = asyncio.create_task(self._renew(hold))

    async def _renew(self, hold: Hold) -> None:
        try:
            while not hold.lost:
                asked_at = self._clock.monotonic()
                left = hold.deadline - asked_at - _margin(hold)
                if left <= 0:
                    hold.lose(UNREACHED)
                    return
                progress, hold.progress = hold.progress, None
                try:
                    async with asyncio.timeout(left):
                        job = await self._registry.heartbeat(hold.grant, progress=progress)
                except TimeoutError:
                    hold.lose(UNREACHED)
                except Unavailable:
                    hold.progress = hold.progress or progress
                    await self._clock.sleep(min(RETRY_SECONDS, left / 4))
                except HoldfastError as error:
                    hold.lose(error.message)
                else:
                    failpoint("worker.renewed")
                    self._heard(hold, job, asked_at)
                    return
        finally:
            self._renewing.pop(hold, None)

    def _heard(self, hold: Hold, job: Job, asked_at: float) -> None:
        hold.heard(job)
        if job.lease is None or hold.lost:
            return
        self.renewals += 1
        length = job.lease.granted_for.total_seconds()
        hold.deadline = asked_at + length
        hold.renew_at = asked_at + max(length / RENEWALS_PER_LEASE, RENEWAL_SECONDS_MIN)
        if hold.progress is not None:
            hold.renew_at = min(hold.renew_at, asked_at + PROGRESS_SECONDS)
        self._renewed(hold)

    async def listen(self) -> None:
        """Hear of cancels and lost leases as soon as the store shows them, between renewals."""
        mark = self._registry.mark()
        while True:
            await self._registry.changed(since=mark, timeout=60)
            mark = self._registry.mark()
            await self._look()
            await self._clock.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        """Look at what has been running for a while; the others are over before it matters."""
        before = self._clock.monotonic() - LOOK_SECONDS
        held = [
            hold
            for hold in self.holds.values()
            if hold.begun_at is not None and hold.begun_at <= before
        ]
        if not held:
            return
        try:
            jobs = await self._registry.get_many([hold.job_id for hold in held])
        except (Unavailable, Fenced, NotFound):
            return
        for hold, job in zip(held, jobs, strict=True):
            if job is None:
                hold.lose("the job is gone")
            else:
                hold.heard(job)


def _margin(hold: Hold) -> float:
    """How long before its end a lease is given up: a little before the warden does, so that work which
    heeds it ends alone, and not with everything in its runner."""
    return MARGIN_SECONDS + min(EARLIER_SECONDS, hold.grant.lease_seconds / 10)
