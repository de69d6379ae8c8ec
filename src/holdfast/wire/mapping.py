"""Values to messages and back, field by field, by their types. A field of a value that its message lacks
is an error at import, not when a client misses it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import UnionType
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Struct
from protobuf import Message
from protobuf.wkt import Duration, Timestamp

from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.limits import clip
from holdfast.core.state import State

S = TypeVar("S", bound=Struct)
M = TypeVar("M", bound=Message)
Convert = Callable[[Any], Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WRONG = (ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


class Mapping(Generic[S, M]):
    """Converts values of one type to messages of another and back. `local` are fields that are not sent,
    with the value that each has after decoding."""

    def __init__(
        self,
        value: type[S],
        message: type[M],
        *nested: "Mapping[Any, Any]",
        local: dict[str, object] | None = None,
    ) -> None:
        self.value = value
        self._local = local or {}
        self._message = message
        self._fields: list[_Field] = []
        known = {one.value: one for one in nested}
        hints = get_type_hints(value)
        there = {field.name: field for field in message.desc().fields}
        for field in msgspec.structs.fields(value):
            if field.name in self._local:
                continue
            default = field.default
            if field.default_factory is not NODEFAULT:
                default = field.default_factory()
            given = there[field.name].local_name  # KeyError: the message lacks this field
            hint = _bare(hints[field.name])
            if default is NODEFAULT and hint is not hints[field.name]:
                raise TypeError(f"{value.__name__}.{field.name} may be None: make that its default.")
            encode, decode = _converters(hint, known)
            zero = hint in (int, float, bool, bytes, object) and default not in (NODEFAULT, 0)
            self._fields.append(_Field(field.name, given, default, encode, decode, zero))

    def encode(self, value: S) -> M:
        """Return the value as a message, without the fields that have their default."""
        fields: dict[str, Any] = {}
        for field in self._fields:
            one = getattr(value, field.name)
            if one is None or one == field.default:
                continue
            try:
                fields[field.given] = one if field.encode is None else field.encode(one)
            except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
                raise Invalid(f"{field.name} cannot be written: {error}") from error
        try:
            return self._message(**fields)
        except (TypeError, ValueError, OverflowError) as error:
            raise Invalid(f"{self.value.__name__} is not what it should be: {error}") from error

    def decode(self, message: M) -> S:
        """Return the value in a message, or raise `Invalid` with what is wrong."""
        fields: dict[str, Any] = dict(self._local)
        for field in self._fields:
            one = getattr(message, field.given)
            if not one and not (field.zero and message.has_field(field.given)):
                if field.default is NODEFAULT:
                    fields[field.name] = self._absent(field, one)
                continue
            try:
                fields[field.name] = one if field.decode is None else field.decode(one)
            except _WRONG as error:
                raise Invalid(f"{field.name} cannot be decoded: {error}") from error
        return self.value(**fields)

    def read(self, message: M) -> S:
        """Return the value in the response of a server, or raise `Unavailable`: the request may have been
        applied."""
        try:
            return self.decode(message)
        except Invalid as error:
            raise undecodable_response(error.message) from error

    def _absent(self, field: "_Field", zero: Any) -> Any:  # noqa: ANN401
        """Return the value of an absent field that is required: the zero of a number or a text."""
        if zero is None or (zero == "" and field.decode is not None):
            raise Invalid(f"{self._message.__name__} has no {field.name}.")
        return zero if field.decode is None else field.decode(zero)


def undecodable_response(reason: str) -> Unavailable:
    """Return the error for a response that cannot be decoded: the server is damaged, or newer than this
    client."""
    return Unavailable(f"The server's response cannot be decoded: {reason}", applied="unknown")


class _Field(Struct, frozen=True):
    name: str
    given: str
    default: Any
    encode: Convert | None
    decode: Convert | None
    zero: bool
    """Whether an explicit zero differs from an absent field. An empty text does not, unless it should be
    JSON."""


def _bare(hint: Any) -> Any:  # noqa: ANN401
    """Return the type of a field without None."""
    if get_origin(hint) in (Union, UnionType):
        [hint] = [one for one in get_args(hint) if one is not type(None)]
    return hint


def _converters(
    hint: Any,  # noqa: ANN401
    known: dict[type[Struct], Mapping[Any, Any]],
) -> tuple[Convert | None, Convert | None]:
    origin = get_origin(hint)
    if origin is tuple:
        encode, decode = _converters(get_args(hint)[0], known)
        return _each(encode, list), _each(decode, tuple)
    if origin is Literal:
        return None, None
    if hint == dict[str, str]:
        return dict, dict
    if hint == dict[State, int]:
        return dict, lambda counts: {State(state): count for state, count in counts.items()}
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if issubclass(hint, StrEnum):
        return str, _named(hint)
    nested = known[hint]
    return nested.encode, nested.decode


def _named(kind: type[StrEnum]) -> Convert:
    def decode(text: str) -> StrEnum:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"{clip(text, 80)!r} is not one of {', '.join(kind)}.") from None

    return decode


def _each(convert: Convert | None, kind: type) -> Convert:
    if convert is None:
        return kind
    return lambda many: kind(map(convert, many))


def to_timestamp(moment: datetime) -> Timestamp:
    """Return the timestamp of an instant."""
    since = moment - EPOCH
    return Timestamp(seconds=since.days * 86_400 + since.seconds, nanos=since.microseconds * 1000)


def to_duration(span: timedelta) -> Duration:
    """Return the duration message; of a negative one, both parts are negative."""
    microseconds = span // timedelta(microseconds=1)
    seconds, rest = divmod(abs(microseconds), 1_000_000)
    sign = -1 if microseconds < 0 else 1
    return Duration(seconds=sign * seconds, nanos=sign * rest * 1000)


def from_timestamp(stamp: Timestamp) -> datetime:
    """Return the instant of a timestamp; raise `OverflowError` or `ValueError` if it is out of range."""
    return EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


def from_duration(length: Duration) -> timedelta:
    """Return the length of a duration; raise `OverflowError` if it is out of range."""
    return timedelta(seconds=length.seconds, microseconds=length.nanos // 1000)


def json_text(value: object) -> str:
    """Return the value as JSON text."""
    return msgspec.json.encode(value).decode()


def json_value(text: str) -> object:
    """Return the value of JSON text; raise `msgspec.DecodeError` for other text."""
    return msgspec.json.decode(text)


def parse_json(text: str, what: str) -> object:
    """Return the value of JSON text, or raise `Invalid`."""
    try:
        return json_value(text)
    except _WRONG as error:
        raise Invalid(f"{what} is not JSON: {error}") from error


def _attributes(text: str) -> dict[str, object]:
    return msgspec.json.decode(text, type=dict[str, object])


_SIMPLE: dict[Any, tuple[Convert | None, Convert | None]] = {
    str: (None, None),
    int: (None, None),
    float: (None, None),
    bool: (None, None),
    bytes: (None, None),
    datetime: (to_timestamp, from_timestamp),
    timedelta: (to_duration, from_duration),
    msgspec.Raw: (lambda raw: bytes(raw).decode(), lambda text: msgspec.Raw(text.encode())),
    object: (json_text, json_value),
    dict[str, object]: (json_text, _attributes),
}


def optional_field(message: Message, name: str) -> Any:  # noqa: ANN401
    """Return the field of a message, or None if it is absent."""
    return getattr(message, name) if message.has_field(name) else None
