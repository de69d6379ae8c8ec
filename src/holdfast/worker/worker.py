"""The worker: claims jobs, has them run, reports how they ended, and leaves without losing any."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from holdfast import tracing
from holdfast.core.job import Progress
from holdfast.core.spec import Json
from holdfast.ports import Clock, Grant, Ids, Registry
from holdfast.system import SleepWatch, first_of
from holdfast.worker import spans
from holdfast.worker.claim_pause import ClaimPause, DescriptorReserve
from holdfast.worker.claims import Claims, WorkerSettings
from holdfast.worker.completion_reporter import CompletionReporter, WorkerObserver
from holdfast.worker.executor import RETURNED, EndedJob, Ending, Executor
from holdfast.worker.expiry import expire_leases
from holdfast.worker.failures import is_for_others
from holdfast.worker.held_job import MARGIN_SECONDS, HeldJob
from holdfast.worker.lease_renewer import LeaseRenewer
from holdfast.worker.leaving import Leaving
from holdfast.worker.output import AttemptOutput
from holdfast.worker.redaction import NOTHING_HIDDEN, Redactor
from holdfast.worker.slots import ClaimSize, Slots
from holdfast.worker.spool import AttemptLog, MemoryAttemptLog, Spool
from holdfast.worker.tasks import stop
from holdfast.worker.validation import WorkerValidation

IDLE_SECONDS = 0.6
SURPLUS_SECONDS = 1.0
FORCED_STOP_SECONDS = 20.0


class Worker:
    """Runs jobs in one process. It is the `Host` of its executors."""

    def __init__(
        self,
        registry: Registry,
        settings: WorkerSettings,
        observer: WorkerObserver,
        *,
        clock: Clock,
        ids: Ids,
        executors: Sequence[Executor],
        spool: Spool,
        validation: WorkerValidation | None = None,
        redactor: Redactor = NOTHING_HIDDEN,
        suspended: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.clock = clock
        self._registry = registry
        self._settings = settings
        self._observer = observer
        self._ids = ids
        self._executors = executors
        self._by_kind: dict[str, Executor] = {}
        self._claims = Claims(registry, settings, observer, clock=clock, kinds=self._by_kind)
        self._spool = spool
        self._watch = SleepWatch(clock, suspended)
        self._renewer = LeaseRenewer(
            registry, clock, self._renewed, watch=self._watch, trouble=observer.trouble
        )
        self._validation = validation
        self._redactor = redactor
        self._outputs: dict[HeldJob, AttemptOutput] = {}
        add = validation.add if validation else None
        self._reporter = CompletionReporter(registry, clock, ids, observer, self._outputs, self._closed, add)
        self._slots = Slots(clock, settings)
        self.pause = ClaimPause(clock, observer, settings.owner)
        self._reserve = DescriptorReserve()
        self._leaving = Leaving()
        self._left_at = 0.0
        self._freed = asyncio.Event()
        self._waiting: deque[HeldJob] = deque()
        self._refilling = False

    @property
    def running(self) -> int:
        """How many jobs are being run."""
        return self._slots.running

    @property
    def threads_running(self) -> int:
        """How many of them take a thread or process each."""
        return self._slots.threads_running

    @property
    def waiting(self) -> int:
        """How many jobs are claimed and wait for a slot."""
        return len(self._waiting)

    def leave(self) -> None:
        """Claim no more; give the running jobs a little time, then release them. Called again: release
        now."""
        if self._leaving.is_set():
            self._give_back("the worker was told twice to leave", now=True)
        else:
            self._left_at = self.clock.monotonic()
        self._leaving.set()
        self._freed.set()

    async def run(self) -> None:
        """Work until `leave` is called, or, when draining, until nothing is left."""
        async with self._opened():
            around = self._registry, self._claims, self._observer, self._watch
            expiry = expire_leases(*around, clock=self.clock, ids=self._ids)
            beside: list[Coroutine[Any, Any, None]] = [self._return_surplus(), expiry]
            if self._validation is not None:
                beside.append(self._validation.sweep())
            loops = [asyncio.create_task(loop) for loop in beside]
            try:
                await self._claim()
                await self._finish_jobs()
                await self._await_validation()
            finally:
                await stop(*loops)

    async def run_one(self, grant: Grant, deadline: float) -> bool:
        """Run this one grant to its end; return whether the lease was still held then. It is not given
        back: a job that cannot begin here has failed."""
        self.pause.alone = True
        async with self._opened():
            held = HeldJob(grant, deadline)
            self._take([held])
            await self._finish_jobs()
            await self._await_validation()
            return not held.lost

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        """Yield with the executors open."""
        loops = await self.open()
        try:
            yield
        finally:
            await self.close()
            await stop(*loops)

    async def open(self) -> list[asyncio.Task[None]]:
        """Open the executors, and start the loops that run beside the jobs."""
        self._reserve.take()
        for executor in self._executors:
            await executor.open(self)
            self._by_kind |= dict.fromkeys(executor.kinds, executor)
        beside = (self._renewer.run(), self._renewer.watch(), self._reporter.run())
        loops = [asyncio.create_task(loop) for loop in beside]
        for loop in loops:
            loop.add_done_callback(self._loop_failed)
        return loops

    def _loop_failed(self, loop: asyncio.Task[None]) -> None:
        """Leave at once: a worker whose leases are not renewed must not run jobs."""
        if not loop.cancelled() and (error := loop.exception()):
            self._observer.trouble(f"the worker has a fault, and leaves: {error!r}")
            self.leave()
            self.leave()

    async def close(self) -> None:
        self._reserve.free()
        for executor in self._executors:
            await executor.close()
        if self._validation is not None:
            await self._validation.close()

    # Claiming.

    async def _claim(self) -> None:
        while not self._leaving.is_set():
            if seconds := self.pause.seconds:
                await self._leaving.or_until(self.clock.sleep(seconds))
                continue
            self._renewer.notice_sleep()
            if seconds := self._watch.yielding:  # a claim expires leases
                await self._leaving.or_until(self.clock.sleep(seconds))
                continue
            if seconds := self._slots.pause():
                self._freed.clear()
                await first_of(self.clock.sleep(seconds), self._freed.wait())
                continue
            storing = sum(not held.running for held in self._outputs)
            held_count = len(self._waiting) + self.running + storing
            size = self._slots.next_claim(self._waiting, storing)
            limit = self.pause.allowed(size.limit)
            if not limit:
                self._freed.clear()
                await self._freed.wait()
                continue
            mark = self._registry.change_mark(ready=True)
            held_jobs = await self._claims.claim(self._ids.new(), limit, self._leaving, without=size.without)
            self.pause.claimed(held_jobs)
            self._slots.claimed(size, len(held_jobs))
            self._take(held_jobs)
            if len(held_jobs) < limit:
                if (
                    not held_jobs
                    and self._settings.drain
                    and not held_count
                    and not await self._claims.any_left()
                ):
                    return
                due_at = self.clock.monotonic() + IDLE_SECONDS
                await self._leaving.or_until(self._changes(mark, size))
                self._watch.late(due_at)

    async def _changes(self, mark: int, size: ClaimSize) -> None:
        """Wait for a change that may have made a job ready; also for the end of a job of this worker, when
        draining, as nothing may be left then, or when the last claim has left out some kinds."""
        if self._slots.has_room_for(size.without, self._waiting):
            return
        changes = self._registry.changes(since=mark, timeout=IDLE_SECONDS, ready=True)
        if not (self._settings.drain or size.without):
            await changes
            return
        self._freed.clear()
        await first_of(changes, self._freed.wait())

    # Running.

    def _take(self, held_jobs: Sequence[HeldJob]) -> None:
        if held_jobs:
            self._renewer.add(held_jobs)
            self._waiting.extend(held_jobs)
            self._refill()

    def _refill(self) -> None:
        """Begin as many of the waiting jobs as there are free slots."""
        self._refilling = False
        if self._leaving.is_set():
            return
        begun: list[HeldJob] = []
        waiting, slots = self._waiting, self._slots
        now = self.clock.monotonic()
        while (held := slots.next_job(waiting)) is not None:
            if now >= held.deadline - MARGIN_SECONDS:
                self._renewer.notice_sleep()
                if held.slept:
                    held.released = "the machine of its worker was asleep"
                else:
                    held.lose("the lease was over before the work began")
            if held.must_stop:
                slots.given_up(held)
                self._reporter.add([(held, Ending(cancelled=True, stopped=True))])
                continue
            held.running = True
            begun.append(held)
        self._renewer.begin(begun, now)
        started, traced = self._observer.started, tracing.is_enabled()
        for held in begun:
            if traced:
                spans.begin(held)
            started(held.grant)
        for executor, same in groupby(begun, key=self._executor):
            executor.run(list(same))

    def _executor(self, held: HeldJob) -> Executor:
        return self._by_kind[held.grant.job.spec.kind]

    def output(self, held: HeldJob) -> AttemptOutput:
        output = self._outputs.get(held)
        if output is None:
            log = self._log(held)
            output = AttemptOutput(self._registry, self.clock, held, log, redactor=self._redactor)
            self._outputs[held] = output
        return output

    def _log(self, held: HeldJob) -> AttemptLog:
        try:
            return self._spool.log(held)
        except OSError as error:
            self._observer.trouble(f"output waits in memory, the spool cannot be used: {error}")
            return MemoryAttemptLog()

    def progress(self, held: HeldJob, progress: Progress) -> None:
        message = self._redactor.value(progress.message)
        self._renewer.progress(held, replace(progress, message=message))

    async def checkpoint(self, held: HeldJob, value: Json) -> None:
        await self._renewer.checkpoint(held, self._redactor.value(value))

    def trouble(self, why: str) -> None:
        self._observer.trouble(self._redactor.text(why))

    def begun(self, held_jobs: Sequence[HeldJob]) -> None:
        now = self.clock.monotonic()
        for held in held_jobs:
            held.begun_at = now
        if self.pause.begun(held_jobs):
            self._reserve.take()
            self._freed.set()

    def ended(self, endings: Sequence[EndedJob]) -> None:
        now = self.clock.monotonic()
        reported: list[EndedJob] = []
        for held, ending in endings:
            held.running = False
            held.listener = None
            reported.append(one := (held, self._judge(held, ending)))
            if held.span is not None:
                spans.end(*one)
            self._renewer.end(held, now)
        self._slots.jobs_ended(endings)
        self._reporter.add(reported)
        if not self._refilling:
            self._refilling = True
            asyncio.get_running_loop().call_soon(self._refill)

    def _judge(self, held: HeldJob, ending: Ending) -> Ending:
        """Return the ending to report: without secrets, and given back if the machine is at fault."""
        if ending is RETURNED and self.pause.idle:
            return ending
        ending = ending.redacted(self._redactor)
        failure = ending.failure
        if self._settings.drain and failure is not None and is_for_others(held, failure):
            self._claims.not_understood.add(held.job_id)
        ending = self.pause.ended(held, ending)
        if not self.pause.on:
            self._reserve.take()
        elif self.pause.seconds:
            self._reserve.free()
            self._release_waiting("the worker cannot run jobs now")
        return ending

    def _closed(self, held_jobs: Sequence[HeldJob]) -> None:
        """These attempts are reported, and their output is stored."""
        self.pause.closed(held_jobs)
        if self._outputs:
            for held in held_jobs:
                self._outputs.pop(held, None)
        self._renewer.remove(held_jobs)
        self._freed.set()

    def _renewed(self, held: HeldJob) -> None:
        if held.running:
            # Work that lasts has a spool file, so that after a crash the next worker finds it.
            self.output(held)
        self._executor(held).renewed(held)

    # Beside the jobs.

    async def _return_surplus(self) -> None:
        """Release jobs that were claimed ahead and could not begin soon."""
        while True:
            before = set(self._waiting)
            await self.clock.sleep(SURPLUS_SECONDS)
            if not self.pause.on:
                self._reserve.take()
            if any(held in before for held in self._waiting):
                self._release_waiting("the worker has no room for it")

    def _release_waiting(self, why: str) -> None:
        while self._waiting:
            held = self._waiting.pop()
            held.released = why
            self._reporter.add([(held, Ending(stopped=True))])

    # Leaving.

    async def _finish_jobs(self) -> None:
        """Wait until running jobs have ended. A worker that leaves stops and releases those that take too
        long; one that does not end even then, such as a compensation that hangs, is left to its lease."""
        if not self._leaving.is_set():
            await self._all_end()
            return
        self._release_waiting("the worker is leaving")
        if not await self._all_end_within(self._settings.leave_seconds):
            self._give_back("the worker is shutting down")
            if not await self._all_end_within(FORCED_STOP_SECONDS):
                for held in list(self._renewer.held_jobs.values()):
                    held.lose("the worker has left")
                await self._all_end_within(FORCED_STOP_SECONDS / 10)

    async def _all_end_within(self, seconds: float) -> bool:
        """Whether every held job ends within this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._all_end()
        return not self._renewer.held_jobs

    async def _all_end(self) -> None:
        while self._renewer.held_jobs:
            self._freed.clear()
            await self._freed.wait()
            if self._leaving.is_set() and self._waiting:
                self._release_waiting("the worker is leaving")

    async def _await_validation(self) -> None:
        """Wait until the outputs of this worker's jobs are validated. A worker that leaves does not wait
        long: other workers validate the rest."""
        if self._validation is None:
            return
        await first_of(self._validation.wait_until_validated(), self._leaving.wait())
        gone = self.clock.monotonic() - self._left_at
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._settings.leave_seconds - gone)):
                await self._validation.wait_until_validated()

    def _give_back(self, why: str, *, now: bool = False) -> None:
        for held in list(self._renewer.held_jobs.values()):
            held.give_back(why, now=now)
