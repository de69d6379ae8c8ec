"""Failure reports: which results `job.v1` and `/registry` take for a failure, and what is stored."""

import re

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Outcome, Success
from holdfast.core.limits import clip
from holdfast.core.process_spec import exit_failure
from holdfast.core.spec import Json
from holdfast.wire.fields import ExitCode

FAILED = "The worker reported a failure."
_ERROR = re.compile(r"error(?![a-z])", re.IGNORECASE)


class FailureReport(Struct, frozen=True, kw_only=True):
    """The fields of a result with `success: false`. The message is in one of the first three."""

    error: Json = None
    error_message: Json = None
    message: Json = None
    code: str | None = None
    exit_code: ExitCode | None = None
    retryable: bool = True
    traceback: str | None = None


def outcome_of(result: Json) -> Outcome:
    """Return the outcome of a result: a failure, if it is an object with `success: false`.

    Raise `Invalid` for a `success` that is neither true nor false, and for a malformed failure.
    """
    if not isinstance(result, dict) or "success" not in result:
        return Success(result=result)
    if not isinstance(result["success"], bool):
        raise Invalid("`success` in a result is true or false, without quotes.")
    if result["success"]:
        return Success(result=result)
    try:
        report = msgspec.convert(result, FailureReport)
    except msgspec.ValidationError as error:
        raise Invalid(f"The result is not a valid failure report: {error}.") from error
    failure = failure_of(_message(report, result), report.exit_code or 0)
    code = report.code or failure.code
    return replace(failure, code=code, retryable=report.retryable, traceback=report.traceback)


def failure_of(message: str | None, exit_code: int = 0) -> Failure:
    """Return the failure of an error message and an exit code, either of which may be missing."""
    if exit_code == 0:
        return Failure(message=message or FAILED, code="Failed")
    return exit_failure(exit_code, message or f"The command exited with {exit_code}.")


def is_error_reason(reason: str | None) -> bool:
    """Whether the reason of a release is an error: its first word is `error`."""
    return reason is not None and _ERROR.match(reason) is not None


def _message(report: FailureReport, result: dict[str, Json]) -> str | None:
    """Return the error message, or without one the other fields of the result."""
    given = report.error or report.error_message or report.message
    if given:
        return given if isinstance(given, str) else _text(given)
    rest = {name: value for name, value in result.items() if name not in _NAMES}
    return f"{FAILED} Its result was {_text(rest)}." if rest else None


def _text(value: Json) -> str:
    return clip(msgspec.json.encode(value).decode())


_NAMES = ("success", *FailureReport.__struct_fields__)
