"""A place for a value: a parameter or a result, and what its annotation says of it."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.inspect import AnyType, CustomType, DictType, Type, TypedDictType, type_info

from holdfast.core.errors import Invalid
from holdfast.runner import foreign_types
from holdfast.runner.json_forms import MARK_BYTES, OpenForms, describe, has_other_floats, typed_form, value_of

_encode = msgspec.json.Encoder().encode
_UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


class Place(Struct, frozen=True):
    """What an annotation says: whether it leaves a type `open`, the `classes` of the user that are in it,
    whether there are `arrays` (or series), `dicts`, or `models` of pydantic."""

    open: bool = False
    classes: frozenset[type] = frozenset()
    arrays: bool = False
    dicts: bool = False
    models: bool = False

    def form(self, value: object) -> object:
        """Return the JSON form of a value for this place, as builtins; `TypeError` when it has none."""
        if self.open:
            return OpenForms(self.classes).of(value)
        try:
            return typed_form(value, arrays=self.arrays)
        except TypeError:  # the keys of a dict may be anything
            return OpenForms(self.classes).of(value)

    def check_same(self, given: object, read: object, what: str) -> None:
        """Raise `Invalid` if a worker would read something else than what was given here."""
        if not (self.open or self.models) or _is_equal(read, given):
            return
        # NaN is not equal to itself, nor is an object of a class without equality.
        if repr(read) == repr(given) or (not self.models and self.form(read) == self.form(given)):
            return
        raise Invalid(
            f"{what}: would not come back as it is: the worker would get {read!r:.200}. Annotate the"
            f" parameter with its class, {type(given).__qualname__}, or give plain values."
        )

    def result(self, value: object) -> bytes:
        """Return the JSON of what a handler has returned. The work is done: what has no form is described."""
        try:
            document = _encode(value)
            if not self._loses(value, document):
                return document
            looks_like_forms = MARK_BYTES in document
        except Exception:  # code of the user's classes may raise anything
            looks_like_forms = False
        forms = OpenForms(self.classes, lenient=True, describing=True)
        typed = None if looks_like_forms else _written(value, self.form)
        return typed or _written(value, forms.of) or _encode(_described(value))

    def whole(self, value: object, what: str) -> bytes:
        """Return the JSON of a value that nothing annotates; `Invalid` when a part of it has no form.
        Instances of the user's classes are written as their fields."""
        try:
            document = _encode(value)
            if not self._loses(value, document):
                return document
        except _UNENCODABLE:
            pass
        try:
            return _encode(OpenForms(lenient=True).of(value))
        except _UNENCODABLE as error:
            raise Invalid(f"{what} cannot be written as JSON: {error}") from error

    def _loses(self, value: object, document: bytes) -> bool:
        if b"null" in document and has_other_floats(value):
            return True
        if (self.open or self.dicts) and MARK_BYTES in document:  # a dict that looks like a form
            return True
        return self.open and bool(msgspec.json.decode(document) != value)


def _is_equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except Exception:  # an array does not say with one word whether it is equal
        return False


OPEN = Place(open=True)
"""The place of a value that nothing annotates."""


def _written(value: object, form: Callable[[object], object]) -> bytes | None:
    """Return the JSON of a form of the value, or None."""
    try:
        return _encode(form(value))
    except Exception:
        return None


def _described(value: object) -> object:
    return {"holdfast:unencodable": describe(value)}


def built(hint: Any, document: object) -> object:  # noqa: ANN401
    """Return a value of a type that msgspec does not know; `ValueError` when it does not fit."""
    try:
        return foreign_types.build(hint, value_of(document))
    except (TypeError, LookupError, OverflowError, AttributeError) as error:
        raise ValueError(str(error)) from error


def readable(result: object, result_type: object) -> object:
    """Return a stored result as the declared type; `msgspec.ValidationError` when it does not fit."""
    try:
        value = value_of(result)
    except ValueError as error:
        raise msgspec.ValidationError(f"it has a form that cannot be read: {error}") from error
    if result_type is Any:
        return value
    return msgspec.convert(value, result_type, str_keys=True, dec_hook=built)


def place_of(hint: object, what: str) -> Place:
    """Return the place that an annotation describes; `Invalid` for a type that cannot be read."""
    try:
        return _place(type_info(hint), what)
    except (TypeError, ValueError, NameError, RecursionError) as error:
        words = str(error)
        if words.startswith("Type unions"):
            words += ". Take one of them; only None may stand beside it"
        raise Invalid(f"{what} has a type that cannot be read from JSON: {words}.") from error


def _place(info: Type, what: str) -> Place:
    opened = arrays = dicts = models = False
    classes: set[type] = set()
    for node in _nodes(info):
        opened = opened or isinstance(node, AnyType) or getattr(node, "cls", None) is object
        dicts = dicts or isinstance(node, DictType | TypedDictType)
        if isinstance(cls := getattr(node, "cls", None), type) and cls is not object:
            classes.add(cls)
            if isinstance(node, CustomType):
                if not foreign_types.is_readable(cls):
                    raise Invalid(
                        f"{what} has the type {cls.__qualname__}, which cannot be read from JSON. Take plain"
                        " types, dataclasses, TypedDicts, msgspec structs, attrs classes, pydantic models, or"
                        " arrays and tables."
                    )
                models = models or hasattr(cls, "model_validate_json")
                arrays = arrays or cls.__name__ in ("ndarray", "Series")
    return Place(opened, frozenset(classes), arrays, dicts, models)


def _nodes(info: Type) -> list[Struct]:
    """Return a type and all types in it, at any depth."""
    found: dict[int, Struct] = {}
    rest: list[object] = [info]
    while rest:
        node = rest.pop()
        if isinstance(node, list | tuple):
            rest.extend(node)
        elif isinstance(node, Struct) and id(node) not in found:
            found[id(node)] = node
            rest.extend(getattr(node, name) for name in node.__struct_fields__)
    return list(found.values())
