"""JobEventsService of job.v1: the events that workers publish about their jobs, stored and live."""

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
from holdfast.core.output_chunks import chunks_of
from holdfast.server import admission
from holdfast.server.calls import ShuttingDown, current_principal
from holdfast.server.context import ServerContext
from holdfast.server.job_service import find
from holdfast.server.limits import PUBLISH_BYTES_MAX
from holdfast.server.publish_streams import current_publish_stream
from holdfast.wire.generated.job.v1 import job_connect
from holdfast.wire.generated.job.v1 import job_pb as pb
from holdfast.wire.job_events import event_of, event_types_of, job_event
from holdfast.wire.mapping import EPOCH

Call = RequestContext[Any, Any]

EVENTS_AT_ONCE = 1_000
"""Events of a message that are decoded before other calls may run."""

UNREADABLE = (Code.RESOURCE_EXHAUSTED, Code.INVALID_ARGUMENT)
TOO_LARGE = f"The message is larger than {PUBLISH_BYTES_MAX // 2**20} MiB: send its events in several."
_WITHOUT_DATA = frozenset(
    {
        WorkerEventType.PROCESS_START,
        WorkerEventType.PROCESS_END,
        WorkerEventType.HEARTBEAT,
        WorkerEventType.TERMINAL_RESIZE,
    }
)
"""The events that contain no data of a job."""


class JobEventsService(job_connect.JobEventsService):
    """The handlers, one for each method."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._registry = context.registry

    async def stream_job_events(
        self, request: pb.StreamJobEventsRequest, _: Call
    ) -> AsyncGenerator[pb.StreamJobEventsResponse, None]:
        """Return the stored events, then the live ones, by one cursor, so that none is missed or repeated
        between them. The stream ends when the job has ended."""
        principal, context = current_principal.get(), self._context
        job = await find(context, request.job_id)
        selection = _selection(request, job, data=admission.may_read(principal, job))
        async with aclosing(context.follow(job, None)) as pages:
            async for page in pages:
                for event in page.events:
                    message = selection.message(event)
                    if message is not None:
                        yield pb.StreamJobEventsResponse(event=message)
                        await context.clock.sleep(0)
                if context.stopping.is_set():
                    raise ShuttingDown(_resume_from(selection))

    async def publish_job_events(
        self, requests: AsyncIterator[pb.PublishJobEventsRequest], _: Call
    ) -> pb.PublishJobEventsResponse:
        """Store each message before the next is read; the response confirms all of them. A refusal is
        recorded on its job. That the output of an attempt is full is raised at the end: events after it,
        such as the end of the process, are still stored."""
        full: Exhausted | None = None
        with self._context.publish_streams.slot(current_principal.get()):
            async with aclosing(self._context.until_stopped(requests)) as messages:
                try:
                    async for request in messages:
                        full = await self._publish(request) or full
                except ConnectError as error:  # a message that cannot be read
                    raise await self._record_unreadable(error) from error
        if full is not None:
            raise full
        return pb.PublishJobEventsResponse()

    async def _publish(self, request: pb.PublishJobEventsRequest) -> Exhausted | None:
        """Store a message; the error says that the output is full: the rest is stored."""
        grant = await self._context.grants.open(request.task_token)
        now = await self._registry.now()
        events: list[Event] = []
        try:
            for n, message in enumerate(request.events, 1):
                events.append(_event(message, now))
                if n % EVENTS_AT_ONCE == 0:
                    await self._context.clock.sleep(0)
        except Invalid as error:
            await self._registry.refuse_publish(grant, error.message)
            raise
        try:
            if events:
                await self._registry.publish(grant, events)
        except Exhausted as full:
            return full
        return None

    async def _record_unreadable(self, error: ConnectError) -> ConnectError:
        """Record the error on the job of the message's task token, and return it as the caller gets it."""
        stream = current_publish_stream.get()
        if error.code not in UNREADABLE or stream is None or (token := stream.token) is None:
            return error
        if error.code is Code.RESOURCE_EXHAUSTED and "configured max" in error.message:
            error = ConnectError(error.code, TOO_LARGE)
        with suppress(HoldfastError):  # the token is invalid: the error is returned all the same
            await self._registry.refuse_publish(await self._context.grants.open(token), error.message)
        return error


def _event(message: pb.JobEvent, now: datetime) -> Event:
    try:
        return event_of(message, now)
    except (ValueError, OverflowError) as error:
        raise Invalid(f"Event {message.sequence} cannot be decoded: {error}") from error


class _Selection(Struct):
    """The events that a client asked for. `reached` is the last sequence that it was sent, or does not
    want, of the attempt `reached_in`."""

    kinds: frozenset[str]
    attempt: int
    sequence: int
    since: datetime
    data: bool
    reached: int
    reached_in: int

    def message(self, event: Event) -> pb.JobEvent | None:
        """Return the event as it is sent, or None if it is not selected."""
        if (
            event.event_class is not EventClass.WORKER
            or (self.kinds and event.event_type not in self.kinds)
            or (event.attempt or 0) < self.attempt
            or ((event.attempt or 0) == self.attempt and event.last_sequence < self.sequence)
            or (not self.data and event.event_type not in _WITHOUT_DATA)
        ):
            return None
        start = self.sequence if event.attempt == self.attempt else 0
        if event.occurred_at < self.since:
            late = next((one.sequence for one in chunks_of(event) if one.at >= self.since), None)
            if late is None or event.end_sequence is None:
                return None
            start = max(start, late)  # a batch of output that began before `since`
        self.reached, self.reached_in = event.last_sequence, event.attempt or 0
        return job_event(event, start)


def _selection(request: pb.StreamJobEventsRequest, job: Job, *, data: bool) -> _Selection:
    if min(request.from_sequence, request.from_timestamp, request.attempt) < 0:
        raise Invalid("from_sequence, from_timestamp and attempt must not be negative.")
    try:
        since = EPOCH + timedelta(milliseconds=request.from_timestamp)
    except OverflowError:
        raise Invalid("from_timestamp is out of range: it is in milliseconds.") from None
    return _Selection(
        kinds=event_types_of(request.event_filter),
        attempt=(request.attempt or job.attempt) if request.from_sequence else 0,
        sequence=request.from_sequence,
        since=since,
        data=data,
        reached=max(0, request.from_sequence - 1),
        reached_in=request.attempt or job.attempt,
    )


def _resume_from(selection: _Selection) -> str:
    return (
        "This server is shutting down. Open the stream again, here or at another server, from sequence"
        f" {selection.reached + 1} of attempt {selection.reached_in}."
    )
