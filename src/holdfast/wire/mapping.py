"""Values to messages and back, field by field, as their types say. A field of a value that its message
lacks is an error when this is imported, not when somebody misses it."""

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
    """How values of one type are written as messages of another. `kept` are fields that stay here, and
    what stands for each on the other side."""

    def __init__(
        self,
        value: type[S],
        message: type[M],
        *nested: "Mapping[Any, Any]",
        kept: dict[str, object] | None = None,
    ) -> None:
        self.value = value
        self._kept = kept or {}
        self._message = message
        self._fields: list[_Field] = []
        known = {one.value: one for one in nested}
        hints = get_type_hints(value)
        there = {field.name: field for field in message.desc().fields}
        for field in msgspec.structs.fields(value):
            if field.name in self._kept:
                continue
            default = field.default
            if field.default_factory is not NODEFAULT:
                default = field.default_factory()
            given = there[field.name].local_name  # KeyError: the message lacks it
            hint = _bare(hints[field.name])
            if default is NODEFAULT and hint is not hints[field.name]:
                raise TypeError(f"{value.__name__}.{field.name} may be None: make that its default.")
            encode, decode = _converters(hint, known)
            zero = hint in (int, float, bool, bytes, object) and default not in (NODEFAULT, 0)
            self._fields.append(_Field(field.name, given, default, encode, decode, zero))

    def encode(self, value: S) -> M:
        """The value as a message; what is as by default is left out."""
        told: dict[str, Any] = {}
        for field in self._fields:
            one = getattr(value, field.name)
            if one is None or one == field.default:
                continue
            try:
                told[field.given] = one if field.encode is None else field.encode(one)
            except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
                raise Invalid(f"{field.name} cannot be written: {error}") from error
        try:
            return self._message(**told)
        except (TypeError, ValueError, OverflowError) as error:
            raise Invalid(f"{self.value.__name__} is not what it should be: {error}") from error

    def decode(self, message: M) -> S:
        """The value in a message, or `Invalid` with what is wrong."""
        told: dict[str, Any] = dict(self._kept)
        for field in self._fields:
            one = getattr(message, field.given)
            if not one and not (field.zero and message.has_field(field.given)):
                if field.default is NODEFAULT:
                    told[field.name] = self._absent(field, one)
                continue
            try:
                told[field.name] = one if field.decode is None else field.decode(one)
            except _WRONG as error:
                raise Invalid(f"{field.name} cannot be understood: {error}") from error
        return self.value(**told)

    def read(self, message: M) -> S:
        """The value in an answer of a server, or `Unavailable`: it may have done what it was asked to."""
        try:
            return self.decode(message)
        except Invalid as error:
            raise misread(error.message) from error

    def _absent(self, field: "_Field", zero: Any) -> Any:  # noqa: ANN401
        """Of a field that must be there, what its absence says: the zero of a number or a text."""
        if zero is None or (zero == "" and field.decode is not None):
            raise Invalid(f"{self._message.__name__} has no {field.name}.")
        return zero if field.decode is None else field.decode(zero)


def misread(words: str) -> Unavailable:
    """The error for an answer that nobody can read: of a server that is damaged, or newer than we are."""
    return Unavailable(f"The server's answer cannot be understood: {words}", applied="unknown")


class _Field(Struct, frozen=True):
    name: str
    given: str
    default: Any
    encode: Convert | None
    decode: Convert | None
    zero: bool
    """Whether a zero that was said differs from one that was not. An empty text never does, unless it
    should be JSON."""


def _bare(hint: Any) -> Any:  # noqa: ANN401
    """The type of a field, without the None it may also be."""
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
            raise ValueError(f"{clip(text, 80)!r} is none of {', '.join(kind)}.") from None

    return decode


def _each(convert: Convert | None, kind: type) -> Convert:
    if convert is None:
        return kind
    return lambda many: kind(map(convert, many))


def timestamp(moment: datetime) -> Timestamp:
    """The moment as the wire says it."""
    since = moment - EPOCH
    return Timestamp(seconds=since.days * 86_400 + since.seconds, nanos=since.microseconds * 1000)


def duration(span: timedelta) -> Duration:
    """The span as the wire says it: a negative one has both parts negative."""
    microseconds = span // timedelta(microseconds=1)
    seconds, rest = divmod(abs(microseconds), 1_000_000)
    sign = -1 if microseconds < 0 else 1
    return Duration(seconds=sign * seconds, nanos=sign * rest * 1000)


def moment(stamp: Timestamp) -> datetime:
    """The moment of a timestamp; `OverflowError` or `ValueError` beyond the calendar."""
    return EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


def span(length: Duration) -> timedelta:
    """The span of a duration; `OverflowError` beyond what Python counts."""
    return timedelta(seconds=length.seconds, microseconds=length.nanos // 1000)


def json_text(value: object) -> str:
    """The value as JSON text."""
    return msgspec.json.encode(value).decode()


def json_value(text: str) -> object:
    """What JSON text says; `msgspec.DecodeError` for what is none."""
    return msgspec.json.decode(text)


def json_given(text: str, what: str) -> object:
    """What JSON text says, or `Invalid`."""
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
    datetime: (timestamp, moment),
    timedelta: (duration, span),
    msgspec.Raw: (lambda raw: bytes(raw).decode(), lambda text: msgspec.Raw(text.encode())),
    object: (json_text, json_value),
    dict[str, object]: (json_text, _attributes),
}


def optional(message: Message, name: str) -> Any:  # noqa: ANN401
    """The field of a message, or None when it is absent."""
    return getattr(message, name) if message.has_field(name) else None
