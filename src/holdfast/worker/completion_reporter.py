"""Reports how attempts ended to the registry. Short jobs that end together share a commit."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

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
from holdfast.ports import Clock, Completion, Grant, Ids, Registry
from holdfast.worker.executor import NOTHING, RETURNED, EndedJob, Ending
from holdfast.worker.held_job import HeldJob
from holdfast.worker.output import AttemptOutput
from holdfast.worker.tasks import stop

RETRY_SECONDS = 0.5
TOLD_SECONDS = 0.1
"""Work that takes as long, or has output, is reported with its duration. Shorter work is not: thousands of
jobs that returned nothing are reported as one."""
FULL_QUEUE_DELAY = timedelta(seconds=60)
VALIDATING = State.VALIDATING  # looked up once


class WorkerObserver(Protocol):
    """Is told what a worker does: its log, its metrics."""

    def started(self, grant: Grant) -> None: ...

    def ended(self, job: Job, seconds: float) -> None: ...

    def lost(self, grant: Grant, why: str) -> None: ...

    def trouble(self, why: str) -> None: ...

    def paused(self, seconds: float, why: str) -> None:
        """The worker claims nothing for this long: its machine cannot run jobs."""
        ...

    def resumed(self) -> None:
        """The machine runs jobs again."""
        ...


class PendingCompletion(Struct, frozen=True, gc=False, array_like=True):
    """How an attempt ended, as the spool keeps it: after a crash the next worker reports it, under the same
    `op_id`."""

    op_id: str
    released: str | None
    ending: Ending


class CompletionReporter:
    """Completes, releases or drops every attempt that is over, then calls `closed`. Those that have nothing
    in `outputs` are completed many at a time. A job whose outputs are to be validated is passed to
    `validate`, which then tells the observer of its end."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        ids: Ids,
        observer: WorkerObserver,
        outputs: Mapping[HeldJob, AttemptOutput],
        closed: Callable[[Sequence[HeldJob]], None],
        validate: Callable[[Job, float], None] | None = None,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._ids = ids
        self._observer = observer
        self._outputs = outputs
        self._closed = closed
        self._validate = validate
        self._waiting: list[EndedJob] = []
        self._nonempty = asyncio.Event()
        self._separate: dict[asyncio.Task[None], None] = {}

    def add(self, endings: Sequence[EndedJob]) -> None:
        """Report that these attempts are over, each once its output is stored."""
        outputs = self._outputs
        for held, given in endings:
            output = outputs.get(held) if outputs else None
            seconds = held.work_seconds
            told = seconds >= TOLD_SECONDS or (output is not None and seconds)
            ending = replace(given, seconds=round(seconds, 3)) if told else given
            if output is None and ending.snooze is None and not (held.released or held.progress):
                self._waiting.append((held, ending))
            else:
                self._start(held, PendingCompletion(self._ids.new(), _released(held, ending), ending), output)
        if self._waiting:
            self._nonempty.set()

    def _start(self, held: HeldJob, pending: PendingCompletion, output: AttemptOutput | None) -> None:
        task = asyncio.create_task(self._report_one(held, pending, output))
        self._separate[task] = None
        task.add_done_callback(partial(self._done, held=held))

    def _done(self, task: asyncio.Task[None], held: HeldJob) -> None:
        del self._separate[task]
        if not task.cancelled() and (error := task.exception()):
            self._observer.trouble(f"an attempt could not be ended: {error!r}")
            self._closed([held])

    async def run(self) -> None:
        """Complete what has ended, all that waits in one commit. Runs until cancelled."""
        try:
            while True:
                await self._nonempty.wait()
                self._nonempty.clear()
                batch, self._waiting = self._waiting, []
                await self._complete(batch)
        finally:
            await stop(*self._separate)

    async def _complete(self, ended: list[EndedJob]) -> None:
        base = self._ids.new()
        for held, _ in ended:
            if held.lost:
                self._conclude(held, Fenced(held.lost))
        batch = [one for one in ended if not one[0].lost]
        completions = [
            Completion(held.grant, NOTHING, f"{base}.{n}")
            if ending is RETURNED
            else ending.completion(held.grant, f"{base}.{n}")
            for n, (held, ending) in enumerate(batch)
        ]
        results = await self._registry.complete_many(completions)
        failpoint("worker.completed_many")
        closed: list[HeldJob] = []
        for n, ((held, ending), result) in enumerate(zip(batch, results, strict=True)):
            if isinstance(result, Job):
                self._completed(held, result)
                closed.append(held)
            elif isinstance(result, Unavailable):
                self._observer.trouble(result.message)
                self._start(held, PendingCompletion(f"{base}.{n}", None, ending), None)
            elif (replacement := self._replacement(result, ending)) is not None:
                self._start(held, replacement, None)
            else:
                self._conclude(held, result)
        self._closed(closed)

    async def _report_one(
        self, held: HeldJob, pending: PendingCompletion, output: AttemptOutput | None
    ) -> None:
        if output is not None:
            output.seal(msgspec.msgpack.encode(pending))
            failpoint("worker.sealed")
            await output.flush()
            failpoint("worker.output_stored")
        result: Job | HoldfastError = Fenced(held.lost or "")
        if not held.lost:
            await self._record_progress(held, pending)
            result = await self._report_until_stored(held, pending)
            if (replacement := self._replacement(result, pending.ending)) is not None:
                result = await self._report_until_stored(held, replacement)
            failpoint("worker.completed")
        if output is not None:
            await output.close()
        self._conclude(held, result)

    async def _record_progress(self, held: HeldJob, pending: PendingCompletion) -> None:
        """Send the last progress, and that the job was started if it is released. Neither is worth a second
        try."""
        given_back = pending.released is not None or pending.ending.snooze is not None
        if held.progress or (given_back and held.begun_at is not None):
            with suppress(HoldfastError):
                await self._registry.heartbeat(held.grant, progress=held.progress)

    def _replacement(self, result: Job | HoldfastError, ending: Ending) -> PendingCompletion | None:
        """Return what to report when the registry refuses this ending; None when there is nothing else.
        Where a queue is too long for its follow-up jobs, the job is released: that is not its fault."""
        if ending.failure is not None:
            return None
        asked = bool(ending.follow_ups)
        if isinstance(result, Exhausted) and asked:
            later = Ending(snooze=FULL_QUEUE_DELAY, reason=result.message)
            return PendingCompletion(self._ids.new(), None, later)
        if isinstance(result, Invalid) or (isinstance(result, Denied) and asked):
            return self._failed_completion(result)
        return None

    def _failed_completion(self, error: HoldfastError) -> PendingCompletion:
        """Return a failure: what the job returned, or its follow-up jobs, can never be stored."""
        failure = Failure(
            message=error.message,
            code=type(error).__name__,
            retryable=False,
            stage=Stage.OUTPUT,
            reason_code=ReasonCode.VALIDATION_FAILED,
        )
        return PendingCompletion(self._ids.new(), None, Ending(failure=failure))

    async def _report_until_stored(self, held: HeldJob, pending: PendingCompletion) -> Job | HoldfastError:
        """Report it, again under the same `op_id`, until the store answers or the lease is over."""
        while True:
            try:
                return await report(self._registry, held.grant, pending)
            except Unavailable as error:
                if self._clock.monotonic() >= held.ends_at:
                    return Conflict("the store did not answer before the lease ended")
                self._observer.trouble(error.message)
                await self._clock.sleep(RETRY_SECONDS)
            except HoldfastError as error:
                return error

    def _conclude(self, held: HeldJob, result: Job | HoldfastError) -> None:
        if isinstance(result, Job):
            self._completed(held, result)
        else:
            held.lose(result.message)
            self._observer.lost(held.grant, held.lost or result.message)
        self._closed([held])

    def _completed(self, held: HeldJob, job: Job) -> None:
        # This worker ended it, whatever the lease renewer has read of it since.
        held.lost = None
        if job.spec.promised_outputs and self._validate is not None and _awaits_validation(job):
            self._validate(job, held.work_seconds)
        else:
            self._observer.ended(job, held.work_seconds)


def _awaits_validation(job: Job) -> bool:
    """Whether its outputs are to be validated now: the work is done, or has ended without success."""
    return job.state is VALIDATING or (job.unvalidated and job.spec.outputs is not None)


def _released(held: HeldJob, ending: Ending) -> str | None:
    """Return why the job is released; None for work that ended by itself or was compensated."""
    return held.released if ending.stopped and ending.compensated is None else None


async def report(registry: Registry, grant: Grant, pending: PendingCompletion) -> Job:
    ending = pending.ending
    if pending.released is not None:
        return await registry.release(grant, op_id=pending.op_id, reason=pending.released)
    if ending.snooze is not None:
        reason = ending.reason or "snoozed"
        return await registry.release(grant, op_id=pending.op_id, reason=reason, delay=ending.snooze)
    done = ending.completion(grant, pending.op_id)
    return await registry.complete(
        grant,
        done.outcome,
        op_id=pending.op_id,
        compensated=done.compensated,
        follow_ups=done.follow_ups,
    )
