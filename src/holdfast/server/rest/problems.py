"""Problems: errors as RFC 9457 writes them, each with what to do about it."""

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct
from starlette.responses import Response

from holdfast.core.errors import HoldfastError, Unavailable
from holdfast.core.limits import ID_CHARACTERS_MAX, clip
from holdfast.server.calls import RETRY_SECONDS
from holdfast.wire.errors import FAULT, WORDS_CHARACTERS_MAX, advice_of, row_of

MEDIA_TYPE = "application/problem+json"

_encode = msgspec.json.Encoder().encode


class Problem(Struct, frozen=True, kw_only=True):
    """Why something was refused, and what to do about it."""

    type: str
    title: str
    status: int
    detail: str
    advice: str
    job_id: str | None = None
    version: int | None = None
    applied: Literal["no", "unknown"] = "no"


class Wrong(Exception):
    """A request that is none: not JSON, not of the form that is described, too large."""

    def __init__(self, status: int, title: str, detail: str, advice: str) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.advice = advice


def problem(error: HoldfastError) -> Problem:
    """All that a caller may know of one of our errors."""
    row = row_of(error)
    return Problem(
        type=f"urn:holdfast:{row.error.__name__}",
        title=row.title,
        status=row.http,
        detail=clip(row.words or error.message, WORDS_CHARACTERS_MAX),
        advice=advice_of(error),
        job_id=None if error.job_id is None else clip(error.job_id, ID_CHARACTERS_MAX),
        version=error.version,
        applied=error.applied if isinstance(error, Unavailable) else "no",
    )


def refusal(error: HoldfastError) -> Response:
    """The error as an answer."""
    told = problem(error)
    again = {"retry-after": RETRY_SECONDS} if told.status in (429, 503) else None
    return answer(told, again)


def wrong(error: Wrong, headers: Mapping[str, str] | None = None) -> Response:
    """The request is none; nothing was done."""
    return answer(
        Problem(
            type="about:blank",
            title=error.title,
            status=error.status,
            detail=clip(error.detail, WORDS_CHARACTERS_MAX),
            advice=error.advice,
        ),
        headers,
    )


def fault() -> Response:
    """Something is broken here; the log knows what."""
    return answer(
        Problem(
            type="about:blank",
            title="The server has a fault",
            status=500,
            detail=FAULT,
            advice="Call an operator.",
            applied="unknown",
        )
    )


def answer(told: Problem, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_encode(told), told.status, headers=dict(headers or {}), media_type=MEDIA_TYPE)
