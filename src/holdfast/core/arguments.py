"""The arguments of a job: how they are shown on one line, and how jobs are found by them."""

import re
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
_MARK = "holdfast:"
"""The beginning of the name of a form, of a value for which JSON has no word (docs/data.md)."""
_WORD = re.compile(r"[A-Za-z0-9_:.+-]+\Z", re.ASCII)

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
        yield from (f"{_name(name)}={_values.repr(_shown(value))}" for name, value in given.items())
    else:
        yield _values.repr(_shown(given))


class _Word:
    """A value that is shown by this word."""

    def __init__(self, word: str) -> None:
        self._word = word

    def __repr__(self) -> str:
        return self._word


def _shown(value: Json) -> object:
    """Return a value with its forms as they are in Python: NaN, a time, a tuple, a set."""
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if not isinstance(value, dict):
        return value
    name, form = _form(value)
    if name is None:
        return {key: _shown(one) for key, one in value.items()}
    if isinstance(form, str):
        return _Word(form) if _WORD.match(form) else form
    if name == "tuple" and isinstance(form, list):
        return tuple(_shown(one) for one in form)
    if name in ("set", "frozenset") and isinstance(form, list) and all(type(i) in (int, str) for i in form):
        return set(form)
    return _Word(f"{name}(…)") if _WORD.match(name) else form


def _form(value: Json) -> tuple[str | None, Json]:
    """Return the name and the content of a form; no name for any other value."""
    if isinstance(value, dict) and len(value) == 1:
        ((name, form),) = value.items()
        if name.startswith(_MARK):
            return name.removeprefix(_MARK), form
    return None, value


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
    name, form = _form(value)
    if value == text or (name is not None and form == text):
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
