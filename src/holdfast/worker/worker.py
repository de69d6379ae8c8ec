"""The worker: claims jobs, runs them, reports what happened, and leaves without losing any."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Protocol, TypeVar

from msgspec import Struct

from holdfast.core.command import COMMAND_KIND
from holdfast.core.errors import Conflict, HoldfastError, Unavailable
from holdfast.core.job import Job
from holdfast.core.lifecycle import Outcome
from holdfast.core.state import LEASED, State
from holdfast.ports import Clock, Filter, Grant, Ids, Registry
from holdfast.worker.execution import Execution
from holdfast.worker.groups import Groups
from holdfast.worker.hold import Hold
from holdfast.worker.keeper import Keeper
from holdfast.worker.output import Output

IDLE_SECONDS = 0.5
EXPIRE_SECONDS = 1.0
RETRY_SECONDS = 0.5

T = TypeVar("T")


class Report(Protocol):
    """Whoever wants to know what a worker does."""

    def started(self, grant: Grant) -> None: ...

    def ended(self, job: Job, seconds: float) -> None: ...

    def lost(self, grant: Grant, why: str) -> None: ...

    def trouble(self, why: str) -> None: ...


class Settings(Struct, frozen=True, kw_only=True):
    """What a worker is told. `drain` ends it when its queues have nothing left to run."""

    owner: str
    queues: tuple[str, ...] = ("default",)
    slots: int = 1
    region: str | None = None
    lease: timedelta | None = None
    passed: tuple[str, ...] = ()
    drain: bool = False
    leave_seconds: float = 10.0


class Worker:
    """One process's worth of running jobs."""

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        report: Report,
        *,
        clock: Clock,
        ids: Ids,
        own: Mapping[str, str],
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._report = report
        self._clock = clock
        self._ids = ids
        self._own = own
        self._leaving = asyncio.Event()
        self._freed = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()

    def leave(self) -> None:
        """Take no more jobs; give the running ones a little time, then give them back."""
        if self._leaving.is_set():
            self._give_back("the worker was told twice to leave")
        self._leaving.set()
        self._freed.set()

    async def run(self) -> None:
        """Work until told to leave (or until nothing is left, when draining)."""
        self._groups = Groups(self._clock)
        self._keeper = Keeper(self._registry, self._clock, self._groups)
        loops = [
            asyncio.create_task(self._keeper.listen()),
            asyncio.create_task(self._expire()),
        ]
        try:
            await self._claim()
            await self._finish()
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            self._groups.close()

    async def run_one(self, grant: Grant, deadline: float) -> Job | None:
        """Run this one grant and return the job as it ended, or None when the lease was lost."""
        self._groups = Groups(self._clock)
        self._keeper = Keeper(self._registry, self._clock, self._groups)
        listening = asyncio.create_task(self._keeper.listen())
        try:
            return await self._attempt(Hold(grant, deadline))
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            self._groups.close()

    async def _claim(self) -> None:
        settings = self._settings
        while not self._leaving.is_set():
            free = settings.slots - len(self._running)
            if free <= 0:
                self._freed.clear()
                await self._freed.wait()
                continue
            mark = self._registry.mark()
            holds = await self._insist(partial(self._ask, self._ids.new(), free))
            for hold in holds or ():
                self._launch(hold)
            if not holds:
                if settings.drain and not self._running and not await self._more():
                    return
                await self._registry.changed(since=mark, timeout=IDLE_SECONDS)

    async def _ask(self, op_id: str, free: int) -> list[Hold]:
        """Claim; the leases count from before this very asking."""
        settings = self._settings
        asked_at = self._clock.monotonic()
        grants = await self._registry.claim(
            settings.queues,
            owner=settings.owner,
            limit=free,
            op_id=op_id,
            kinds=(COMMAND_KIND,),
            lease=settings.lease,
            region=settings.region,
        )
        return [Hold(grant, asked_at + grant.lease_seconds) for grant in grants]

    def _launch(self, hold: Hold) -> None:
        task = asyncio.create_task(self._work(hold))
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._freed.set()
        if not task.cancelled() and (error := task.exception()):
            self._report.trouble(f"an attempt broke: {error!r}")

    async def _more(self) -> bool:
        """Whether the queues hold anything that this worker can run, now or later."""
        settings = self._settings
        for queue in settings.queues:
            which = Filter(queue=queue, kind=COMMAND_KIND, states=(State.QUEUED, *sorted(LEASED)))
            cursor: str | None = None
            while True:
                page = await self._registry.list_jobs(which, after=cursor)
                if any(self._suits(job) for job in page.jobs):
                    return True
                cursor = page.next
                if cursor is None:
                    break
        return False

    def _suits(self, job: Job) -> bool:
        here = self._settings.region
        return job.spec.executor is None and (
            not job.spec.region or not here or job.spec.region == here
        )

    async def _work(self, hold: Hold) -> None:
        self._report.started(hold.grant)
        started_at = self._clock.monotonic()
        job = await self._attempt(hold)
        if job is not None:
            self._report.ended(job, self._clock.monotonic() - started_at)

    async def _attempt(self, hold: Hold) -> Job | None:
        """Run, publish, complete: in this order, so that no job ends before its output is stored."""
        self._keeper.add(hold)
        keeping = asyncio.create_task(self._keeper.keep(hold))
        output = Output(self._registry, self._clock, hold)
        publishing = asyncio.create_task(output.publish())
        execution = Execution(
            hold, output, self._keeper, self._clock, own=self._own, passed=self._settings.passed
        )
        try:
            outcome = await execution.run()
            output.close()
            await publishing
            if hold.lost:
                return None
            return await self._end(hold, outcome, stopped=execution.stopped)
        finally:
            keeping.cancel()
            publishing.cancel()
            await asyncio.gather(keeping, publishing, return_exceptions=True)
            self._keeper.remove(hold)
            if hold.lost:
                self._report.lost(hold.grant, hold.lost)

    async def _end(self, hold: Hold, outcome: Outcome, *, stopped: bool) -> Job | None:
        op_id = self._ids.new()
        grant = hold.grant

        def report() -> "asyncio.Future[Job]":
            if hold.released is not None and stopped:
                work = self._registry.release(grant, op_id=op_id, reason=hold.released)
            else:
                work = self._registry.complete(grant, outcome, op_id=op_id)
            return asyncio.ensure_future(work)

        try:
            return await self._insist(report, hold)
        except HoldfastError as error:
            hold.lose(error.message)
            return None

    async def _insist(self, ask: Callable[[], Awaitable[T]], hold: Hold | None = None) -> T | None:
        """Ask again, with the same op_id, until the store answers. A hold ends this with its lease,
        a claim when the worker is told to leave."""
        while True:
            try:
                return await ask()
            except Unavailable as error:
                if hold is None and self._leaving.is_set():
                    return None
                if hold is not None and self._clock.monotonic() >= hold.deadline:
                    raise Conflict("the store did not answer before the lease ended") from error
                self._report.trouble(error.message)
                await self._clock.sleep(RETRY_SECONDS)

    async def _expire(self) -> None:
        """Close what has lapsed, whoever held it. Every worker does this; none has to."""
        while True:
            await self._clock.sleep(EXPIRE_SECONDS * (0.75 + self._ids.chance() / 2))
            try:
                await self._registry.expire()
            except HoldfastError as error:
                self._report.trouble(error.message)

    async def _finish(self) -> None:
        """Let running jobs end; what takes too long is stopped and given back."""
        if not self._running:
            return
        waiting = asyncio.gather(*self._running, return_exceptions=True)
        if self._leaving.is_set():
            try:
                await asyncio.wait_for(asyncio.shield(waiting), self._settings.leave_seconds)
            except TimeoutError:
                self._give_back("the worker is shutting down")
        await waiting

    def _give_back(self, why: str) -> None:
        for hold in self._keeper.holds.values():
            hold.give_back(why)
