"""Errors on the wire: one table says which code each of ours has, in each protocol."""

from typing import Literal

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from msgspec import Struct

from holdfast.core.errors import (
    Conflict,
    Corrupt,
    Denied,
    Exhausted,
    Fenced,
    HoldfastError,
    Invalid,
    NotFound,
    Unavailable,
)
from holdfast.core.limits import ID_CHARACTERS_MAX, clip
from holdfast.wire.generated.holdfast.v1.registry_pb import ErrorDetail


class Row(Struct, frozen=True):
    """What one of our errors is called elsewhere. `words` take the place of a message that may say more
    about this server than its callers should know."""

    error: type[HoldfastError]
    code: Code
    job_v1: Code
    http: int
    title: str
    words: str | None = None


WORDS_CHARACTERS_MAX = 1_000
AWAY = (
    "The store behind this server, or its output store, does not answer. Send the same request again in a"
    " moment."
)
BROKEN = "What is stored contradicts itself. An operator must look at the server's log."
FAULT = "The server has a fault, and has written it to its log. Send the same request again later."

UNKNOWN_KEY = (
    "The server lets nobody in without a key that it knows: put yours into HOLDFAST_KEY, or the name of"
    " its file into HOLDFAST_KEY_FILE."
)
NEW_KEY = "The owner of the store makes keys: holdfast keys create NAME"

TABLE = (
    Row(Invalid, Code.INVALID_ARGUMENT, Code.INVALID_ARGUMENT, 422, "A rule refuses this request"),
    Row(NotFound, Code.NOT_FOUND, Code.NOT_FOUND, 404, "There is no such thing"),
    Row(
        Conflict,
        Code.FAILED_PRECONDITION,
        Code.FAILED_PRECONDITION,
        409,
        "Its state does not allow this",
    ),
    Row(Fenced, Code.ABORTED, Code.NOT_FOUND, 409, "Not the owner any more"),
    Row(Exhausted, Code.RESOURCE_EXHAUSTED, Code.RESOURCE_EXHAUSTED, 429, "A limit is reached"),
    Row(Denied, Code.PERMISSION_DENIED, Code.PERMISSION_DENIED, 403, "This key may not do that"),
    Row(Unavailable, Code.UNAVAILABLE, Code.UNAVAILABLE, 503, "The store is away", AWAY),
    Row(Corrupt, Code.DATA_LOSS, Code.DATA_LOSS, 500, "What is stored contradicts itself", BROKEN),
)
_ROWS = {row.error: row for row in TABLE}
_KINDS = {row.error.__name__: row.error for row in TABLE}
_BY_CODE = {row.code: row.error for row in TABLE} | {
    Code.DEADLINE_EXCEEDED: Unavailable,
    Code.OUT_OF_RANGE: Invalid,
    Code.UNIMPLEMENTED: Invalid,
}


def row_of(error: HoldfastError) -> Row:
    """What the error is called; one that a store made more exact is called what it is in general."""
    return next(_ROWS[kind] for kind in type(error).__mro__ if kind in _ROWS)


def detail(error: HoldfastError) -> ErrorDetail:
    """All that a caller may know of the error."""
    row = row_of(error)
    return ErrorDetail(
        kind=row.error.__name__,
        message=clip(row.words or error.message, WORDS_CHARACTERS_MAX),
        advice=advice_of(error),
        job_id=None if error.job_id is None else clip(error.job_id, ID_CHARACTERS_MAX),
        version=error.version,
        applied=error.applied if isinstance(error, Unavailable) else "",
    )


def advice_of(error: HoldfastError) -> str:
    """What to do; of an error whose message is not for callers, what its class says."""
    row = row_of(error)
    return clip(row.error.advice if row.words else error.advice, WORDS_CHARACTERS_MAX)


def refusal(error: HoldfastError, *, job_v1: bool = False) -> ConnectError:
    """The error as a server says it."""
    row, told = row_of(error), detail(error)
    return ConnectError(row.job_v1 if job_v1 else row.code, told.message, [told])


def heard(error: ConnectError) -> HoldfastError:
    """The error a server said: of the class it had there, with what it knew of the job."""
    for one in error.details:
        if one.type_name == ErrorDetail.desc().type_name:
            return error_of(one.value(ErrorDetail) or ErrorDetail())
    if "larger than" in error.message and error.code is Code.RESOURCE_EXHAUSTED:
        return Invalid("The request is larger than a server takes, which is 1 MiB.")
    if error.code is Code.UNAUTHENTICATED:
        return Denied(UNKNOWN_KEY, advice=NEW_KEY)
    kind = _BY_CODE.get(error.code, Unavailable)
    if kind is Unavailable:  # a fault, a proxy or a network: who knows how far it came
        return Unavailable(error.message, applied="unknown")
    return kind(error.message)


def error_of(told: ErrorDetail) -> HoldfastError:
    """The error behind its detail."""
    kind = _KINDS.get(told.kind, Unavailable)
    job_id = told.job_id if told.has_field("job_id") else None
    version = told.version if told.has_field("version") else None
    if kind is Unavailable:
        applied: Literal["no", "unknown"] = "no" if told.applied == "no" else "unknown"
        return Unavailable(told.message, applied=applied, job_id=job_id, version=version)
    return kind(told.message, job_id=job_id, version=version, advice=told.advice or None)
