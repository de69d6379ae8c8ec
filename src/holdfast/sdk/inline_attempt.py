"""One attempt of a handler that runs inline: its voice, and its context."""

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.errors import HoldfastError
from holdfast.core.event import Attributes
from holdfast.core.job import Progress
from holdfast.sdk.context import CheckpointRefused, Context
from holdfast.system import first_of
from holdfast.worker.executor import Ending
from holdfast.worker.hold import Hold

if TYPE_CHECKING:
    from holdfast.sdk.inline import Inline

Place: TypeAlias = Literal["progress", "emit", "checkpoint", "checkpointed", "returned"]
"""Where a handler is seen from outside: it says something, it asks for a checkpoint, that is stored,
it has returned (or raised)."""


class Attempt:
    """A handler that is running, and its voice: what it says goes to the worker at once."""

    def __init__(self, inline: "Inline", hold: Hold, failed: Ending | None) -> None:
        self.hold = hold
        self.failed = failed
        self.thread = False
        self.died: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.stopping: asyncio.Task[None] | None = None
        self.stirred = asyncio.Event()
        self.over = asyncio.Event()
        self._inline = inline
        self.context = InlineContext(inline, self)

    def die(self, error: BaseException) -> None:
        """From here on it is as if its process were gone, and its worker with it: what it says and
        how it ends is heard by nobody, and its lease is not renewed."""
        self.died = error
        self.hold.abandon()
        raise error

    def write(self, stream: str, data: bytes) -> None:
        self._on_loop(lambda: self._inline.host.output(self.hold).write(data, stream))

    def say(self, event_type: WorkerEventType, attributes: Attributes) -> None:
        if event_type is WorkerEventType.CUSTOM:
            self._inline.passed_anywhere(self, "emit")
        host, at = self._inline.host, self._inline.host.clock.now()
        self._on_loop(lambda: host.output(self.hold).tell(event_type, at=at, **attributes))

    def progress(self, done: int, total: int | None, message: str | None) -> None:
        self._inline.passed_anywhere(self, "progress")
        progress = Progress(done, total, message)
        self._on_loop(lambda: self._inline.host.progress(self.hold, progress))

    def _on_loop(self, say: Callable[[], None]) -> None:
        def unless_over() -> None:
            if self.died is None and not self.over.is_set():
                say()

        if self._inline.on_loop():
            unless_over()
        else:
            self._inline.loop.call_soon_threadsafe(unless_over)

    def checkpoint(self, value: bytes) -> "asyncio.Future[None]":
        return asyncio.ensure_future(self._checkpoint(value))

    async def _checkpoint(self, value: bytes) -> None:
        self._inline.passed(self, "checkpoint")
        try:
            with self._inline.parking(thread=self.thread):
                await self._inline.host.checkpoint(self.hold, msgspec.json.decode(value))
        except HoldfastError as error:
            raise CheckpointRefused(error.message) from error
        self._inline.passed(self, "checkpointed")


class InlineContext(Context):
    """A context whose waiting follows the worker's clock, and that keeps what the handler raised."""

    def __init__(self, inline: "Inline", attempt: Attempt) -> None:
        grant = attempt.hold.grant
        job = grant.job
        kept = attempt.hold.checkpoint
        super().__init__(
            job_id=job.job_id,
            kind=job.spec.kind,
            queue=job.spec.queue,
            attempt=grant.attempt,
            fencing_token=grant.fencing_token,
            lock=job.spec.lock,
            deadline=attempt.hold.deadline,
            correlation_id=job.correlation,
            trace_id=job.trace_id,
            traceparent=attempt.hold.traceparent,
            checkpoint=None if kept is None else msgspec.json.encode(kept),
            voice=attempt,
            clock=inline.host.clock,
            loop=inline.loop,
            promise=job.spec.outputs,
            outputs=inline.outputs,
        )
        self._inline = inline

    def wait_cancelled(self, seconds: float | None = None) -> bool:
        if self.cancelled or self._inline.on_loop():
            return super().wait_cancelled(seconds)
        waiting = self._wait(seconds)
        return asyncio.run_coroutine_threadsafe(waiting, self._inline.loop).result()

    async def _wait(self, seconds: float | None) -> bool:
        waits = [self.cancellation()]
        if seconds is not None:
            waits.append(self._inline.host.clock.sleep(seconds))
        with self._inline.parking(thread=True):
            await first_of(*waits)
        return self.cancelled

    async def cancellation(self) -> None:
        with self._inline.parking():
            await super().cancellation()

    def fail(self, message: str, trace: str) -> None:
        if (error := sys.exception()) is not None:
            self._inline.errors[self.job_id] = error
        super().fail(message, trace)
