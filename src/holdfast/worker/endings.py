"""Endings: what came of attempts, told to the registry. Short jobs that end together share a commit."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Protocol

import msgspec
from msgspec import Struct

from holdfast.core.catalogue import ReasonCode, Stage
from holdfast.core.errors import (
    Conflict,
    Denied,
    Exhausted,
    Fenced,
    HoldfastError,
    Invalid,
    Unavailable,
)
from holdfast.core.job import Failure, Job
from holdfast.core.state import State
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Grant, Ids, Registry
from holdfast.worker.executor import Ending
from holdfast.worker.hold import Hold
from holdfast.worker.output import Output
from holdfast.worker.tasks import stop

RETRY_SECONDS = 0.5
FULL_QUEUE_DELAY = timedelta(seconds=60)
VALIDATING = State.VALIDATING  # looked up once


class Report(Protocol):
    """Whoever wants to know what a worker does."""

    def started(self, grant: Grant) -> None: ...

    def ended(self, job: Job, seconds: float) -> None: ...

    def lost(self, grant: Grant, why: str) -> None: ...

    def trouble(self, why: str) -> None: ...

    def paused(self, seconds: float, why: str) -> None:
        """The worker claims nothing for so long: its machine cannot run jobs."""
        ...

    def resumed(self) -> None:
        """The machine runs jobs again."""
        ...


class Note(Struct, frozen=True, gc=False, array_like=True):
    """What the spool keeps of an ending: enough to tell it again, after a crash, as the same one."""

    op_id: str
    released: str | None
    ending: Ending


class Endings:
    """Completes, releases or drops every attempt that is over. `closed` hears of each, at its end, and
    `validate` of jobs whose outputs are to be looked for: then it is for them to report the end."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        ids: Ids,
        report: Report,
        closed: Callable[[Hold], None],
        validate: Callable[[Job, float], None] | None = None,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._ids = ids
        self._report = report
        self._closed = closed
        self._validate = validate
        self._waiting: list[tuple[Hold, Ending]] = []
        self._some = asyncio.Event()
        self._apart: dict[asyncio.Task[None], None] = {}

    def add(self, hold: Hold, ending: Ending, output: Output | None) -> None:
        """This attempt is over. Nothing of it is told before its output is stored."""
        if output is None and ending.snooze is None and not (hold.released or hold.progress):
            self._waiting.append((hold, ending))
            self._some.set()
        else:
            self._begin(hold, Note(self._ids.new(), _released(hold, ending), ending), output)

    def _begin(self, hold: Hold, note: Note, output: Output | None) -> None:
        task = asyncio.create_task(self._end(hold, note, output))
        self._apart[task] = None
        task.add_done_callback(partial(self._done, hold=hold))

    def _done(self, task: asyncio.Task[None], hold: Hold) -> None:
        del self._apart[task]
        if not task.cancelled() and (error := task.exception()):
            self._report.trouble(f"an attempt could not be ended: {error!r}")
            self._closed(hold)

    async def run(self) -> None:
        """Complete what has ended, all that waits in one commit. Runs until cancelled."""
        try:
            while True:
                await self._some.wait()
                self._some.clear()
                batch, self._waiting = self._waiting, []
                await self._complete(batch)
        finally:
            await stop(*self._apart)

    async def _complete(self, ended: list[tuple[Hold, Ending]]) -> None:
        base = self._ids.new()
        for hold, _ in ended:
            if hold.lost:
                self._tell(hold, Fenced(hold.lost))
        batch = [one for one in ended if not one[0].lost]
        completions = [
            ending.completion(hold.grant, f"{base}.{n}") for n, (hold, ending) in enumerate(batch)
        ]
        answers = await self._registry.complete_many(completions)
        failpoint("worker.completed_many")
        for n, ((hold, ending), answer) in enumerate(zip(batch, answers, strict=True)):
            if isinstance(answer, Unavailable):
                self._report.trouble(answer.message)
                self._begin(hold, Note(f"{base}.{n}", None, ending), None)
            elif (instead := self._instead(answer, ending)) is not None:
                self._begin(hold, instead, None)
            else:
                self._tell(hold, answer)

    async def _end(self, hold: Hold, note: Note, output: Output | None) -> None:
        if output is not None:
            output.seal(msgspec.msgpack.encode(note))
            failpoint("worker.sealed")
            await output.flush()
            failpoint("worker.output_stored")
        answer: Job | HoldfastError = Fenced(hold.lost or "")
        if not hold.lost:
            await self._show(hold, note)
            answer = await self._insist(hold, note)
            if (instead := self._instead(answer, note.ending)) is not None:
                answer = await self._insist(hold, instead)
            failpoint("worker.completed")
        if output is not None:
            await output.close()
        self._tell(hold, answer)

    async def _show(self, hold: Hold, note: Note) -> None:
        """The last word about its progress; and that it was run, if it is given back. Neither is worth
        a second try."""
        given_back = note.released is not None or note.ending.snooze is not None
        if hold.progress or (given_back and hold.begun_at is not None):
            with suppress(HoldfastError):
                await self._registry.heartbeat(hold.grant, progress=hold.progress)

    def _instead(self, answer: Job | HoldfastError, ending: Ending) -> Note | None:
        """How an attempt ends whose ending was refused; None when there is no other way. Where a queue is too
        long for the jobs that it asked for, the job is given back: that is no fault of its own."""
        if ending.failure is not None:
            return None
        asked = bool(ending.follow_ups)
        if isinstance(answer, Exhausted) and asked:
            later = Ending(snooze=FULL_QUEUE_DELAY, reason=answer.message)
            return Note(self._ids.new(), None, later)
        if isinstance(answer, Invalid) or (isinstance(answer, Denied) and asked):
            return self._refused(answer)
        return None

    def _refused(self, error: HoldfastError) -> Note:
        """What a job returned, or the jobs it asked for, can never be stored: so it has failed."""
        failure = Failure(
            message=error.message,
            code=type(error).__name__,
            retryable=False,
            stage=Stage.OUTPUT,
            reason_code=ReasonCode.VALIDATION_FAILED,
        )
        return Note(self._ids.new(), None, Ending(failure=failure))

    async def _insist(self, hold: Hold, note: Note) -> Job | HoldfastError:
        """Tell it again, under the same op_id, until the store answers or the lease is over."""
        while True:
            try:
                return await tell(self._registry, hold.grant, note)
            except Unavailable as error:
                if self._clock.monotonic() >= hold.deadline:
                    return Conflict("the store did not answer before the lease ended")
                self._report.trouble(error.message)
                await self._clock.sleep(RETRY_SECONDS)
            except HoldfastError as error:
                return error

    def _tell(self, hold: Hold, answer: Job | HoldfastError) -> None:
        if isinstance(answer, Job):
            hold.lost = None  # we ended it, whatever the keeper has heard of it since
            if self._validate is not None and _lookable(answer):
                self._validate(answer, hold.seconds)
            else:
                self._report.ended(answer, hold.seconds)
        else:
            hold.lose(answer.message)
            self._report.lost(hold.grant, hold.lost or answer.message)
        self._closed(hold)


def _lookable(job: Job) -> bool:
    """Whether its outputs are to be looked for now: the work is done, or has ended without success."""
    return job.state is VALIDATING or (job.unverified and job.spec.outputs is not None)


def _released(hold: Hold, ending: Ending) -> str | None:
    """Why the job is given back, if it is: work that ended by itself, or was undone, counts."""
    return hold.released if ending.stopped and ending.compensated is None else None


async def tell(registry: Registry, grant: Grant, note: Note) -> Job:
    """Tell the registry how the attempt ended."""
    ending = note.ending
    if note.released is not None:
        return await registry.release(grant, op_id=note.op_id, reason=note.released)
    if ending.snooze is not None:
        reason = ending.reason or "snoozed"
        return await registry.release(grant, op_id=note.op_id, reason=reason, delay=ending.snooze)
    done = ending.completion(grant, note.op_id)
    return await registry.complete(
        grant,
        done.outcome,
        op_id=note.op_id,
        compensated=done.compensated,
        follow_ups=done.follow_ups,
    )
