"""The context of a handler: what it knows about its attempt, and how it reports to the registry."""

import asyncio
import contextvars
import logging
import threading
from collections.abc import AsyncGenerator, Generator, MutableMapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import msgspec

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.errors import Fenced, HoldfastError, Invalid
from holdfast.core.event import Attributes
from holdfast.core.limits import (
    ATTRIBUTES_BYTES_MAX,
    CHECKPOINT_BYTES_MAX,
    FOLLOW_UPS_MAX,
    NUMBER_MAX,
    check_id,
    clip,
)
from holdfast.core.spec import Json, check_json
from holdfast.fencing.fence import Fence
from holdfast.ports import Clock, JobRequest
from holdfast.registry.job_requests import with_trace
from holdfast.runner.bridge import Bridge
from holdfast.runner.call import Call, not_a_call
from holdfast.runner.errors import Cancelled, PermanentError
from holdfast.runner.output_promises import PromisedOutputs
from holdfast.runner.places import OPEN, readable
from holdfast.worker.frames import Run

if TYPE_CHECKING:
    from holdfast.outputs.lazy import LazyOutputs
    from holdfast.runner.attempt_outputs import AttemptOutputs, OutputFile
    from holdfast.runner.task_handle import TaskHandle

T = TypeVar("T")

current_context: contextvars.ContextVar["Context"] = contextvars.ContextVar("holdfast_context")
"""The context of the handler that is running in this task or thread."""

_creating_event = threading.Lock()


class Channel(Protocol):
    """The way from a handler to its worker. Called from any thread."""

    def write(self, stream: str, data: bytes) -> None:
        """Add to the attempt's output."""
        ...

    def emit(self, event_type: WorkerEventType, attributes: Attributes) -> None: ...

    def progress(self, done: int, total: int | None, message: str | None) -> None: ...

    def checkpoint(self, value: bytes) -> "asyncio.Future[None]":
        """Called on the loop that runs the handlers."""
        ...


class Context:
    """One attempt at one job, as its handler gets it.

    `progress`, `emit` and `log` never wait. A method that waits has two forms: `checkpoint` for plain
    functions, `checkpoint_async` for coroutines. What is marked internal is for the code that runs handlers.
    """

    # What few handlers use stands here: a context is made for every job, and costs 0.04 us a field.
    expects_lock = False
    """Whether the function declares that its jobs have a lock. Internal."""
    declared: tuple[str, ...] = ()
    """The names of the outputs that the function declares. Internal."""
    output_fault: Exception | None = None
    """The error of the output store or of a disk that kept outputs from being stored. Internal."""
    behind_server = False
    """Whether the worker reaches its registry by a server. Internal."""
    _attempt_outputs: "AttemptOutputs | None" = None
    _stop_requested = False
    _stop_event: threading.Event | None = None

    def __init__(
        self,
        run: Run,
        channel: Channel,
        clock: Clock,
        bridge: Bridge,
        outputs: "LazyOutputs | None" = None,
    ) -> None:
        self.job_id = run.job_id
        """The id of the job."""
        self.kind = run.kind
        """The kind of the job, with its version."""
        self.queue = run.queue
        """The queue that it was claimed from."""
        self.attempt = run.attempt
        """The number of this attempt, from 1."""
        self.fencing_token = run.fencing_token
        """The rising number of its owners; `guard` makes a fence of it."""
        self.lock = run.lock
        """The lock of the job, if it has one."""
        self.correlation_id = run.correlation_id
        """What ties this job to others of the same cause."""
        self.trace_id = run.trace_id
        """The trace that the job belongs to."""
        self.traceparent = run.traceparent
        """The span that caused the job."""
        self.follow_ups: list[JobRequest] = []
        self.follow_up_outputs: dict[int, PromisedOutputs] = {}
        """The outputs that follow-ups promise, by the follow-up's index. Internal."""
        self._deadline = run.deadline
        self._last_checkpoint = run.checkpoint
        self._channel = channel
        self._clock = clock
        self.bridge = bridge
        self.promise = run.promise
        self.outputs = outputs
        """The output store of this process. Internal."""
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def lease(self) -> timedelta:
        """How long this attempt certainly owns the job if its lease is not renewed again; never below zero.

        The worker renews it regularly. When little is left, begin nothing that the next owner could do at
        the same time.
        """
        return timedelta(seconds=max(0.0, self._deadline - self._clock.monotonic()))

    def guard(self, resource: str | None = None) -> Fence:
        """Return the fence for a write to `resource`: pass it to the code that writes, which refuses the
        write once another attempt owns the work.

        Tokens are ordered by the job's lock. Without a lock, tokens only order the attempts of this job:
        then use `guard()`, for what no other job writes to. Raises `Fenced` if the lease has run out. Call
        it before the work that the write depends on.
        """
        if self.lock is None and (self.expects_lock or resource is not None):
            raise PermanentError(self._lock_missing(resource))
        if resource is None:
            resource = self.lock or self.job_id
        elif not isinstance(resource, str):
            raise Invalid(f"A resource has a name, not {resource!r:.80}.")
        self.check_owner()
        check_id(resource, "resource")
        return Fence(resource=resource, token=self.fencing_token, job_id=self.job_id, lock=self.lock)

    def check_owner(self) -> None:
        """Raise `Fenced` if the lease has run out."""
        if not self.lease:
            raise Fenced("The lease has run out: another worker may own the job.", job_id=self.job_id)

    def _lock_missing(self, resource: str | None) -> str:
        if self.expects_lock:
            return (
                f"Job {self.job_id} has no lock, although {self.kind} declares one for its jobs: it was"
                " enqueued by its kind or by older code. Enqueue it again with the function, or with lock=."
            )
        return (
            f"Job {self.job_id} has no lock, so its token says nothing about other jobs that write to"
            f" {resource!r:.80}. Enqueue the jobs with a lock, such as @app.job(lock=...), or use ctx.guard()"
            " for what only this job writes to."
        )

    @property
    def cancelled(self) -> bool:
        """Whether the handler was asked to stop: by a cancel, a lost lease, a timeout, or a worker that
        shuts down. Save what is worth saving, then raise `Cancelled`. Return only if the work is done: a
        handler that returns has succeeded."""
        return self._stop_requested

    def check(self) -> None:
        """Raise `Cancelled` if the handler was asked to stop."""
        if self._stop_requested:
            raise Cancelled("The handler was asked to stop.")

    def wait_cancelled(self, seconds: float | None = None) -> bool:
        """Wait until the handler is asked to stop, at most this many seconds; return whether it was.
        For plain functions: a sleep that ends early."""
        with _creating_event:
            self._stop_event = event = self._stop_event or threading.Event()
        return self._stop_requested or event.wait(seconds)

    async def cancellation(self) -> None:
        """Return when the handler is asked to stop. For coroutines."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            if not self._stop_requested:
                await waiter
        finally:
            self._waiters.remove(waiter)

    def progress(self, done: int, total: int | None = None, message: str | None = None) -> None:
        """Report how far the work is, in whole numbers; the latest report counts."""
        for number in (done,) if total is None else (done, total):
            if not isinstance(number, int) or not 0 <= number <= NUMBER_MAX:
                raise Invalid(f"Progress is counted in whole numbers from 0 on, not {number!r:.80}.")
        whole = None if total is None else int(total)
        self._channel.progress(int(done), whole, None if message is None else clip(str(message)))

    def emit(self, name: str, /, **attributes: Json) -> None:
        """Add an event of your own to the attempt, such as `emit("page_rendered", page=3)`."""
        check_id(name, "The name of an event")
        document = OPEN.whole(attributes, f"The event {name}")
        check_json(document, f"The event {name}", ATTRIBUTES_BYTES_MAX - 256)
        facts = msgspec.json.decode(document)
        try:
            msgspec.msgpack.encode(facts)
        except OverflowError as error:
            raise Invalid(f"The event {name} has a number of more than 64 bits.") from error
        self._channel.emit(WorkerEventType.CUSTOM, {"name": name, "data": facts})

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose lines are stored with the job, as those of every logger are while it runs."""
        return _JobLogger(logging.getLogger("holdfast.job"), {"job_id": self.job_id})

    def checkpoint(self, state: Json) -> None:
        """Store `state` for the next attempt; when this returns, it is durable. For plain functions."""
        instead = "await ctx.checkpoint_async(state)"
        self.bridge.wait(lambda: self.checkpoint_async(state), instead)

    async def checkpoint_async(self, state: Json) -> None:
        """Store `state` for the next attempt; when this returns, it is durable. For coroutines."""
        if state is None:
            raise Invalid("A checkpoint cannot be None: that means that there is no checkpoint.")
        value = OPEN.whole(state, "A checkpoint")
        check_json(value, "A checkpoint", CHECKPOINT_BYTES_MAX)
        await self.bridge.go(lambda: self._checkpoint(value))

    async def _checkpoint(self, value: bytes) -> None:
        await self._channel.checkpoint(value)
        self._last_checkpoint = value

    @overload
    def last_checkpoint(self) -> Any: ...  # noqa: ANN401

    @overload
    def last_checkpoint(self, type: type[T]) -> T | None: ...

    def last_checkpoint(self, type: Any = Any) -> Any:  # noqa: A002
        """Return the last checkpoint of this job, of this attempt or an earlier one, as a `type`; None if
        there is none.

        A checkpoint that is not of this type ends the job (it becomes a dead letter, with its checkpoint).
        Without a type you get any checkpoint, and can handle those of older versions yourself.
        """
        if self._last_checkpoint is None:
            return None
        try:
            return readable(msgspec.json.decode(self._last_checkpoint), type)
        except msgspec.ValidationError as error:
            name = getattr(type, "__name__", str(type))
            raise CheckpointMismatch(
                f"The checkpoint of an earlier attempt is not of type {name}: {error}."
            ) from error

    def output(self, name: str) -> "OutputFile":
        """Return an output that the job has promised, to be written: `with ctx.output("model.bin") as file`,
        or `async with` in coroutines. `file` is a binary file, with `file.name` its path.

        On leaving it is stored: complete, checksummed, under the token of this attempt, so that it counts
        only if this attempt completes the job. After an exception nothing is stored. `Invalid` for a name
        that was not promised, `Fenced` if the lease has run out.
        """
        return self.attempt_outputs().file(name)

    def tasks(self) -> "Generator[TaskHandle, None, None]":
        """Yield the tasks of the job's study that have no result yet, neither of this job nor of any other.
        For each, call `task.save({"result.csv": …})`. Reports progress, and raises `Cancelled` between two
        tasks once the handler was asked to stop. For plain functions."""
        return self.attempt_outputs().tasks()

    def tasks_async(self) -> "AsyncGenerator[TaskHandle, None]":
        """As `tasks`, for coroutines: `async for task in ctx.tasks_async()`."""
        return self.attempt_outputs().tasks_async()

    def attempt_outputs(self) -> "AttemptOutputs":
        """Return the outputs of this attempt; `Invalid` if the job has promised none. Internal."""
        if self._attempt_outputs is None:
            if self.promise is None or self.promise.store is None:
                raise Invalid(
                    f"Job {self.job_id} has promised no outputs: write @app.job(outputs=[…]), or"
                    " configure(tasks=…), and enqueue it again."
                )
            from holdfast.runner.attempt_outputs import AttemptOutputs  # most jobs promise none

            self._attempt_outputs = AttemptOutputs(self, self.promise, self.bridge, self.outputs)
        return self._attempt_outputs

    def follow_up(self, call: Call[Any]) -> None:
        """Create another job if this one succeeds: both in one commit."""
        if not isinstance(call, Call):
            raise not_a_call(call, "follow_up takes a call")
        if len(self.follow_ups) >= FOLLOW_UPS_MAX:
            raise Invalid(f"A job has at most {FOLLOW_UPS_MAX} follow-ups.")
        if call.request.job_id is not None or call.request.request_id is not None:
            raise Invalid("A follow-up has an id of its own: give it no job_id and no request_id.")
        if call.connection is not None:
            raise Invalid("A follow-up is created with the completion: give it no connection.")
        if call.promised is not None:
            self.follow_up_outputs[len(self.follow_ups)] = call.promised
        self.follow_ups.append(with_trace(call.request, self.traceparent))

    def write(self, stream: str, data: bytes) -> None:
        """Add to the attempt's output. Everything printed or logged while the handler runs comes here."""
        if not isinstance(data, bytes):
            raise Invalid(f"Output is bytes, not {type(data).__name__}.")
        self._channel.write(check_id(stream, "The name of a stream"), data)

    def publish(self, event_type: WorkerEventType, attributes: Attributes) -> None:
        """Add an event to the attempt as it is. Internal."""
        self._channel.emit(event_type, attributes)

    def fail(self, message: str, trace: str) -> None:
        """Record the traceback of an error. Internal."""
        facts: Attributes = {"error_message": message, "traceback": trace}
        self._channel.emit(WorkerEventType.PROCESS_ERROR, facts)

    def request_stop(self) -> None:
        """Ask the handler to stop. Internal; called on the loop of the runner."""
        self._stop_requested = True
        if self._stop_event is not None:
            self._stop_event.set()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)

    def renew(self, deadline: float) -> None:
        """Set the deadline of a renewed lease. Internal."""
        self._deadline = deadline


class CheckpointMismatch(PermanentError):
    """A checkpoint is not of the requested type."""


class CheckpointRefused(HoldfastError):
    """A checkpoint could not be stored."""

    advice = "Stop work: another worker may own the job."


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class _JobLogger(logging.LoggerAdapter):  # type: ignore[type-arg]
    """Adds the job to every record."""

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs
