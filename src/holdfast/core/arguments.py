"""The arguments of a job: how they are shown on one line, and how jobs are found by them."""

import reprlib
from collections.abc import Iterator, Mapping

import msgspec

from holdfast.core.errors import Invalid
from holdfast.core.spec import COMMAND_KIND, JOB_V1_KIND, Json, Spec

CALL_CHARACTERS_MAX = 200
VALUE_CHARACTERS_MAX = 60

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_COMMANDS = (COMMAND_KIND, JOB_V1_KIND)
_PYTHON_NAMES: dict[str, Json] = {"True": True, "False": False, "None": None}
_NOT_JSON = object()

_values = reprlib.Repr()
_values.maxstring = _values.maxother = _values.maxlong = VALUE_CHARACTERS_MAX
_values.maxlevel, _values.maxlist, _values.maxdict = 3, 6, 4


def describe_call(spec: Spec, payload: bytes | None = None) -> str:
    """Return the call of a function on one line, such as `fit(alpha=0.3, seed=7)`: shortened if it is long,
    without control characters. `payload` is what to show in place of the payload of the spec.

    Only the kind is returned for commands, and where there are no arguments, or they are hidden or cannot be
    read."""
    try:
        given = None if spec.kind in _COMMANDS else msgspec.json.decode(payload or spec.payload)
    except _UNREADABLE:
        given = None
    if given is None or given == {}:
        return spec.kind
    text = f"{spec.kind}("
    for number, argument in enumerate(_arguments(given)):
        text += f", {argument}" if number else argument
        if len(text) >= CALL_CHARACTERS_MAX:
            return f"{text[: CALL_CHARACTERS_MAX - 2]}…)"
    return f"{text})"


def _arguments(given: Json) -> Iterator[str]:
    if isinstance(given, dict):
        yield from (f"{_name(name)}={_values.repr(value)}" for name, value in given.items())
    else:
        yield _values.repr(given)


def _name(name: str) -> str:
    return name if name.isidentifier() else _values.repr(name)


def has_arguments(spec: Spec, wanted: Mapping[str, str]) -> bool:
    """Return whether a function is called with all of these arguments, each given as text: `7` is the
    number and the text, and anything but a text may be written as JSON or as `describe_call` shows it."""
    try:
        given = None if spec.kind in _COMMANDS else msgspec.json.decode(spec.payload)
    except _UNREADABLE:
        return False
    return isinstance(given, dict) and all(
        name in given and _is_meant(given[name], text) for name, text in wanted.items()
    )


def _is_meant(value: Json, text: str) -> bool:
    if value == text:
        return True
    meant = _parsed(text)
    return value == meant and isinstance(value, bool) is isinstance(meant, bool)


def _parsed(text: str) -> object:
    try:
        return _PYTHON_NAMES[text] if text in _PYTHON_NAMES else msgspec.json.decode(text)
    except _UNREADABLE:
        return _NOT_JSON


def argument_text(name: str, value: object) -> str:
    """Return the text by which jobs with this argument are found."""
    try:
        plain = msgspec.to_builtins(value)
        return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise Invalid(f"arguments: {name}: cannot be written as JSON: {error}.") from error
