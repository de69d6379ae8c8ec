"""The output of a job as plain text: what its handler or command has written, without events and base64."""

from collections.abc import AsyncGenerator
from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.core.job import Job
from holdfast.core.output_chunks import chunks_of
from holdfast.ports import EventPage
from holdfast.server import admission
from holdfast.server.calls import current_principal
from holdfast.server.rest.endpoints import Endpoint, Endpoints
from holdfast.server.rest.request_decoder import read_form
from holdfast.server.verbs import Verbs
from holdfast.wire import requests
from holdfast.wire.fields import Id

PATH = "/v1/jobs/{job_id}/logs/text"
SUMMARY = "Read the output of a job as plain text."
MEDIA_TYPE = "text/plain"


class PlainLogsForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to read: both streams in the order in which they were written, or one of them."""

    job_id: Id | None = None
    stream: Annotated[Literal["stdout", "stderr"] | None, Meta(description="Only this one.")] = None


def plain_logs(calls: Endpoints, verbs: Verbs) -> Endpoint:
    """Return the handler."""

    async def handle(request: Request) -> Response:
        form = await read_form(request, PlainLogsForm, None)
        assert form.job_id is not None  # it is in the path
        # Checked and read before the response begins, so that an error can still be its status.
        [job] = (await verbs.queries.status(requests.Status(job_ids=(form.job_id,)))).answers
        if isinstance(job, Job):  # otherwise the next line raises the error
            admission.check_may_read(current_principal.get(), job)
        first = await verbs.queries.logs(requests.Logs(job_id=form.job_id))
        headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
        body = _text(verbs, form.job_id, form.stream, first)
        return StreamingResponse(body, headers=headers, media_type=MEDIA_TYPE)

    return calls.guarded(handle, f"GET {PATH}", waits=True)


async def _text(
    verbs: Verbs, job_id: str, stream: str | None, page: EventPage
) -> AsyncGenerator[bytes, None]:
    while page.events:
        chunks = [chunk for event in page.events for chunk in chunks_of(event)]
        if text := b"".join(chunk.data for chunk in chunks if stream in (None, chunk.stream)):
            yield text
        page = await verbs.queries.logs(requests.Logs(job_id=job_id, after=page.cursor))
