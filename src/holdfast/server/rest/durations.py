"""Durations in requests: however they are written, the decoder gets them in ISO 8601."""

from contextlib import suppress
from datetime import timedelta
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import Raw, Struct, structs

from holdfast.core.durations import parse_duration
from holdfast.core.errors import Invalid

DURATION_SECONDS_MAX = 10**9
"""The largest number that is accepted, so that the OpenAPI document can say it."""


def with_iso_durations(text: Raw, kind: object, place: str = "") -> Raw:
    """Return the JSON of a `kind` with its durations in ISO 8601; raises `Invalid`, which names the field,
    for one that cannot be read. All else stays as it is, right or wrong."""
    for one in _alternatives(kind):
        if one is timedelta:
            return _iso(text, place)
        with suppress(msgspec.MsgspecError):
            if isinstance(one, type) and issubclass(one, Struct):
                return _object(msgspec.json.decode(text, type=dict[str, Raw]), one, place)
            if get_origin(one) is tuple:
                items = msgspec.json.decode(text, type=list[Raw])
                return _raw([with_iso_durations(item, get_args(one)[0], place) for item in items])
    return text


def _object(given: dict[str, Raw], kind: type[Struct], place: str) -> Raw:
    for field in structs.fields(kind):
        if (text := given.get(name := field.encode_name)) is not None:
            given[name] = with_iso_durations(text, field.type, f"{place}.{name}" if place else name)
    return _raw(given)


def _iso(text: Raw, place: str) -> Raw:
    with suppress(msgspec.ValidationError):
        msgspec.json.decode(text, type=timedelta | None)
        return text
    value = msgspec.json.decode(text)
    if isinstance(value, int | float) and value > DURATION_SECONDS_MAX:
        raise Invalid(f"{place}: a duration has at most {DURATION_SECONDS_MAX:,} seconds.")
    return _raw(parse_duration(value, place))


def _alternatives(kind: Any) -> list[Any]:  # noqa: ANN401
    """The types of a union, without what describes them."""
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [one for part in get_args(kind) for one in _alternatives(part)]
    return [kind]


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))
