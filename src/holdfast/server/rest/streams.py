"""Streams: events of jobs as server-sent events, for browsers and curl. Each event has an id from which a
client continues after a lost connection: no event is skipped, and none comes twice unless events were
pruned meanwhile."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated
from zlib import crc32

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.core.cursor import CURSOR_CHARACTERS_MAX
from holdfast.core.documents import event_document
from holdfast.core.errors import HoldfastError
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.ports import EventPage
from holdfast.server.calls import ShuttingDown
from holdfast.server.rest.endpoints import Endpoint, Endpoints
from holdfast.server.rest.problems import problem
from holdfast.server.rest.request_decoder import read_form
from holdfast.server.verbs import Verbs
from holdfast.wire import requests
from holdfast.wire.fields import Id

MEDIA_TYPE = "text/event-stream"
RECONNECT_MS = 1_000

END, REFUSED = b"stream-end", b"stream-refused"
"""Names of the messages about the stream itself, which no event type can have."""

STREAMS = {
    "/v1/jobs/{job_id}/stream": "Follow the events of a job to its end.",
    "/v1/events/stream": "Follow the events of all jobs.",
}

_encode = msgspec.json.Encoder().encode


class StreamForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to begin; the header `Last-Event-ID` takes precedence."""

    job_id: Id | None = None
    after: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:=+-]+$", max_length=CURSOR_CHARACTERS_MAX + 20)] | None,
        Meta(description="A cursor, or the id of the last event received."),
    ] = None


def stream(path: str, calls: Endpoints, verbs: Verbs) -> Endpoint:
    """Return the handler of either stream: of one job, or of all jobs."""

    async def handle(request: Request) -> Response:
        form = await read_form(request, StreamForm, None)
        last = request.headers.get("last-event-id") or form.after
        position = position_of(last)
        ended = last is not None and await _ended(verbs, form.job_id)
        pages = verbs.queries.watch(requests.Watch(job_id=form.job_id, after=position.cursor))
        # Read before the response begins, so that an error can still be its status.
        first = await anext(pages, EventPage((), ""))
        if ended and not first.events:
            await pages.aclose()
            return Response(status_code=204)  # tells a browser not to reconnect
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        if request.method == "HEAD":
            await pages.aclose()
            return Response(headers=headers, media_type=MEDIA_TYPE)
        body = _encoded(_unread(_all(first, pages), position))
        return StreamingResponse(body, headers=headers, media_type=MEDIA_TYPE)

    return calls.guarded(handle, f"GET {path}", waits=True)


async def _ended(verbs: Verbs, job_id: str | None) -> bool:
    """Whether a job has ended or does not exist. Called before its events are read: none is missed."""
    if job_id is None:
        return False
    [job] = (await verbs.queries.status(requests.Status(job_ids=(job_id,)))).answers
    return not isinstance(job, Job) or job.ended


class Position(Struct, frozen=True):
    """How far a client has read: a cursor, the events read after it, and the checksum of the last."""

    cursor: str | None
    events: int = 0
    checksum: str = ""


_ID = re.compile(r"(.*)\+([0-9]{1,4})\.([0-9a-f]{8})", re.DOTALL)


def position_of(event_id: str | None) -> Position:
    """Return how far a client has read whose last event had this id; a cursor is a valid id too."""
    found = _ID.fullmatch(event_id or "")
    if found is None:
        return Position(event_id or None)
    return Position(found[1] or None, int(found[2]), found[3])


def _checksum(event: Event) -> str:
    return f"{crc32(event.event_id.encode()):08x}"


async def _all(first: EventPage, pages: AsyncGenerator[EventPage, None]) -> AsyncGenerator[EventPage, None]:
    async with aclosing(pages):
        yield first
        async for page in pages:
            yield page


async def _unread(
    pages: AsyncGenerator[EventPage, None], position: Position
) -> AsyncGenerator[tuple[list[tuple[str, Event]], str], None]:
    """The events after the last one received, page by page, each with its id, and the cursor after them.
    If the last one was pruned, all events after the cursor."""
    after, searching, held = position.cursor or "", position.events > 0, list[tuple[str, Event]]()
    async with aclosing(pages):
        async for page in pages:
            last = len(page.events)
            numbered = [
                (page.cursor if n == last else f"{after}+{n}.{_checksum(event)}", event)
                for n, event in enumerate(page.events, 1)
            ]
            after = page.cursor
            if searching:
                held += numbered
                seen = [n for n, (_, event) in enumerate(held, 1) if _checksum(event) == position.checksum]
                if not seen and numbered and len(held) < position.events:
                    continue
                numbered, searching = held[seen[0] :] if seen else held, False
            yield numbered, after


async def _encoded(
    pages: AsyncGenerator[tuple[list[tuple[str, Event]], str], None],
) -> AsyncGenerator[bytes, None]:
    yield f"retry: {RECONNECT_MS}\n: holdfast\n\n".encode()
    try:
        async with aclosing(pages):
            async for page, cursor in pages:
                for event_id, event in page:
                    name, body = event.event_type.encode(), _encode(event_document(event))
                    yield b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id.encode(), name, body)
                if not page:
                    # a keep-alive with the cursor as its id: a client that reconnects continues from there
                    yield b"id: %b\n: alive\n\n" % cursor.encode()
        yield b"event: %b\ndata: {}\n\n" % END
    except ShuttingDown:
        return  # the client reconnects, here or to another server
    except HoldfastError as error:
        yield b"event: %b\ndata: %b\n\n" % (REFUSED, _encode(problem(error)))
