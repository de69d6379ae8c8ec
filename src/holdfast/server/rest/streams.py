"""Streams: logs as server-sent events, for browsers and curl. Each event has an id by which a client
that was cut off reads on: nothing is passed over, and nothing comes twice unless it was pruned
meanwhile."""

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
from holdfast.ports import Slice
from holdfast.server.calls import Leaving
from holdfast.server.rest.calling import Calls, Endpoint
from holdfast.server.rest.problems import problem
from holdfast.server.rest.reading import form_of
from holdfast.server.verbs import Verbs
from holdfast.wire import asks

MEDIA_TYPE = "text/event-stream"
AGAIN_MS = 1_000

END, REFUSED = b"stream-end", b"stream-refused"
"""What a stream says of itself: names that no event can have."""

STREAMS = {
    "/v1/jobs/{job_id}/stream": "Follow a job to its end.",
    "/v1/events/stream": "Follow all jobs.",
}

_encode = msgspec.json.Encoder().encode


class StreamForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to begin; the header `Last-Event-ID` goes before it."""

    job_id: asks.Id | None = None
    after: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:=+-]+$", max_length=CURSOR_CHARACTERS_MAX + 20)]
        | None,
        Meta(description="A cursor, or the id of the last event that came."),
    ] = None


def stream(path: str, calls: Calls, verbs: Verbs) -> Endpoint:
    """The handler of either stream: of one job, or of all."""

    async def handle(request: Request) -> Response:
        form = await form_of(request, StreamForm, None)
        last = request.headers.get("last-event-id") or form.after
        came = place_of(last)
        ended = last is not None and await _ended(verbs, form.job_id)
        slices = verbs.queries.watch(asks.Watch(job_id=form.job_id, after=came.cursor))
        first = await anext(slices, Slice((), ""))  # what is wrong is told before anything else is
        if ended and not first.events:
            await slices.aclose()
            return Response(status_code=204)  # to a browser this says: do not come again
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        if request.method == "HEAD":
            await slices.aclose()
            return Response(headers=headers, media_type=MEDIA_TYPE)
        said = _said(_unread(_all(first, slices), came))
        return StreamingResponse(said, headers=headers, media_type=MEDIA_TYPE)

    return calls.guarded(handle, f"GET {path}", waits=True)


async def _ended(verbs: Verbs, job_id: str | None) -> bool:
    """Whether a job says no more. Asked before its log is read: what comes meanwhile is in there."""
    if job_id is None:
        return False
    [job] = (await verbs.queries.get_jobs(asks.GetJobs(job_ids=(job_id,)))).answers
    return not isinstance(job, Job) or job.ended


class Came(Struct, frozen=True):
    """How far a reader has come: to a cursor, and behind it over so many events, the last with this sum."""

    cursor: str | None
    events: int = 0
    sum: str = ""


_ID = re.compile(r"(.*)\+([0-9]{1,4})\.([0-9a-f]{8})", re.DOTALL)


def place_of(event_id: str | None) -> Came:
    """How far somebody has come whose last event had this id; a cursor is one as well."""
    found = _ID.fullmatch(event_id or "")
    if found is None:
        return Came(event_id or None)
    return Came(found[1] or None, int(found[2]), found[3])


def _sum(event: Event) -> str:
    return f"{crc32(event.event_id.encode()):08x}"


async def _all(first: Slice, slices: AsyncGenerator[Slice, None]) -> AsyncGenerator[Slice, None]:
    async with aclosing(slices):
        yield first
        async for page in slices:
            yield page


async def _unread(
    slices: AsyncGenerator[Slice, None], came: Came
) -> AsyncGenerator[tuple[list[tuple[str, Event]], str], None]:
    """The events behind the one that came last, page by page, each with its id, and the cursor behind
    them. If that one is there no more, all of those behind the cursor."""
    after, looking, held = came.cursor or "", came.events > 0, list[tuple[str, Event]]()
    async with aclosing(slices):
        async for page in slices:
            last = len(page.events)
            told = [
                (page.cursor if n == last else f"{after}+{n}.{_sum(event)}", event)
                for n, event in enumerate(page.events, 1)
            ]
            after = page.cursor
            if looking:
                held += told
                seen = [n for n, (_, event) in enumerate(held, 1) if _sum(event) == came.sum]
                if not seen and told and len(held) < came.events:
                    continue
                told, looking = held[seen[0] :] if seen else held, False
            yield told, after


async def _said(
    pages: AsyncGenerator[tuple[list[tuple[str, Event]], str], None],
) -> AsyncGenerator[bytes, None]:
    yield f"retry: {AGAIN_MS}\n: holdfast\n\n".encode()
    try:
        async with aclosing(pages):
            async for page, cursor in pages:
                for event_id, event in page:
                    name, body = event.event_type.encode(), _encode(event_document(event))
                    yield b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id.encode(), name, body)
                if not page:
                    yield (
                        b"id: %b\n: alive\n\n" % cursor.encode()
                    )  # nothing is read twice for nothing
        yield b"event: %b\ndata: {}\n\n" % END
    except Leaving:
        return  # whoever reads on finds another server, or this one again
    except HoldfastError as error:
        yield b"event: %b\ndata: %b\n\n" % (REFUSED, _encode(problem(error)))
