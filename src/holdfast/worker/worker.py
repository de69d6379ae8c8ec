"""The worker: claims jobs, runs them, reports what happened, and leaves without losing any."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from itertools import product
from typing import Protocol, TypeVar

from msgspec import Struct

from holdfast.core.errors import Conflict, HoldfastError, Unavailable
from holdfast.core.job import Job
from holdfast.core.lifecycle import Outcome
from holdfast.core.state import LEASED, State
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Filter, Grant, Ids, Registry
from holdfast.worker.hold import Hold
from holdfast.worker.keeper import Guard, Keeper
from holdfast.worker.output import Output
from holdfast.worker.tasks import stop

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


class Attempt(Protocol):
    """One job being run. `stopped` says that it did not end by itself."""

    stopped: bool

    async def run(self) -> Outcome: ...


class Executor(Protocol):
    """How a worker runs the kinds of jobs it takes."""

    kinds: tuple[str, ...]

    def open(self) -> Guard:
        """Get ready. The worker closes the guard when it leaves."""
        ...

    def attempt(self, hold: Hold, output: Output, keeper: Keeper) -> Attempt: ...


class Settings(Struct, frozen=True, kw_only=True):
    """What a worker is told. `drain` ends it when its queues have nothing left to run."""

    owner: str
    queues: tuple[str, ...] = ("default",)
    slots: int = 1
    region: str | None = None
    lease: timedelta | None = None
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
        executor: Executor,
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._report = report
        self._clock = clock
        self._ids = ids
        self._executor = executor
        self._leaving = asyncio.Event()
        self._freed = asyncio.Event()
        self._running: dict[asyncio.Task[None], None] = {}

    def leave(self) -> None:
        """Take no more jobs; give the running ones a little time, then give them back."""
        if self._leaving.is_set():
            self._give_back("the worker was told twice to leave")
        self._leaving.set()
        self._freed.set()

    async def run(self) -> None:
        """Work until told to leave (or until nothing is left, when draining)."""
        guard = self._executor.open()
        self._keeper = Keeper(self._registry, self._clock, guard)
        loops = [
            asyncio.create_task(self._keeper.listen()),
            asyncio.create_task(self._expire()),
        ]
        try:
            await self._claim()
            await self._finish()
        finally:
            await stop(*loops)
            guard.close()

    async def run_one(self, grant: Grant, deadline: float) -> Job | None:
        """Run this one grant and return the job as it ended, or None when the lease was lost."""
        guard = self._executor.open()
        self._keeper = Keeper(self._registry, self._clock, guard)
        listening = asyncio.create_task(self._keeper.listen())
        try:
            return await self._attempt(Hold(grant, deadline))
        finally:
            await stop(listening)
            guard.close()

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
            kinds=self._executor.kinds,
            lease=settings.lease,
            region=settings.region,
        )
        failpoint("worker.granted")
        return [Hold(grant, asked_at + grant.lease_seconds) for grant in grants]

    def _launch(self, hold: Hold) -> None:
        task = asyncio.create_task(self._work(hold))
        self._running[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._freed.set()
        if not task.cancelled() and (error := task.exception()):
            self._report.trouble(f"an attempt broke: {error!r}")

    async def _more(self) -> bool:
        """Whether the queues hold anything that this worker can run, now or later."""
        settings = self._settings
        for queue, kind in product(settings.queues, self._executor.kinds):
            which = Filter(queue=queue, kind=kind, states=(State.QUEUED, *sorted(LEASED)))
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
            failpoint("worker.completed")
            self._report.ended(job, self._clock.monotonic() - started_at)

    async def _attempt(self, hold: Hold) -> Job | None:
        """Run, publish, complete: in this order, so that no job ends before its output is stored."""
        self._keeper.add(hold)
        keeping = asyncio.create_task(self._keeper.keep(hold))
        output = Output(self._registry, self._clock, hold)
        publishing = asyncio.create_task(output.publish())
        execution = self._executor.attempt(hold, output, self._keeper)
        job: Job | None = None
        try:
            outcome = await execution.run()
            output.close()
            await publishing
            failpoint("worker.output_stored")
            if not hold.lost:
                job = await self._end(hold, outcome, stopped=execution.stopped)
            return job
        finally:
            await stop(keeping, publishing)
            self._keeper.remove(hold)
            if hold.lost and job is None:
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
                failpoint("worker.expired_others")
            except HoldfastError as error:
                self._report.trouble(error.message)

    async def _finish(self) -> None:
        """Let running jobs end; what takes too long is stopped and given back."""
        if not self._running:
            return
        waiting = asyncio.gather(*self._running, return_exceptions=True)
        if self._leaving.is_set():
            try:
                async with asyncio.timeout(self._settings.leave_seconds):
                    await asyncio.shield(waiting)
            except TimeoutError:
                self._give_back("the worker is shutting down")
        await waiting

    def _give_back(self, why: str) -> None:
        for hold in self._keeper.holds.values():
            hold.give_back(why)
