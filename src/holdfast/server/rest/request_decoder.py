"""Decoder of REST requests: path, query, headers and body become one form."""

from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Raw, Struct, structs
from starlette.requests import Request

from holdfast.core.errors import Invalid
from holdfast.core.limits import (
    BATCH_ITEMS_MAX,
    ID_CHARACTERS_MAX,
    JSON_DEPTH_MAX,
    check_id,
    clip,
)
from holdfast.server.codecs import json_has_more, too_deep
from holdfast.server.limits import REQUEST_BYTES_MAX, REQUEST_FIELDS_MAX
from holdfast.server.rest.durations import with_iso_durations
from holdfast.server.rest.problems import RequestError

F = TypeVar("F", bound=Struct)
Parameters: TypeAlias = dict[str, tuple[str | None, Any]]

JSON = "application/json"
ADVICE = "Correct the request. /docs describes the API for people, /openapi.json for programs."
TOO_LARGE = "Body too large"
KEY_HEADER = "idempotency-key"
PARAMETERS_MAX = 1_000
BATCHES = {"requests": "request_id", "completions": "op_id"}
"""Lists whose items have an id each: one header `Idempotency-Key` gives ids to all, by their
positions."""


async def read_form(request: Request, kind: type[F], idempotency_field: str | None) -> F:
    """Return the form in a request, or raise `Wrong`; `Invalid` when field and header give different
    ids."""
    if request.method in ("GET", "HEAD"):
        return _query_form(request, kind)
    given = await _fields(request)
    for name, value in request.path_params.items():
        if name in given:
            raise _mismatch(f"{name} is in the path already: leave it out of the body.")
        given[name] = _raw(value)
    if (header := request.headers.get(KEY_HEADER)) is not None:
        key = _key(header, idempotency_field)
        if idempotency_field is not None:
            _fill_ids(given, idempotency_field, key)
    return _decode(_raw(given), kind)


def _decode(text: Raw, kind: type[F]) -> F:
    """Return the form. Most write durations in ISO 8601: only what is refused is searched for others."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(text, type=kind)
    try:
        return msgspec.json.decode(with_iso_durations(text, kind), type=kind)
    except Invalid as error:
        raise _mismatch(error.message) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _mismatch(f"{error}.") from None


def key_characters_max(idempotency_field: str | None) -> int:
    """Return how long the header may be: for a list, the positions are appended to it."""
    return ID_CHARACTERS_MAX - (len(f".{BATCH_ITEMS_MAX}") if idempotency_field in BATCHES else 0)


def _key(header: str, idempotency_field: str | None) -> str:
    key = header.strip().strip('"')
    try:
        check_id(key, "The header Idempotency-Key")
    except Invalid as error:
        raise _mismatch(error.message) from None
    if len(key) > (most := key_characters_max(idempotency_field)):
        raise _mismatch(f"The header Idempotency-Key may have at most {most} characters here.")
    return key


async def _fields(request: Request) -> dict[str, Raw]:
    body = await _body(request)
    if not body:
        return {}
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        raise RequestError(
            415,
            "Unsupported media type",
            f"The Content-Type of the body is {media_type or 'absent'!r}.",
            f"Send JSON with the header `Content-Type: {JSON}`.",
        )
    if json_has_more(body, REQUEST_FIELDS_MAX):
        text = f"The body has more than {REQUEST_FIELDS_MAX:,} fields."
        raise RequestError(413, TOO_LARGE, text, "Send less at once.")
    if body.count(b"[") + body.count(b"{") > JSON_DEPTH_MAX and too_deep(body):
        raise _mismatch(f"The body is nested deeper than {JSON_DEPTH_MAX}.")
    try:
        return msgspec.json.decode(body, type=dict[str, Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _mismatch(f"{error}.") from None


async def _body(request: Request) -> bytes:
    """Return the body; one that is too large is not read to its end."""
    body = bytearray()
    async for some in request.stream():
        body += some
        if len(body) > REQUEST_BYTES_MAX:
            raise RequestError(
                413,
                TOO_LARGE,
                f"The body has more than {REQUEST_BYTES_MAX // 1024} KiB.",
                "Send less at once.",
            )
    return bytes(body)


def _fill_ids(given: dict[str, Raw], field: str, key: str) -> None:
    """Fill the id of a request from the header, or the ids of a whole list."""
    if field == "request_id" and given.get("job_id", _NULL) != _NULL:
        return  # the job's own id identifies the request
    if field not in BATCHES:
        if field in given and given[field] not in (_raw(key), _NULL):
            raise Invalid(f"{field} and the header Idempotency-Key differ.")
        given[field] = _raw(key)
        return
    try:
        items = msgspec.json.decode(given.get(field, b"[]"), type=list[dict[str, Raw]])
    except msgspec.MsgspecError as error:
        raise _mismatch(f"{field}: {error}.") from None
    for position, item in enumerate(items):
        if item.get("job_id", _NULL) == item.get(BATCHES[field], _NULL) == _NULL:
            item[BATCHES[field]] = _raw(f"{key}.{position}")
    given[field] = _raw(items)


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


_NULL = _raw(None)


def _query_form(request: Request, kind: type[F]) -> F:
    """Return the form in a query: a list is a repeated parameter, `labels[team]=blue` an entry of a
    mapping, and the fields of a nested value are parameters too."""
    try:
        text = request.scope["query_string"].decode()
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=PARAMETERS_MAX, errors="strict")
    except ValueError as error:
        raise _mismatch(f"The query cannot be read: {clip(str(error), 200)}.") from None
    known = query_parameters(kind)
    values: dict[str, Any] = dict(request.path_params)
    for name, value in pairs:
        _put(values, known, name, value)
    if msgspec.json.encode(values).count(b"\\u0000"):
        raise _mismatch("The query contains a NUL character.")
    try:
        form = msgspec.convert(values, kind, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise _mismatch(f"{error}.") from None
    for name, value in values.items():
        if str(value).lower() == "null" and getattr(form, name) is None:
            raise _mismatch(f"{name} is {value}, which is not a number: leave it out.")
    return form


def _put(values: dict[str, Any], known: Parameters, name: str, value: str) -> None:
    field, bracket, key = name.partition("[")
    if field not in known or (bracket and not key.endswith("]")):
        raise _mismatch(f"There is no parameter {clip(name, 80)!r}; there are {', '.join(known)}.")
    within, default = known[field]
    target = values if within is None else values.setdefault(within, {})
    if isinstance(default, tuple) and not bracket:
        target.setdefault(field, []).append(value)
    elif isinstance(default, dict) and bracket:
        target.setdefault(field, {})[key[:-1]] = value
    elif field in target or bracket or isinstance(default, dict):
        raise _mismatch(f"{clip(name, 80)} is given twice, or in a way that is not accepted.")
    elif isinstance(default, bool) and value not in ("true", "false"):
        raise _mismatch(f"{field} is true or false.")
    else:
        target[field] = value


@cache
def query_parameters(kind: type[Struct]) -> Parameters:
    """Return, for each parameter of a query, the field it is nested in (if any) and its default."""
    found: Parameters = {}
    for field in structs.fields(kind):
        default = field.default_factory() if callable(field.default_factory) else field.default
        if isinstance(default, Struct):
            within = query_parameters(type(default))
            found |= {name: (field.encode_name, one) for name, (_, one) in within.items()}
        else:
            found[field.encode_name] = None, default
    return found


def _mismatch(detail: str) -> RequestError:
    return RequestError(400, "Request does not match the schema", detail, ADVICE)
