"""JobEventsService of job.v1: what workers say about their jobs, kept and live."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from msgspec import Struct

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import Exhausted, HoldfastError, Invalid
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.pieces import pieces
from holdfast.server import admission
from holdfast.server.calls import Leaving, who
from holdfast.server.context import Context
from holdfast.server.jobs import find
from holdfast.server.limits import PUBLISH_BYTES_MAX
from holdfast.server.upload import upload
from holdfast.wire.generated.job.v1 import job_connect
from holdfast.wire.generated.job.v1 import job_pb as pb
from holdfast.wire.job_events import event_of, job_event, numbers
from holdfast.wire.mapping import EPOCH

Call = RequestContext[Any, Any]

EVENTS_AT_ONCE = 1_000
"""Events of a message that are read before others have their turn."""

UNREADABLE = (Code.RESOURCE_EXHAUSTED, Code.INVALID_ARGUMENT)
TOO_LARGE = (
    f"The message is larger than {PUBLISH_BYTES_MAX // 2**20} MiB: send its events in several."
)
_PLAIN = frozenset(
    {
        WorkerEventType.PROCESS_START,
        WorkerEventType.PROCESS_END,
        WorkerEventType.HEARTBEAT,
        WorkerEventType.TERMINAL_RESIZE,
    }
)
"""What says nothing of what is in a job."""


class EventsService(job_connect.JobEventsService):
    """The handlers, one for each method."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._registry = context.registry

    async def stream_job_events(
        self, request: pb.StreamJobEventsRequest, _: Call
    ) -> AsyncGenerator[pb.StreamJobEventsResponse, None]:
        """History, then live, by one cursor: there is no seam. Ends when the job has."""
        principal, context = who.get(), self._context
        job = await find(context, request.job_id)
        choice = _choice(request, job, data=admission.reads(principal, job))
        async with aclosing(context.follow(job, None)) as pages:
            async for page in pages:
                for event in page.events:
                    message = choice.message(event)
                    if message is not None:
                        yield pb.StreamJobEventsResponse(event=message)
                        await context.clock.sleep(0)
                if context.stopping.is_set():
                    raise Leaving(_going(choice))

    async def publish_job_events(
        self, requests: AsyncIterator[pb.PublishJobEventsRequest], _: Call
    ) -> pb.PublishJobEventsResponse:
        """Each message is stored before the next is read; the answer says that all of them are. What is
        refused is noted on its job. An attempt that is full is told so in the end: what comes behind its
        output, such as how its process ended, is still taken."""
        full: Exhausted | None = None
        with self._context.publish_streams.place(who.get()):
            async with aclosing(self._context.until_stopped(requests)) as messages:
                try:
                    async for request in messages:
                        full = await self._publish(request) or full
                except ConnectError as error:  # a message that cannot be read
                    raise await self._unread(error) from error
        if full is not None:
            raise full
        return pb.PublishJobEventsResponse()

    async def _publish(self, request: pb.PublishJobEventsRequest) -> Exhausted | None:
        """Store a message; the error says that the attempt is full, and the rest of the message is stored."""
        grant = await self._context.grants.open(request.task_token)
        now = await self._registry.now()
        events: list[Event] = []
        try:
            for n, message in enumerate(request.events, 1):
                events.append(_event(message, now))
                if n % EVENTS_AT_ONCE == 0:
                    await self._context.clock.sleep(0)
        except Invalid as error:
            await self._registry.refuse(grant, error.message)
            raise
        try:
            if events:
                await self._registry.publish(grant, events)
        except Exhausted as full:
            return full
        return None

    async def _unread(self, error: ConnectError) -> ConnectError:
        """The error as its caller is told of it. It is noted on the job whose token the message has."""
        stream = upload.get()
        if error.code not in UNREADABLE or stream is None or (token := stream.token) is None:
            return error
        if error.code is Code.RESOURCE_EXHAUSTED and "configured max" in error.message:
            error = ConnectError(error.code, TOO_LARGE)
        with suppress(HoldfastError):  # it is nobody's token: whoever sent it is told what is wrong
            await self._registry.refuse(await self._context.grants.open(token), error.message)
        return error


def _event(message: pb.JobEvent, now: datetime) -> Event:
    try:
        return event_of(message, now)
    except (ValueError, OverflowError) as error:
        raise Invalid(f"Event {message.sequence} cannot be understood: {error}") from error


class _Choice(Struct):
    """Which events a monitor asked for. `reached` is the last sequence it was sent, or does not want, of
    the attempt `reached_in`."""

    kinds: frozenset[str]
    attempt: int
    sequence: int
    since: datetime
    data: bool
    reached: int
    reached_in: int

    def message(self, event: Event) -> pb.JobEvent | None:
        """The event as it is sent, or None."""
        if (
            event.event_class is not EventClass.WORKER
            or (self.kinds and event.event_type not in self.kinds)
            or (event.attempt or 0) < self.attempt
            or ((event.attempt or 0) == self.attempt and event.last_sequence < self.sequence)
            or (not self.data and event.event_type not in _PLAIN)
        ):
            return None
        start = self.sequence if event.attempt == self.attempt else 0
        if event.occurred_at < self.since:
            late = next((one.sequence for one in pieces(event) if one.at >= self.since), None)
            if late is None or event.end_sequence is None:
                return None
            start = max(start, late)  # a batch that had begun before
        self.reached, self.reached_in = event.last_sequence, event.attempt or 0
        return job_event(event, start)


def _choice(request: pb.StreamJobEventsRequest, job: Job, *, data: bool) -> _Choice:
    if min(request.from_sequence, request.from_timestamp, request.attempt) < 0:
        raise Invalid("from_sequence, from_timestamp and attempt are from 0 on.")
    try:
        since = EPOCH + timedelta(milliseconds=request.from_timestamp)
    except OverflowError:
        raise Invalid("from_timestamp is in milliseconds; this is beyond all calendars.") from None
    return _Choice(
        kinds=numbers(request.event_filter),
        attempt=(request.attempt or job.attempt) if request.from_sequence else 0,
        sequence=request.from_sequence,
        since=since,
        data=data,
        reached=max(0, request.from_sequence - 1),
        reached_in=request.attempt or job.attempt,
    )


def _going(choice: _Choice) -> str:
    return (
        "This server is going away. Open the stream again, there or at another, from sequence"
        f" {choice.reached + 1} of attempt {choice.reached_in}."
    )
