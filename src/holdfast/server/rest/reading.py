"""Reading: a request's path, query, headers and body become one form."""

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
from holdfast.server.rest.problems import Wrong

F = TypeVar("F", bound=Struct)
Places: TypeAlias = dict[str, tuple[str | None, Any]]

JSON = "application/json"
ADVICE = "Correct the request. /docs describes what is taken; /openapi.json does so for programs."
LARGE = "The body is too large"
KEY_HEADER = "idempotency-key"
PARAMETERS_MAX = 1_000
BATCHES = {"requests": "request_id", "completions": "op_id"}
"""Lists in which each item has a name of its own: one header names them all, by their places."""


async def form_of(request: Request, kind: type[F], named: str | None) -> F:
    """What is asked for, or raise `Wrong`; `Invalid` where it is named in two ways."""
    if request.method in ("GET", "HEAD"):
        return _queried(request, kind)
    given = await _fields(request)
    for name, value in request.path_params.items():
        if name in given:
            raise _no_form(f"{name} is in the path already: leave it out of the body.")
        given[name] = _raw(value)
    if (header := request.headers.get(KEY_HEADER)) is not None:
        key = _key(header, named)
        if named is not None:
            _name(given, named, key)
    try:
        return msgspec.json.decode(msgspec.json.encode(given), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _no_form(f"{error}.") from None


def key_characters_max(named: str | None) -> int:
    """How long the header may be: of a list, places are added to it."""
    return ID_CHARACTERS_MAX - (len(f".{BATCH_ITEMS_MAX}") if named in BATCHES else 0)


def _key(header: str, named: str | None) -> str:
    key = header.strip().strip('"')
    try:
        check_id(key, "The header Idempotency-Key")
    except Invalid as error:
        raise _no_form(error.message) from None
    if len(key) > (most := key_characters_max(named)):
        raise _no_form(f"The header Idempotency-Key has at most {most} characters here.")
    return key


async def _fields(request: Request) -> dict[str, Raw]:
    body = await _body(request)
    if not body:
        return {}
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said != JSON:
        raise Wrong(
            415,
            "The body is not JSON",
            f"The body is said to be {said or 'nothing'!r}.",
            f"Send the header `Content-Type: {JSON}`, and JSON.",
        )
    if json_has_more(body, REQUEST_FIELDS_MAX):
        words = f"The body has more than {REQUEST_FIELDS_MAX:,} fields."
        raise Wrong(413, LARGE, words, "Send less at once.")
    if body.count(b"[") + body.count(b"{") > JSON_DEPTH_MAX and too_deep(body):
        raise _no_form(f"The body is nested deeper than {JSON_DEPTH_MAX}.")
    try:
        return msgspec.json.decode(body, type=dict[str, Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _no_form(f"{error}.") from None


async def _body(request: Request) -> bytes:
    """The body, unless it is too large: then no more of it is read."""
    body = bytearray()
    async for some in request.stream():
        body += some
        if len(body) > REQUEST_BYTES_MAX:
            raise Wrong(
                413,
                LARGE,
                f"The body has more than {REQUEST_BYTES_MAX // 1024} KiB.",
                "Send less at once.",
            )
    return bytes(body)


def _name(given: dict[str, Raw], named: str, key: str) -> None:
    """Let the header fill the field that names a request, or those of a whole list."""
    if named == "request_id" and given.get("job_id", _NULL) != _NULL:
        return  # the job's own id names it
    if named not in BATCHES:
        if named in given and given[named] not in (_raw(key), _NULL):
            raise Invalid(f"{named} and the header Idempotency-Key name it differently.")
        given[named] = _raw(key)
        return
    try:
        items = msgspec.json.decode(given.get(named, b"[]"), type=list[dict[str, Raw]])
    except msgspec.MsgspecError as error:
        raise _no_form(f"{named}: {error}.") from None
    for place, item in enumerate(items):
        if item.get("job_id", _NULL) == item.get(BATCHES[named], _NULL) == _NULL:
            item[BATCHES[named]] = _raw(f"{key}.{place}")
    given[named] = _raw(items)


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


_NULL = _raw(None)


def _queried(request: Request, kind: type[F]) -> F:
    """The form in a query: fields by name, lists by repeating it, and those of a value within beside
    them; `labels[team]=blue` for the entries of a field."""
    try:
        text = request.scope["query_string"].decode()
        pairs = parse_qsl(
            text, keep_blank_values=True, max_num_fields=PARAMETERS_MAX, errors="strict"
        )
    except ValueError as error:
        raise _no_form(f"The query cannot be read: {clip(str(error), 200)}.") from None
    known = places(kind)
    told: dict[str, Any] = dict(request.path_params)
    for name, value in pairs:
        _put(told, known, name, value)
    if msgspec.json.encode(told).count(b"\\u0000"):
        raise _no_form("The query has a NUL, which is no text.")
    try:
        form = msgspec.convert(told, kind, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise _no_form(f"{error}.") from None
    for name, value in told.items():
        if str(value).lower() == "null" and getattr(form, name) is None:
            raise _no_form(f"{name} is {value}, which is no number: leave it out.")
    return form


def _put(told: dict[str, Any], known: Places, name: str, value: str) -> None:
    field, bracket, key = name.partition("[")
    if field not in known or (bracket and not key.endswith("]")):
        raise _no_form(f"There is no parameter {clip(name, 80)!r}; there are {', '.join(known)}.")
    within, default = known[field]
    target = told if within is None else told.setdefault(within, {})
    if isinstance(default, tuple) and not bracket:
        target.setdefault(field, []).append(value)
    elif isinstance(default, dict) and bracket:
        target.setdefault(field, {})[key[:-1]] = value
    elif field in target or bracket or isinstance(default, dict):
        raise _no_form(f"{clip(name, 80)} is given twice, or in a way that is not accepted.")
    elif isinstance(default, bool) and value not in ("true", "false"):
        raise _no_form(f"{field} is true or false.")
    else:
        target[field] = value


@cache
def places(kind: type[Struct]) -> Places:
    """By parameter: the field it is in, if that is not its own, and what it is when nobody says."""
    found: Places = {}
    for field in structs.fields(kind):
        default = field.default_factory() if callable(field.default_factory) else field.default
        if isinstance(default, Struct):
            within = places(type(default))
            found |= {name: (field.encode_name, one) for name, (_, one) in within.items()}
        else:
            found[field.encode_name] = None, default
    return found


def _no_form(detail: str) -> Wrong:
    return Wrong(400, "The request does not have the expected form", detail, ADVICE)
