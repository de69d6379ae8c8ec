"""The log of a job: its events as JSON, or its output as text for people, by what the client accepts."""

from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.core.durations import parse_duration
from holdfast.core.errors import HoldfastError, Invalid
from holdfast.core.event import Event
from holdfast.core.gaps import GapTracker, describe_gap
from holdfast.core.limits import clip
from holdfast.core.output_chunks import chunks_of
from holdfast.core.seams import SeamTracker
from holdfast.ports import EventPage
from holdfast.server import admission
from holdfast.server.calls import current_principal
from holdfast.server.context import ServerContext
from holdfast.server.rest.endpoints import Endpoint
from holdfast.server.rest.log_form import LogsForm
from holdfast.server.rest.request_decoder import read_form
from holdfast.server.verbs import Verbs
from holdfast.server.verbs.access import find
from holdfast.wire import requests
from holdfast.wire.verbs import Load

TEXT = "text/plain; charset=utf-8"
_PAGE = 50
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff", "vary": "Accept"}


class JobLogs:
    """Answers the requests for logs."""

    def __init__(self, context: ServerContext, verbs: Verbs) -> None:
        self._registry = context.registry
        self._capacity = context.capacity
        self._verbs = verbs

    async def page(self, form: LogsForm) -> EventPage:
        """Return a page of events."""
        return await self._verbs.queries.logs(await self._request(form))

    async def _request(self, form: LogsForm) -> requests.Logs:
        fields = structs.asdict(form)
        if form.since is not None:
            fields["since"] = await self._instant(form.since)
        return requests.Logs(**fields)

    async def _instant(self, text: str) -> datetime:
        try:
            ago: timedelta = parse_duration(text)
        except Invalid:
            return _instant(text)
        try:
            return await self._registry.now() - ago
        except OverflowError:
            raise Invalid(f"since: {clip(text, 80)!r} is longer ago than there are dates.") from None

    async def text(self, request: Request) -> Response:
        """Respond with the output as text."""
        form = await read_form(request, LogsForm, None)
        asked = structs.replace(await self._request(form), limit=form.limit or _PAGE)
        job = await find(self._registry, form.job_id)
        admission.check_may_read(current_principal.get(), job)
        async with self._capacity.slot(Load.HEAVY):  # its bytes are held for every page
            first = await self._verbs.queries.logs(asked)  # an error can still be the status
        if request.method == "HEAD":
            return Response(headers=_HEADERS, media_type=TEXT)
        text = LogText(job.attempt, seams=form.attempt is None)
        return StreamingResponse(self._pages(asked, first, text), headers=_HEADERS, media_type=TEXT)

    async def _pages(
        self, asked: requests.Logs, page: EventPage, text: "LogText"
    ) -> AsyncGenerator[bytes, None]:
        try:
            while page.events:
                for event in page.events:
                    if part := text.of(event):
                        yield part
                rest = structs.replace(asked, after=page.cursor, tail=None, since=None)
                page = await self._verbs.queries.logs(rest)
        except HoldfastError as error:
            yield text.line(f"── the rest could not be read: {error.message} ──")


def text_or(as_json: Endpoint, as_text: Endpoint) -> Endpoint:
    """Return the handler that responds with text to a client that prefers it."""

    async def handle(request: Request) -> Response:
        wanted = prefers_text(request.headers.get("accept", ""))
        return await (as_text if wanted else as_json)(request)

    return handle


class LogText:
    """The output of a job as text. A line of its own says where an attempt after the first begins, and where
    output is missing."""

    def __init__(self, attempts: int, *, seams: bool) -> None:
        self._seams = SeamTracker(attempts) if seams else None
        self._gaps = GapTracker()
        self._at_line_start = True

    def of(self, event: Event) -> bytes:
        """Return the text of an event: nothing for most that are not output."""
        missing = self._gaps.missing_before(event)
        lines = b""
        if missing and missing.start > 1:
            lines += self.line(f"── {describe_gap(missing, event.attempt)} ──")
        if self._seams is not None and (seam := self._seams.before(event)) is not None:
            lines += self.line(seam)
        data = b"".join(piece.data for piece in chunks_of(event))
        if data:
            self._at_line_start = data.endswith(b"\n")
        return lines + data

    def line(self, words: str) -> bytes:
        """Return a line of our own: one that the job has not ended is ended."""
        before = "" if self._at_line_start else "\n"
        self._at_line_start = True
        return f"{before}{words}\n".encode()


def prefers_text(accept: str) -> bool:
    """Return whether plain text is accepted by name, and JSON is not or comes later."""
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    wanted = [kind for kind in kinds if kind in ("text/plain", "application/json")]
    return wanted[:1] == ["text/plain"]


def _instant(text: str) -> datetime:
    instant: datetime | None = None
    with suppress(ValueError):
        instant = datetime.fromisoformat(text.strip())
    if instant is None or instant.tzinfo is None:
        words = f"since: {clip(text, 80)!r} is neither an instant nor a duration"
        raise Invalid(f"{words}; write 2026-11-19T16:00:00Z or 10m.")
    return instant
