"""Problems: errors in the format of RFC 9457, each with advice on what to do."""

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct
from starlette.responses import Response

from holdfast.core.errors import HoldfastError, Unavailable
from holdfast.core.limits import ID_CHARACTERS_MAX, clip
from holdfast.server.calls import RETRY_SECONDS
from holdfast.wire.errors import (
    ERROR_TEXT_CHARACTERS_MAX,
    INTERNAL_ERROR,
    advice_of,
    public_message_of,
    row_of,
)

MEDIA_TYPE = "application/problem+json"

_encode = msgspec.json.Encoder().encode


class Problem(Struct, frozen=True, kw_only=True):
    """Why a request was refused, and what to do about it."""

    type: str
    title: str
    status: int
    detail: str
    advice: str
    job_id: str | None = None
    version: int | None = None
    applied: Literal["no", "unknown"] = "no"


class RequestError(Exception):
    """A request that HTTP or the schema refuses: not JSON, not as described, too large."""

    def __init__(self, status: int, title: str, detail: str, advice: str) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.advice = advice


def problem(error: HoldfastError) -> Problem:
    """Return everything that a client may know about an error."""
    row = row_of(error)
    return Problem(
        type=f"urn:holdfast:{row.error.__name__}",
        title=row.title,
        status=row.http,
        detail=clip(public_message_of(error), ERROR_TEXT_CHARACTERS_MAX),
        advice=advice_of(error),
        job_id=None if error.job_id is None else clip(error.job_id, ID_CHARACTERS_MAX),
        version=error.version,
        applied=error.applied if isinstance(error, Unavailable) else "no",
    )


def error_response(error: HoldfastError) -> Response:
    """Return the response for an error of the core."""
    found = problem(error)
    headers = {"retry-after": RETRY_SECONDS} if found.status in (429, 503) else None
    return _response(found, headers)


def request_error_response(error: RequestError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response for a request that cannot be processed; nothing was done."""
    return _response(
        Problem(
            type="about:blank",
            title=error.title,
            status=error.status,
            detail=clip(error.detail, ERROR_TEXT_CHARACTERS_MAX),
            advice=error.advice,
        ),
        headers,
    )


def internal_error_response() -> Response:
    """Return the response for an unexpected error, which is in the log."""
    return _response(
        Problem(
            type="about:blank",
            title="Internal server error",
            status=500,
            detail=INTERNAL_ERROR,
            advice="Call an operator.",
            applied="unknown",
        )
    )


def _response(found: Problem, headers: Mapping[str, str] | None = None) -> Response:
    body = _encode(found)
    return Response(body, found.status, headers=dict(headers or {}), media_type=MEDIA_TYPE)
