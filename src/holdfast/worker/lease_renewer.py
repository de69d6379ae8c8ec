"""Renews the leases of this worker, and notices when a job is lost or cancelled.

It runs in the worker's process, where no handler runs, so no job can starve it.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta

from holdfast.core.errors import Fenced, HoldfastError, NotFound, Unavailable
from holdfast.core.explanation import format_duration
from holdfast.core.job import Job, Progress
from holdfast.core.spec import Json
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Registry
from holdfast.system import SleepWatch
from holdfast.worker.held_job import MARGIN_SECONDS, HeldJob
from holdfast.worker.tasks import stop

TICK_SECONDS = 0.1
START_SECONDS = 0.2
UNREPORTED_SECONDS = 10.0
RENEWALS_PER_LEASE = 3
RENEWAL_SECONDS_MIN = 0.1
PROGRESS_SECONDS = 0.5
RETRY_SECONDS = 1.0
CHECK_SECONDS = 0.2
RENEWER_MARGIN_SECONDS = 0.25
RENEW_SECONDS = 3.0
"""How long a worker that woke tries to renew the leases that were over meanwhile; so does the supervisor."""
STORE_UNREACHABLE = "the store could not be reached before the lease ended"
NOT_STOPPED = "it was told to stop, and did not"


class LeaseRenewer:
    """Has every job that the worker holds, from claim to end."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        renewed: Callable[[HeldJob], None],
        *,
        watch: SleepWatch | None = None,
        trouble: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._renewed = renewed
        self._watch = watch or SleepWatch(clock)
        self._trouble = trouble
        self._tick_at = float("inf")
        self._wakes = 0
        self._nonempty = asyncio.Event()
        self._renewing: dict[HeldJob, asyncio.Task[None]] = {}
        self.held_jobs: dict[str, HeldJob] = {}
        self.renewals = 0

    def add(self, held_jobs: Iterable[HeldJob]) -> None:
        """Renew these leases from now on."""
        now = self._clock.monotonic()
        for held in held_jobs:
            held.renew_at = now + (held.deadline - now) / RENEWALS_PER_LEASE
            self.held_jobs[held.job_id] = held
        self._nonempty.set()

    def begin(self, held_jobs: Iterable[HeldJob], now: float) -> None:
        """The work begins. Unless it is over in a moment, a heartbeat shows it as running."""
        soon = now + START_SECONDS
        for held in held_jobs:
            held.begun_at = now
            held.renew_at = min(held.renew_at, soon)

    def end(self, held: HeldJob, now: float) -> None:
        """The work is over and is being reported: renew its lease only if that takes long."""
        held.ended_at = now
        late = held.deadline - UNREPORTED_SECONDS
        held.renew_at = max(held.renew_at, late)

    def remove(self, held_jobs: Iterable[HeldJob]) -> None:
        by_id, renewing = self.held_jobs, self._renewing
        for held in held_jobs:
            if by_id.get(held.job_id) is held:  # this worker may have got the job again
                del by_id[held.job_id]
            if renewing and (task := renewing.pop(held, None)) is not None:
                task.cancel()

    def progress(self, held: HeldJob, progress: Progress) -> None:
        """Store this soon, with the next heartbeat."""
        held.progress = progress
        held.renew_at = min(held.renew_at, self._clock.monotonic() + PROGRESS_SECONDS)

    async def checkpoint(self, held: HeldJob, value: Json) -> None:
        """Store this now, or as soon as the store is back. Raise what `heartbeat` raises."""
        while True:
            asked_at = self._clock.monotonic()
            try:
                job = await self._registry.heartbeat(held.grant, checkpoint=value, progress=held.progress)
            except Unavailable:
                if held.lost:
                    raise
                await self._clock.sleep(RETRY_SECONDS)
            else:
                held.checkpoint = value
                self._lease_renewed(held, job, asked_at)
                return

    async def run(self) -> None:
        """Renew the leases that are due, and stop what is out of time. Runs until cancelled."""
        try:
            while True:
                if not self.held_jobs:
                    self._tick_at = float("inf")
                    self._nonempty.clear()
                    await self._nonempty.wait()
                self._check_all()
                await self._clock.sleep(TICK_SECONDS)
        finally:
            await stop(*self._renewing.values())

    def notice_sleep(self) -> bool:
        """Return whether the machine has just woken. Then all leases are renewed at once: those that were
        over meanwhile go on if no other worker has taken the job."""
        self._watch.late(self._tick_at)
        if self._watch.wakes == self._wakes:
            return False
        self._wakes = self._watch.wakes
        now, over = self._clock.monotonic(), 0
        self._tick_at = now + TICK_SECONDS
        for held in self.held_jobs.values():
            held.renew_at = now
            if held.deadline - now <= _margin(held) and not (held.lost or held.abandoned):
                held.slept, held.renewed_by = self._watch.slept, now + RENEW_SECONDS
                over += 1
        if over:
            leases = "the lease of 1 job" if over == 1 else f"the leases of {over:,} jobs"
            slept = format_duration(timedelta(seconds=self._watch.slept))
            self._trouble(f"this machine was asleep for {slept}; {leases} ended, and may be renewed")
        return True

    def _seconds_left(self, held: HeldJob) -> float:
        """Return for how long the lease can still be renewed."""
        now = self._clock.monotonic()
        left = held.ends_at - now - _margin(held)
        if left <= 0 and self.notice_sleep():
            left = held.ends_at - now - _margin(held)
        return left

    def _check_all(self) -> None:
        self.notice_sleep()
        now = self._clock.monotonic()
        self._tick_at = now + TICK_SECONDS
        soon = now + MARGIN_SECONDS + RENEWER_MARGIN_SECONDS
        for held in [
            held
            for held in self.held_jobs.values()
            if held.renew_at <= now or held.deadline <= soon or held.grant.job.spec.timeout
        ]:
            self._check(held, now)

    def _check(self, held: HeldJob, now: float) -> None:
        if held.lost:
            return
        if held.deadline - now <= _margin(held) and self._seconds_left(held) <= 0:
            held.lose(NOT_STOPPED if held.abandoned else STORE_UNREACHABLE)
            return
        limit, begun_at = held.grant.job.spec.timeout, held.begun_at
        if limit and begun_at is not None and now - begun_at >= limit.total_seconds():
            held.time_out()
        if held.renew_at <= now and not held.abandoned and held not in self._renewing:
            self._renewing[held] = asyncio.create_task(self._renew(held))

    async def _renew(self, held: HeldJob) -> None:
        try:
            while not held.lost:
                asked_at, left = self._clock.monotonic(), self._seconds_left(held)
                if left <= 0:
                    held.lose(STORE_UNREACHABLE)
                    return
                progress, held.progress = held.progress, None
                renewed_by = held.renewed_by
                try:
                    async with asyncio.timeout(left):
                        job = await self._registry.heartbeat(held.grant, progress=progress)
                except TimeoutError:
                    held.progress = held.progress or progress
                    self.notice_sleep()
                    if held.renewed_by == renewed_by:  # the machine was not asleep meanwhile
                        held.lose(STORE_UNREACHABLE)
                except Unavailable:
                    held.progress = held.progress or progress
                    await self._clock.sleep(min(RETRY_SECONDS, left / 4))
                except HoldfastError as error:
                    held.lose(error.message)
                else:
                    failpoint("worker.renewed")
                    self._lease_renewed(held, job, asked_at)
                    return
        finally:
            self._renewing.pop(held, None)

    def _lease_renewed(self, held: HeldJob, job: Job, asked_at: float) -> None:
        held.update(job)
        if job.lease is None or held.lost:
            return
        self.renewals += 1
        held.slept = held.renewed_by = 0.0
        length = job.lease.granted_for.total_seconds()
        held.deadline = asked_at + length
        held.renew_at = asked_at + max(length / RENEWALS_PER_LEASE, RENEWAL_SECONDS_MIN)
        if held.progress is not None:
            held.renew_at = min(held.renew_at, asked_at + PROGRESS_SECONDS)
        self._renewed(held)

    async def watch(self) -> None:
        """Notice cancels and lost leases as soon as the store shows them, between renewals."""
        mark = self._registry.change_mark()
        while True:
            await self._registry.changes(since=mark, timeout=60)
            mark = self._registry.change_mark()
            await self._check_store()
            await self._clock.sleep(CHECK_SECONDS)

    async def _check_store(self) -> None:
        """Read the jobs that have run for a while; the others are over before it matters."""
        before = self._clock.monotonic() - CHECK_SECONDS
        running = [
            held for held in self.held_jobs.values() if held.begun_at is not None and held.begun_at <= before
        ]
        if not running:
            return
        try:
            jobs = await self._registry.status_many([held.job_id for held in running])
        except (Unavailable, Fenced, NotFound):
            return
        for held, job in zip(running, jobs, strict=True):
            if job is None:
                held.lose("the job is gone")
            else:
                held.update(job)


def _margin(held: HeldJob) -> float:
    """Return how long before its end a lease is given up: a little before the process supervisor kills the
    group, so that work which stops when told ends alone, not with every job in its runner."""
    return MARGIN_SECONDS + min(RENEWER_MARGIN_SECONDS, held.grant.lease_seconds / 10)
