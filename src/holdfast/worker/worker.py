"""The worker: claims jobs, has them run, reports what happened, and leaves without losing any."""

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from holdfast.core.errors import HoldfastError
from holdfast.core.job import Failure, Progress
from holdfast.core.spec import Json
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Grant, Ids, Registry
from holdfast.system import first_of, jittered
from holdfast.worker import spans
from holdfast.worker.claims import Claims, Settings
from holdfast.worker.endings import Endings, Report
from holdfast.worker.executor import Ending, Executor
from holdfast.worker.hold import MARGIN_SECONDS, Hold
from holdfast.worker.keeper import Keeper
from holdfast.worker.output import Output
from holdfast.worker.pace import Pace
from holdfast.worker.pause import Pause
from holdfast.worker.redaction import NOTHING_HIDDEN, Redactor
from holdfast.worker.reserve import Reserve
from holdfast.worker.spool import Log, MemoryLog, Spool
from holdfast.worker.tasks import stop
from holdfast.worker.validating import Validating

IDLE_SECONDS = 0.6
EXPIRE_SECONDS = 1.0
SURPLUS_SECONDS = 1.0
LAST_SECONDS = 20.0
DRAIN_TRIES = 3


class Worker:
    """One process's worth of running jobs. It is the `Host` of its executors."""

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        report: Report,
        *,
        clock: Clock,
        ids: Ids,
        executors: Sequence[Executor],
        spool: Spool,
        validating: Validating | None = None,
        redactor: Redactor = NOTHING_HIDDEN,
    ) -> None:
        self.clock = clock
        self._registry = registry
        self._settings = settings
        self._report = report
        self._ids = ids
        self._executors = executors
        self._by_kind: dict[str, Executor] = {}
        self._claims = Claims(registry, settings, report, clock=clock, kinds=self._by_kind)
        self._spool = spool
        self._keeper = Keeper(registry, clock, self._renewed)
        self._validating = validating
        self._redactor = redactor
        self._endings = Endings(
            registry, clock, ids, report, self._closed, validating.add if validating else None
        )
        self._pace = Pace(clock, settings.slots)
        self.pause = Pause(clock, report, settings.owner)
        self._reserve = Reserve()
        self._leaving = asyncio.Event()
        self._left_at = 0.0
        self._freed = asyncio.Event()
        self._waiting: deque[Hold] = deque()
        self._running: dict[Hold, None] = {}
        self._outputs: dict[Hold, Output] = {}
        self._refilling = False

    @property
    def running(self) -> int:
        """How many jobs are being run."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many are claimed, and wait for a slot."""
        return len(self._waiting)

    def leave(self) -> None:
        """Take no more jobs; give the running ones a little time, then give them back."""
        if self._leaving.is_set():
            self._give_back("the worker was told twice to leave", now=True)
        else:
            self._left_at = self.clock.monotonic()
        self._leaving.set()
        self._freed.set()

    async def run(self) -> None:
        """Work until told to leave (or until nothing is left, when draining)."""
        async with _Opened(self):
            beside = [self._return_surplus(), self._expire()]
            if self._validating is not None:
                beside.append(self._validating.sweep())
            loops = [asyncio.create_task(loop) for loop in beside]
            try:
                await self._claim()
                await self._finish()
                await self._settle()
            finally:
                await stop(*loops)

    async def run_one(self, grant: Grant, deadline: float) -> bool:
        """Run this one grant to its end; answers whether it was still ours then. There is nobody to give
        it back to: what cannot be begun here has failed."""
        self.pause.alone = True
        async with _Opened(self):
            hold = Hold(grant, deadline)
            self._take([hold])
            await self._finish()
            await self._settle()
            return not hold.lost

    async def open(self) -> list[asyncio.Task[None]]:
        """Open the executors, and begin what goes on beside the jobs."""
        self._reserve.take()
        for executor in self._executors:
            await executor.open(self)
            self._by_kind |= dict.fromkeys(executor.kinds, executor)
        loops = [
            asyncio.create_task(loop)
            for loop in (self._keeper.keep(), self._keeper.listen(), self._endings.run())
        ]
        for loop in loops:
            loop.add_done_callback(self._broken)
        return loops

    def _broken(self, loop: asyncio.Task[None]) -> None:
        """A worker without its keeper must hold nothing: it leaves, at once."""
        if not loop.cancelled() and (error := loop.exception()):
            self._report.trouble(f"the worker has a fault, and leaves: {error!r}")
            self.leave()
            self.leave()

    async def close(self) -> None:
        self._reserve.free()
        for executor in self._executors:
            await executor.close()
        if self._validating is not None:
            await self._validating.close()

    # Claiming.

    async def _claim(self) -> None:
        while not self._leaving.is_set():
            if seconds := self.pause.seconds:
                await self._or_leave(self.clock.sleep(seconds))
                continue
            storing = sum(hold not in self._running for hold in self._outputs)
            held = len(self._waiting) + len(self._running) + storing
            wanted = self.pause.allowed(self._pace.wanted(len(self._waiting), held))
            if not wanted:
                self._freed.clear()
                await self._freed.wait()
                continue
            mark = self._registry.mark(ready=True)
            holds = await self._claims.ask(self._ids.new(), wanted, self._leaving)
            self.pause.claimed(holds)
            self._take(holds)
            if len(holds) < wanted:
                if (
                    not holds
                    and self._settings.drain
                    and not held
                    and not await self._claims.any_left()
                ):
                    return
                await self._idle(mark)

    async def _idle(self, mark: int) -> None:
        """Wait until there may be something to claim."""
        await self._or_leave(self._registry.changed(since=mark, timeout=IDLE_SECONDS, ready=True))

    async def _or_leave(self, waiting: Coroutine[Any, Any, object]) -> None:
        """Wait for this; being told to leave ends it."""
        await first_of(waiting, self._leaving.wait())

    # Running.

    def _take(self, holds: Sequence[Hold]) -> None:
        if holds:
            self._keeper.add(holds)
            self._waiting.extend(holds)
            self._refill()

    def _refill(self) -> None:
        """Begin as many of the waiting as there are slots."""
        self._refilling = False
        if self._leaving.is_set():
            return
        begun: list[Hold] = []
        now = self.clock.monotonic()
        while self._waiting and len(self._running) < self._settings.slots:
            hold = self._waiting.popleft()
            if now >= hold.deadline - MARGIN_SECONDS:
                hold.lose("the lease was over before the work began")
            if hold.stopping:
                self._endings.add(hold, Ending(cancelled=True, stopped=True), None)
                continue
            self._running[hold] = None
            self._keeper.begin(hold, now)
            spans.begin(hold)
            self._report.started(hold.grant)
            begun.append(hold)
        for executor, same in groupby(begun, key=self._executor):
            executor.run(list(same))

    def _executor(self, hold: Hold) -> Executor:
        return self._by_kind[hold.grant.job.spec.kind]

    def output(self, hold: Hold) -> Output:
        output = self._outputs.get(hold)
        if output is None:
            log = self._log(hold)
            output = Output(self._registry, self.clock, hold, log, redactor=self._redactor)
            self._outputs[hold] = output
        return output

    def _log(self, hold: Hold) -> Log:
        try:
            return self._spool.log(hold)
        except OSError as error:
            self._report.trouble(f"output waits in memory, the spool cannot be used: {error}")
            return MemoryLog()

    def progress(self, hold: Hold, progress: Progress) -> None:
        message = self._redactor.value(progress.message)
        self._keeper.progress(hold, replace(progress, message=message))

    async def checkpoint(self, hold: Hold, value: Json) -> None:
        await self._keeper.checkpoint(hold, self._redactor.value(value))

    def trouble(self, why: str) -> None:
        self._report.trouble(self._redactor.text(why))

    def begun(self, hold: Hold) -> None:
        hold.begun_at = self.clock.monotonic()
        if self.pause.begun(hold):
            self._reserve.take()
            self._freed.set()

    def ended(self, hold: Hold, ending: Ending) -> None:
        del self._running[hold]
        hold.listener = None
        ending = ending.without(self._redactor)
        failure = ending.failure
        if self._settings.drain and failure is not None and _is_for_others(hold, failure):
            self._claims.not_understood.add(hold.job_id)
        ending = self.pause.ended(hold, ending)
        if not self.pause.on:
            self._reserve.take()
        elif self.pause.seconds:
            self._reserve.free()
            self._let_go("the worker cannot run jobs now")
        spans.end(hold, ending)
        self._keeper.end(hold)
        self._pace.ended()
        self._endings.add(hold, ending, self._outputs.get(hold))
        if not self._refilling:
            self._refilling = True
            asyncio.get_running_loop().call_soon(self._refill)

    def _closed(self, hold: Hold) -> None:
        """Everything about the attempt has been told."""
        self.pause.over(hold)
        self._outputs.pop(hold, None)
        self._keeper.remove(hold)
        self._freed.set()

    def _renewed(self, hold: Hold) -> None:
        if hold in self._running:
            self.output(hold)  # work that lasts has a file, for whoever comes after a crash
        self._executor(hold).renewed(hold)

    # Beside the jobs.

    async def _expire(self) -> None:
        """Close what has lapsed, whoever held it. Every worker does this; none has to."""
        while True:
            seconds = jittered(EXPIRE_SECONDS, self._ids)
            await self.clock.sleep(seconds)
            if self.clock.monotonic() - self._claims.asked_at < seconds:
                continue  # a claim sweeps on its way
            try:
                await self._registry.expire()
                failpoint("worker.expired_others")
            except HoldfastError as error:
                self._report.trouble(error.message)

    async def _return_surplus(self) -> None:
        """Give back what was claimed ahead of need and then could not begin soon."""
        while True:
            before = set(self._waiting)
            await self.clock.sleep(SURPLUS_SECONDS)
            if any(hold in before for hold in self._waiting):
                self._let_go("the worker has no room for it")

    def _let_go(self, why: str) -> None:
        while self._waiting:
            hold = self._waiting.pop()
            hold.released = why
            self._endings.add(hold, Ending(stopped=True), None)

    # Leaving.

    async def _finish(self) -> None:
        """Let running jobs end. A worker that leaves stops what takes too long and gives it back; what
        does not even end then, such as a compensation that hangs, is left to its lease."""
        if not self._leaving.is_set():
            await self._empty()
            return
        self._let_go("the worker is leaving")
        if not await self._empties(self._settings.leave_seconds):
            self._give_back("the worker is shutting down")
            if not await self._empties(LAST_SECONDS):
                for hold in list(self._keeper.holds.values()):
                    hold.lose("the worker has left")
                await self._empties(LAST_SECONDS / 10)

    async def _empties(self, seconds: float) -> bool:
        """Whether everything ends within so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty()
        return not self._keeper.holds

    async def _empty(self) -> None:
        while self._keeper.holds:
            self._freed.clear()
            await self._freed.wait()
            if self._leaving.is_set() and self._waiting:
                self._let_go("the worker is leaving")

    async def _settle(self) -> None:
        """Let the outputs of our own jobs be looked for. A worker that leaves does not wait long: others
        find what is left."""
        if self._validating is None:
            return
        await first_of(self._validating.settle(), self._leaving.wait())
        gone = self.clock.monotonic() - self._left_at
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._settings.leave_seconds - gone)):
                await self._validating.settle()

    def _give_back(self, why: str, *, now: bool = False) -> None:
        for hold in list(self._keeper.holds.values()):
            hold.give_back(why, now=now)


def _is_for_others(hold: Hold, failure: Failure) -> bool:
    """Whether a worker that leaves when all is done need not wait until it has this job again."""
    tries = hold.grant.job.not_started + 1
    return failure.not_understood or (failure.not_started and tries >= DRAIN_TRIES)


class _Opened:
    """A worker with its executors open."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._loops: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> None:
        self._loops = await self._worker.open()

    async def __aexit__(self, *_: object) -> None:
        await self._worker.close()
        await stop(*self._loops)
