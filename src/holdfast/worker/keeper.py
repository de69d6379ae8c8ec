"""The keeper: renews every lease of this worker, and hears first when one is lost or cancelled.

It runs in the worker's own loop, apart from the jobs, which are processes: a busy job cannot starve it.
"""

import asyncio
from typing import Protocol

from holdfast.core.errors import Fenced, HoldfastError, NotFound, Unavailable
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Registry
from holdfast.worker.hold import Hold

RENEWALS_PER_LEASE = 3
RENEWAL_SECONDS_MIN = 0.1
RETRY_SECONDS = 1.0
LOOK_SECONDS = 0.2
MARGIN_SECONDS = 0.5
UNREACHED = "the store could not be reached before the lease ended"


class Guard(Protocol):
    """Ends what outlives its lease, even when the worker itself is stuck."""

    def hold(self, group: int, seconds: float) -> None: ...

    def drop(self, group: int) -> None: ...

    def close(self) -> None: ...


class Keeper:
    """Owns the holds of a worker from claim to end."""

    def __init__(self, registry: Registry, clock: Clock, guard: Guard) -> None:
        self._registry = registry
        self._clock = clock
        self.guard = guard
        self.holds: dict[str, Hold] = {}

    def add(self, hold: Hold) -> None:
        self.holds[hold.job_id] = hold

    def remove(self, hold: Hold) -> None:
        self.holds.pop(hold.job_id, None)
        self.release(hold)

    def release(self, hold: Hold) -> None:
        """The group is gone: its number may be somebody else's from now on."""
        if hold.group is not None:
            group, hold.group = hold.group, None
            self.guard.drop(group)

    def govern(self, hold: Hold, group: int) -> None:
        """Put the job's process group under the warden, for as long as the lease is known to last."""
        hold.group = group
        self.guard.hold(group, hold.deadline - self._clock.monotonic())

    async def keep(self, hold: Hold) -> None:
        """Renew this lease until it is lost. Cancel me when the job is done."""
        while not hold.lost:
            left = hold.deadline - self._clock.monotonic()
            await self._clock.sleep(max(left / RENEWALS_PER_LEASE, RENEWAL_SECONDS_MIN))
            await self._renew(hold)

    async def _renew(self, hold: Hold) -> None:
        while True:
            asked_at = self._clock.monotonic()
            left = hold.deadline - asked_at - MARGIN_SECONDS
            if left <= 0:
                hold.lose(UNREACHED)
                return
            try:
                async with asyncio.timeout(left):
                    job = await self._registry.heartbeat(hold.grant)
            except TimeoutError:
                hold.lose(UNREACHED)
                return
            except Unavailable:
                await self._clock.sleep(min(RETRY_SECONDS, left))
            except HoldfastError as error:
                hold.lose(error.message)
                return
            else:
                failpoint("worker.renewed")
                hold.heard(job)
                if job.lease is not None and not hold.lost:
                    self._renewed(hold, asked_at + job.lease.granted_for.total_seconds())
                return

    def _renewed(self, hold: Hold, deadline: float) -> None:
        hold.deadline = deadline
        if hold.group is not None:
            self.govern(hold, hold.group)

    async def listen(self) -> None:
        """Hear of cancels and lost leases as soon as the store shows them, between renewals."""
        mark = self._registry.mark()
        while True:
            await self._registry.changed(since=mark, timeout=60)
            mark = self._registry.mark()
            if self.holds:
                await self._look()
            await self._clock.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        held = list(self.holds.values())
        try:
            jobs = await self._registry.get_many([hold.job_id for hold in held])
        except (Unavailable, Fenced, NotFound):
            return
        for hold, job in zip(held, jobs, strict=True):
            if job is None:
                hold.lose("the job is gone")
            else:
                hold.heard(job)
