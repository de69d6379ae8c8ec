"""Errors on the wire: one table with the code of each error in each protocol."""

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


class ErrorRow(Struct, frozen=True):
    """The codes and the title of an error. `public_message` replaces a message that may reveal more about
    this server than its clients should know."""

    error: type[HoldfastError]
    code: Code
    job_v1: Code
    http: int
    title: str
    public_message: str | None = None


ERROR_TEXT_CHARACTERS_MAX = 1_000
STORE_UNAVAILABLE = (
    "The store behind this server, or its output store, is not available. Send the same request again in a"
    " moment."
)
STORE_CORRUPT = "The stored data contradicts itself. An operator must read the server's log."
INTERNAL_ERROR = (
    "The server failed with an internal error, which is in its log. Send the same request again later."
)
UNKNOWN_KEY = (
    "The server requires a valid API key: put yours into HOLDFAST_KEY, or the name of its file into"
    " HOLDFAST_KEY_FILE."
)
NEW_KEY = "The owner of the store creates keys: holdfast keys create NAME"

TABLE = (
    ErrorRow(Invalid, Code.INVALID_ARGUMENT, Code.INVALID_ARGUMENT, 422, "Invalid request"),
    ErrorRow(NotFound, Code.NOT_FOUND, Code.NOT_FOUND, 404, "Not found"),
    ErrorRow(
        Conflict,
        Code.FAILED_PRECONDITION,
        Code.FAILED_PRECONDITION,
        409,
        "Conflict with the current state",
    ),
    ErrorRow(Fenced, Code.ABORTED, Code.NOT_FOUND, 409, "Fenced: no longer the owner"),
    ErrorRow(Exhausted, Code.RESOURCE_EXHAUSTED, Code.RESOURCE_EXHAUSTED, 429, "Limit reached"),
    ErrorRow(Denied, Code.PERMISSION_DENIED, Code.PERMISSION_DENIED, 403, "Permission denied"),
    ErrorRow(Unavailable, Code.UNAVAILABLE, Code.UNAVAILABLE, 503, "Store unavailable", STORE_UNAVAILABLE),
    ErrorRow(
        Corrupt,
        Code.DATA_LOSS,
        Code.DATA_LOSS,
        500,
        "Stored data contradicts itself",
        STORE_CORRUPT,
    ),
)
_ROWS = {row.error: row for row in TABLE}
_KINDS = {row.error.__name__: row.error for row in TABLE}
_BY_CODE = {row.code: row.error for row in TABLE} | {
    Code.DEADLINE_EXCEEDED: Unavailable,
    Code.OUT_OF_RANGE: Invalid,
    Code.UNIMPLEMENTED: Invalid,
}


def row_of(error: HoldfastError) -> ErrorRow:
    """Return the row of an error; a subclass that a store defines has the row of its base."""
    return next(_ROWS[kind] for kind in type(error).__mro__ if kind in _ROWS)


def error_detail(error: HoldfastError) -> ErrorDetail:
    """Return everything that a client may know about an error."""
    row = row_of(error)
    return ErrorDetail(
        kind=row.error.__name__,
        message=clip(public_message_of(error), ERROR_TEXT_CHARACTERS_MAX),
        advice=advice_of(error),
        job_id=None if error.job_id is None else clip(error.job_id, ID_CHARACTERS_MAX),
        version=error.version,
        applied=error.applied if isinstance(error, Unavailable) else "",
    )


def public_message_of(error: HoldfastError) -> str:
    """Return what a client may read of an error."""
    own = error.public if isinstance(error, Unavailable) else None
    return own or row_of(error).public_message or error.message


def advice_of(error: HoldfastError) -> str:
    """Return what to do; for an error with a public message, the advice of its class."""
    row = row_of(error)
    return clip(row.error.advice if row.public_message else error.advice, ERROR_TEXT_CHARACTERS_MAX)


def connect_error(error: HoldfastError, *, job_v1: bool = False) -> ConnectError:
    """Return the Connect error that a server raises for an error."""
    row, found = row_of(error), error_detail(error)
    return ConnectError(row.job_v1 if job_v1 else row.code, found.message, [found])


def error_from_connect(error: ConnectError) -> HoldfastError:
    """Return the error that a server returned: of the same class, with its job and version."""
    for one in error.details:
        if one.type_name == ErrorDetail.desc().type_name:
            return error_from_detail(one.value(ErrorDetail) or ErrorDetail())
    if "larger than" in error.message and error.code is Code.RESOURCE_EXHAUSTED:
        return Invalid("The request is larger than a server accepts, which is 1 MiB.")
    if error.code is Code.UNAUTHENTICATED:
        return Denied(UNKNOWN_KEY, advice=NEW_KEY)
    kind = _BY_CODE.get(error.code, Unavailable)
    if kind is Unavailable:  # an internal error, a proxy or the network: it may have been applied
        return Unavailable(error.message, applied="unknown")
    return kind(error.message)


def error_from_detail(found: ErrorDetail) -> HoldfastError:
    """Return the error that a detail describes."""
    kind = _KINDS.get(found.kind, Unavailable)
    job_id = found.job_id if found.has_field("job_id") else None
    version = found.version if found.has_field("version") else None
    if kind is Unavailable:
        applied: Literal["no", "unknown"] = "no" if found.applied == "no" else "unknown"
        return Unavailable(found.message, applied=applied, job_id=job_id, version=version)
    return kind(found.message, job_id=job_id, version=version, advice=found.advice or None)
