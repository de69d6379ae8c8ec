"""Reports: what `job.v1` and `/registry` take for a failure, and what they keep of it."""

import re

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.command import exited
from holdfast.core.errors import Invalid
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Outcome, Success
from holdfast.core.limits import clip
from holdfast.core.spec import Json
from holdfast.wire.asks import ExitCode

FAILED = "The worker reported a failure."
_ERROR = re.compile(r"error(?![a-z])", re.IGNORECASE)


class Report(Struct, frozen=True, kw_only=True):
    """What counts in a result that says `success: false`. The words are under one of three names."""

    error: Json = None
    error_message: Json = None
    message: Json = None
    code: str | None = None
    exit_code: ExitCode | None = None
    retryable: bool = True


def outcome_of(result: Json) -> Outcome:
    """The outcome that a result stands for: a failure, if it is an object that says `success: false`.

    Raise `Invalid` for a `success` that is neither true nor false, and for what makes no failure.
    """
    if not isinstance(result, dict) or "success" not in result:
        return Success(result=result)
    if not isinstance(result["success"], bool):
        raise Invalid("`success` in a result is true or false, without quotes.")
    if result["success"]:
        return Success(result=result)
    try:
        report = msgspec.convert(result, Report)
    except msgspec.ValidationError as error:
        raise Invalid(f"The result is no report of a failure: {error}.") from error
    failure = failure_of(_words(report, result), report.exit_code or 0)
    return replace(failure, code=report.code or failure.code, retryable=report.retryable)


def failure_of(words: str | None, exit_code: int = 0) -> Failure:
    """The failure behind an error message and an exit code, either of which may be missing."""
    if exit_code == 0:
        return Failure(message=words or FAILED, code="Failed")
    return exited(exit_code, words or f"The command exited with {exit_code}.")


def names_error(reason: str | None) -> bool:
    """Whether whoever gives a job back says that an error is why: its first word is `error`."""
    return reason is not None and _ERROR.match(reason) is not None


def _words(report: Report, result: dict[str, Json]) -> str | None:
    """The words for people. Where there are none, whatever else the result says."""
    given = report.error or report.error_message or report.message
    if given:
        return given if isinstance(given, str) else _text(given)
    rest = {name: value for name, value in result.items() if name not in _NAMES}
    return f"{FAILED} It said {_text(rest)}." if rest else None


def _text(value: Json) -> str:
    return clip(msgspec.json.encode(value).decode())


_NAMES = ("success", *Report.__struct_fields__)
