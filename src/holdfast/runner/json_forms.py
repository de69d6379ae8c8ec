"""The JSON form of values that JSON itself has no word for, and the way back.

Where an annotation says the type, a value has the plain form of that type (a datetime is text). Where
nothing says it, the form says it itself: an object with one name, `{"holdfast:datetime": "2026-01-01T…"}`.
NaN and the infinities always have such a form. docs/data.md has the list.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import Path, PurePath
from typing import Any
from uuid import UUID

import msgspec

from holdfast.core.errors import Invalid
from holdfast.runner import foreign_types
from holdfast.runner.arrays import float_text

MARK = "holdfast:"
MARK_BYTES = b'"holdfast:'
REPR_CHARACTERS_MAX = 1_000
DEPTH_MAX = 60
"""How deep values may be nested; their JSON may be a little deeper."""

_TEXTS: dict[str, type] = {  # a datetime is a date too: the first that fits
    "datetime": datetime,
    "date": date,
    "time": time,
    "timedelta": timedelta,
    "decimal": Decimal,
    "uuid": UUID,
    "bytes": bytes,
}
_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class Unencodable(Invalid):
    """A part of a result is of a class that has no JSON form. The work is done, and only that part is
    lost. Of a table the rows are kept, in `csv`."""

    csv: str | None = None
    advice = "Return numbers, texts, lists, dicts, dataclasses, arrays or tables; all else as an output."


def typed_form(value: object, *, arrays: bool) -> object:
    """Return the form of a value whose annotation says its type. Without `arrays`, an array is a list."""

    def hook(one: object) -> object:
        if foreign_types.package_of(one) is not None:
            return foreign_types.form_of(one, OpenForms().of, value_of, plain=not arrays)
        if isinstance(one, PurePath):
            return str(one)
        if isinstance(one, complex):
            return [one.real, one.imag]
        if isinstance(one, str | int | float):
            return _base_value(one)
        raise foreign_types.no_form(one)

    return with_floats(msgspec.to_builtins(value, enc_hook=hook))


class OpenForms:
    """Makes the forms of values whose type no annotation says, except that instances of `classes` are read
    by one. A value that would lose its class is refused, with `TypeError`; if it is `lenient`, it is written
    as its fields. What has no form at all is refused; with `describing`, it is described."""

    def __init__(
        self, classes: frozenset[type] = frozenset(), *, lenient: bool = False, describing: bool = False
    ) -> None:
        self._classes = classes
        self._lenient = lenient
        self._describing = describing

    def of(self, value: object, depth: int = 0) -> object:
        cls = type(value)
        if value is None or cls in (bool, int, str):
            return value
        if cls is float:
            return _float_form(value)  # type: ignore[arg-type]
        if depth > DEPTH_MAX:
            raise TypeError(f"it is nested more than {DEPTH_MAX} deep")
        if (package := foreign_types.package_of(value)) is not None:
            return self._foreign(value, package)
        match value:
            case Enum():
                return self._enum(value, depth)
            case list():
                return self._each(value, depth)
            case dict():
                return self._dict(value, depth)
            case tuple():
                if cls is not tuple:
                    self._check_class(value)
                return {f"{MARK}tuple": self._each(value, depth)}
            case set() | frozenset():
                name = "set" if isinstance(value, set) else "frozenset"
                # In an order that does not depend on the process.
                return {f"{MARK}{name}": sorted(self._each(value, depth), key=msgspec.json.encode)}
            case str() | int() | float():
                return self.of(_base_value(value), depth)
        return _text_form(value) or self._instance(value, depth)

    def _each(self, values: Iterable[object], depth: int) -> list[object]:
        return [self.of(one, depth + 1) for one in values]

    def _dict(self, value: Mapping[object, object], depth: int) -> object:
        if all(type(key) is str and not key.startswith(MARK) for key in value):
            return {key: self.of(one, depth + 1) for key, one in value.items()}
        return {f"{MARK}dict": [self._each(pair, depth) for pair in value.items()]}

    def _foreign(self, value: object, package: str) -> object:
        if package == foreign_types.PYDANTIC:
            self._check_class(value)
        try:
            plain = foreign_types.plain_value(value)
            if plain is not value:
                return self.of(plain)
            return with_floats(foreign_types.form_of(value, self.of, value_of))
        except Exception as error:
            if not self._describing:
                raise TypeError(str(error)) from error
            return {f"{MARK}unencodable": describe(value)}

    def _enum(self, value: Enum, depth: int) -> object:
        if not isinstance(value, str | int):
            self._check_class(value)
        return self.of(value.value, depth + 1)

    def _instance(self, value: object, depth: int) -> object:
        """Return the form of an instance of a class of the user, which only an annotation can name."""
        fields = _fields(value)
        if fields is not None:
            self._check_class(value)
            return {name: self.of(one, depth + 1) for name, one in fields.items()}
        if self._describing:
            return {f"{MARK}unencodable": describe(value)}
        raise foreign_types.no_form(value)

    def _check_class(self, value: object) -> None:
        if not self._lenient and type(value) not in self._classes:
            name = type(value).__qualname__
            raise TypeError(
                f"it has a {name}, and no annotation says so: the worker would not get one. Annotate the"
                f" parameter with {name}, or give plain values"
            )


def _fields(value: object) -> dict[str, object] | None:
    """Return the fields of an instance by their names in JSON; None for a class without declared fields."""
    if isinstance(value, msgspec.Struct):
        return {one.encode_name: getattr(value, one.name) for one in msgspec.structs.fields(value)}
    declared: Iterable[Any] | None = getattr(type(value), "__attrs_attrs__", None)
    if declared is None and dataclasses.is_dataclass(value):
        declared = dataclasses.fields(value)
    return None if declared is None else {one.name: getattr(value, one.name) for one in declared}


def _text_form(value: object) -> dict[str, object] | None:
    if isinstance(value, bytearray | memoryview):
        value = bytes(value)
    for name, cls in _TEXTS.items():
        if isinstance(value, cls):
            return {f"{MARK}{name}": msgspec.to_builtins(value)}
    if isinstance(value, PurePath):
        return {f"{MARK}path": str(value)}
    if isinstance(value, complex):
        return {f"{MARK}complex": [_float_form(value.real), _float_form(value.imag)]}
    return None


def _base_value(value: str | float) -> str | float:
    """Return the value without its own class, which is a subclass of a plain one."""
    if isinstance(value, str):
        return str.__str__(value)
    return int.__int__(value) if isinstance(value, int) else float.__float__(value)


def _float_form(value: float) -> object:
    if isfinite(value):
        return value
    return {f"{MARK}float": float_text(value)}


def with_floats(value: object, depth: int = 0) -> object:
    """Return builtins in which NaN and the infinities have their form."""
    if depth > DEPTH_MAX:
        raise TypeError(f"it is nested more than {DEPTH_MAX} deep")
    if isinstance(value, float):
        return _float_form(value)
    if isinstance(value, dict):
        return {key: with_floats(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [with_floats(one, depth + 1) for one in value]
    return value


def has_other_floats(value: object) -> bool:
    """Return whether a value has NaN or an infinity in it: JSON would make them null."""
    rest = [msgspec.to_builtins(value)]
    while rest:
        node = rest.pop()
        if isinstance(node, float) and not isfinite(node):
            return True
        if isinstance(node, dict):
            rest.extend(node.values())
        elif isinstance(node, list | tuple | set | frozenset):
            rest.extend(node)
    return False


def describe(value: object) -> dict[str, str]:
    """Return what is kept of a value that has no form."""
    try:
        text = repr(value)
    except BaseException as error:
        text = f"<its repr raised {type(error).__name__}>"
    text = text.encode(errors="replace").decode().replace("\0", "?")
    if len(text) > REPR_CHARACTERS_MAX:
        text = f"{text[:REPR_CHARACTERS_MAX]} … [{len(text):,} characters]"
    kept = {"class": f"{type(value).__module__}.{type(value).__qualname__}", "repr": text}
    rows = foreign_types.csv_of(value)
    return kept if rows is None else {**kept, "csv": rows}


def text_of(form: object) -> object:
    """Return the text in a form of a value that is written as text, such as a UUID; else the form itself."""
    if isinstance(form, dict) and len(form) == 1:
        ((name, text),) = form.items()
        if name.startswith(MARK) and name.removeprefix(MARK) in _TEXTS:
            return text
    return form


def value_of(document: object) -> object:
    """Return the value that a JSON document says; `ValueError` for a form that is none of ours."""
    if isinstance(document, list):
        return [value_of(one) for one in document]
    if not isinstance(document, dict):
        return document
    if len(document) == 1:
        ((name, form),) = document.items()
        if isinstance(name, str) and name.startswith(MARK):
            try:
                return _value_of_form(name.removeprefix(MARK), form)
            except (TypeError, LookupError, OverflowError, AttributeError) as error:
                raise ValueError(f"{name} has a form that cannot be read: {error}") from error
    return {key: value_of(one) for key, one in document.items()}


def _value_of_form(name: str, form: Any) -> object:  # noqa: ANN401
    match name:
        case "float" if form in _FLOATS:
            return _FLOATS[form]
        case "tuple":
            return tuple(map(value_of, form))
        case "set":
            return set(map(value_of, form))
        case "frozenset":
            return frozenset(map(value_of, form))
        case "dict":
            return {value_of(key): value_of(one) for key, one in form}
        case "path":
            return Path(form)
        case "complex":
            parts: Any = value_of(form)
            return complex(*parts)
        case "unencodable":
            error = Unencodable(
                f"The result has a {form['class']}, which has no JSON form. It was {form['repr']}."
            )
            if (rows := form.get("csv")) is not None:
                error.csv = rows
                error.advice = (
                    "Its rows are in `csv` of this error. Return it with reset_index() and plain types."
                )
            raise error
    if (cls := _TEXTS.get(name)) is not None:
        return msgspec.convert(form, cls)
    return foreign_types.value_of(name, form, value_of)
