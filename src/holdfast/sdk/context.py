"""The context: what a handler knows about its attempt, and how it speaks to the registry."""

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
from holdfast.core.outputs import Promise
from holdfast.core.spec import Json, check_value
from holdfast.fencing.fence import Fence
from holdfast.ports import Clock, Request
from holdfast.registry.requests import within
from holdfast.sdk.bridge import Bridge
from holdfast.sdk.errors import Cancelled, PermanentError

if TYPE_CHECKING:
    from holdfast.outputs.lazily import LazyOutputs
    from holdfast.sdk.calls import Call
    from holdfast.sdk.output_file import OutputFile
    from holdfast.sdk.promising import Wanted
    from holdfast.sdk.shelf import Shelf
    from holdfast.sdk.task_handle import TaskHandle

T = TypeVar("T")

current: contextvars.ContextVar["Context"] = contextvars.ContextVar("holdfast_context")
"""The context of the handler that is running in this task or thread."""

_making = threading.Lock()


class Voice(Protocol):
    """How what a handler says reaches its worker. Called from any thread."""

    def write(self, stream: str, data: bytes) -> None:
        """Add to the attempt's output."""
        ...

    def say(self, event_type: WorkerEventType, attributes: Attributes) -> None: ...

    def progress(self, done: int, total: int | None, message: str | None) -> None: ...

    def checkpoint(self, value: bytes) -> "asyncio.Future[None]":
        """Called on the loop that runs the handlers."""
        ...


class Context:
    """One attempt at one job, in the hand of its handler.

    `progress`, `emit` and `log` never wait. Whatever waits has two forms: `checkpoint` for plain
    functions, `checkpoint_async` for coroutines.
    """

    def __init__(
        self,
        *,
        job_id: str,
        kind: str,
        queue: str,
        attempt: int,
        fencing_token: int,
        lock: str | None,
        deadline: float,
        correlation_id: str,
        trace_id: str | None,
        checkpoint: bytes | None,
        voice: Voice,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        traceparent: str | None = None,
        promise: Promise | None = None,
        outputs: "LazyOutputs | None" = None,
    ) -> None:
        self.job_id = job_id
        self.kind = kind
        self.queue = queue
        self.attempt = attempt
        self.fencing_token = fencing_token
        self.lock = lock
        self.correlation_id = correlation_id
        self.trace_id = trace_id
        self.traceparent = traceparent
        self.expects_lock = False
        """Whether the function says that its jobs have a lock. The worker's own."""
        self.declared: tuple[str, ...] = ()
        """The outputs that the function writes by name. The worker's own."""
        self.follow_ups: list[Request] = []
        self.wanted: dict[int, Wanted] = {}
        self.output_fault: Exception | None = None
        """What follow-ups are to leave behind, by their place. The worker's own."""
        self._deadline = deadline
        self._saved = checkpoint
        self._voice = voice
        self._clock = clock
        self.bridge = Bridge(loop)
        self.promise = promise
        self.outputs = outputs
        """The output store of this process. The worker's own."""
        self._shelf: Shelf | None = None
        self._told = False
        self._bell: threading.Event | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def lease(self) -> timedelta:
        """How long this attempt surely owns the job if nothing is heard any more; never below zero.

        The worker renews it all the time. Begin nothing that a successor could do at the same time
        when little is left.
        """
        return timedelta(seconds=max(0.0, self._deadline - self._clock.monotonic()))

    def guard(self, resource: str | None = None) -> Fence:
        """The fence for a write to `resource`: hand it to whatever does the write, and that refuses it
        once somebody else owns the work.

        Tokens are ordered by the job's lock. A job without one has tokens that only order its own
        attempts: `guard()` is for what no other job writes to. `Fenced` if the lease has run out. Call
        it before the work that the write depends on.
        """
        if self.lock is None and (self.expects_lock or resource is not None):
            raise PermanentError(self._without_a_lock(resource))
        if resource is None:
            resource = self.lock or self.job_id
        elif not isinstance(resource, str):
            raise Invalid(f"A resource has a name, not {resource!r:.80}.")
        self.check_owner()
        check_id(resource, "resource")
        return Fence(
            resource=resource, token=self.fencing_token, job_id=self.job_id, lock=self.lock
        )

    def check_owner(self) -> None:
        """Raise `Fenced` if the lease has run out."""
        if not self.lease:
            raise Fenced(
                "The lease has run out: the job may be somebody else's.", job_id=self.job_id
            )

    def _without_a_lock(self, resource: str | None) -> str:
        if self.expects_lock:
            return (
                f"Job {self.job_id} has no lock, although {self.kind} says that its jobs have one: it was"
                " made by name or by older code. Make it again with the function, or with lock=."
            )
        return (
            f"Job {self.job_id} has no lock, so its token says nothing about other jobs that write to"
            f" {resource!r:.80}. Make the jobs with a lock, such as @app.job(lock=...), or use ctx.guard()"
            " for what this job alone writes to."
        )

    @property
    def cancelled(self) -> bool:
        """Whether the handler was asked to stop: a cancel, a lost lease, a timeout, or a worker that
        leaves. Save what is worth saving, then raise `Cancelled`. Return only if the work is done: what
        returns has succeeded."""
        return self._told

    def check(self) -> None:
        """Raise `Cancelled` if the handler was asked to stop."""
        if self._told:
            raise Cancelled("The handler was asked to stop.")

    def wait_cancelled(self, seconds: float | None = None) -> bool:
        """Wait until the handler is asked to stop, at most so many seconds; answers whether it was.
        For plain functions: a sleep that ends early."""
        with _making:
            self._bell = bell = self._bell or threading.Event()
        return self._told or bell.wait(seconds)

    async def cancellation(self) -> None:
        """Return when the handler is asked to stop. For coroutines."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            if not self._told:
                await waiter
        finally:
            self._waiters.remove(waiter)

    def progress(self, done: int, total: int | None = None, message: str | None = None) -> None:
        """Say how far the work is, in whole numbers; the newest word counts."""
        for number in (done,) if total is None else (done, total):
            if not isinstance(number, int) or not 0 <= number <= NUMBER_MAX:
                raise Invalid(
                    f"Progress is counted in whole numbers from 0 on, not {number!r:.80}."
                )
        most = None if total is None else int(total)
        self._voice.progress(int(done), most, None if message is None else clip(str(message)))

    def emit(self, name: str, /, **attributes: Json) -> None:
        """Add an event of your own to the attempt, such as `emit("page_rendered", page=3)`."""
        check_id(name, "The name of an event")
        facts = check_value(attributes, f"The event {name}", ATTRIBUTES_BYTES_MAX - 256)
        try:
            msgspec.msgpack.encode(facts)
        except OverflowError as error:
            raise Invalid(f"The event {name} has a number of more than 64 bits.") from error
        self._voice.say(WorkerEventType.CUSTOM, {"name": name, "data": facts})

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose lines are kept with the job, as those of every logger are while it runs."""
        return _JobLogger(logging.getLogger("holdfast.job"), {"job_id": self.job_id})

    def checkpoint(self, state: Json) -> None:
        """Keep `state` for the next attempt; when this returns it is stored. For plain functions."""
        instead = "await ctx.checkpoint_async(state)"
        self.bridge.wait(lambda: self.checkpoint_async(state), instead)

    async def checkpoint_async(self, state: Json) -> None:
        """Keep `state` for the next attempt; when this returns it is stored. For coroutines."""
        if state is None:
            raise Invalid("A checkpoint is something to go on from: None is nothing.")
        value = msgspec.json.encode(check_value(state, "A checkpoint", CHECKPOINT_BYTES_MAX))
        await self.bridge.go(lambda: self._checkpoint(value))

    async def _checkpoint(self, value: bytes) -> None:
        await self._voice.checkpoint(value)
        self._saved = value

    @overload
    def last_checkpoint(self) -> Any: ...  # noqa: ANN401

    @overload
    def last_checkpoint(self, type: type[T]) -> T | None: ...

    def last_checkpoint(self, type: Any = Any) -> Any:  # noqa: A002
        """What this job kept last, in this attempt or an earlier one, as a `type`; None if nothing.

        One that does not fit ends the job (it is parked with its checkpoint, nothing is lost): read
        it without a type to handle those of older versions yourself.
        """
        if self._saved is None:
            return None
        try:
            return msgspec.json.decode(self._saved, type=type)
        except msgspec.ValidationError as error:
            name = getattr(type, "__name__", str(type))
            raise CheckpointMismatch(
                f"The checkpoint of an earlier attempt is no {name}: {error}."
            ) from error

    def output(self, name: str) -> "OutputFile":
        """An output that the job has promised, to be written: `with ctx.output("model.bin") as file`, or
        `async with` in coroutines. `file` is a binary file, with `file.name` its path.

        On leaving it is kept: whole, checksummed, under the token of this attempt, so that it counts only
        if this attempt is the one that completes the job. After an exception nothing is kept. `Invalid`
        for a name that was not promised, `Fenced` if the lease has run out.
        """
        return self.shelf().file(name)

    def tasks(self) -> "Generator[TaskHandle, None, None]":
        """The tasks of the job's study whose results are not there yet: not in this attempt, nor by any
        other job. For each, `task.save({"result.csv": …})`. Says how far the job is, and raises
        `Cancelled` between two tasks once the handler was asked to stop. For plain functions."""
        return self.shelf().tasks()

    def tasks_async(self) -> "AsyncGenerator[TaskHandle, None]":
        """As `tasks`, for coroutines: `async for task in ctx.tasks_async()`."""
        return self.shelf().tasks_async()

    def shelf(self) -> "Shelf":
        """Where this attempt leaves what the job has promised. The worker's own."""
        if self._shelf is None:
            if self.promise is None or self.promise.store is None:
                raise Invalid(
                    f"Job {self.job_id} has promised no outputs: say @app.job(outputs=[…]), or"
                    " configure(tasks=…), and make it anew."
                )
            from holdfast.sdk.shelf import Shelf

            self._shelf = Shelf(self, self.promise, self.bridge, self.outputs)
        return self._shelf

    def follow_up(self, call: "Call[Any]") -> None:
        """Make another job if this one succeeds: both are one commit."""
        from holdfast.sdk.calls import Call, not_a_call

        if not isinstance(call, Call):
            raise not_a_call(call, "follow_up takes a call")
        if len(self.follow_ups) >= FOLLOW_UPS_MAX:
            raise Invalid(f"At most {FOLLOW_UPS_MAX} follow-ups are made with one completion.")
        if call.request.job_id is not None or call.request.request_id is not None:
            raise Invalid("A follow-up has an id of its own: give it no job_id and no request_id.")
        if call.connection is not None:
            raise Invalid("A follow-up is made with the completion, on no connection of yours.")
        if call.wanted is not None:
            self.wanted[len(self.follow_ups)] = call.wanted
        self.follow_ups.append(within(call.request, self.traceparent))

    def write(self, stream: str, data: bytes) -> None:
        """Add to the attempt's output. What is printed or logged while the handler runs gets here."""
        if not isinstance(data, bytes):
            raise Invalid(f"Output is bytes, not {type(data).__name__}.")
        self._voice.write(check_id(stream, "The name of a stream"), data)

    def fail(self, message: str, trace: str) -> None:
        """Keep the traceback of what went wrong. The worker's own."""
        facts: Attributes = {"error_message": message, "traceback": trace}
        self._voice.say(WorkerEventType.PROCESS_ERROR, facts)

    def tell(self) -> None:
        """Ask the handler to stop. The worker's own; called on its loop."""
        self._told = True
        if self._bell is not None:
            self._bell.set()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)

    def renew(self, deadline: float) -> None:
        """The lease was renewed. The worker's own."""
        self._deadline = deadline


class CheckpointMismatch(PermanentError):
    """A checkpoint is not of the type that was asked for."""


class CheckpointRefused(HoldfastError):
    """A checkpoint could not be kept."""

    advice = "Stop work: the job may be somebody else's."


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
