"""The words after a function on the command line, as its arguments: by place or by --name, typed by its
annotations."""

import inspect
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from inspect import Parameter
from pathlib import PurePath
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.inspect import AnyType, CustomType, type_info

from holdfast.core.errors import Invalid
from holdfast.core.spec import Json
from holdfast.runner.json_forms import OpenForms
from holdfast.runner.signature import Function

_COLLECTIONS = (list, tuple, set, frozenset, Collection, Sequence)
_MAPPINGS = (dict, Mapping)
_UNIONS = (typing.Union, types.UnionType)
_OTHER_FLOATS = {
    word: OpenForms().of(float(word)) for word in ("nan", "inf", "-inf", "infinity", "-infinity")
}


class FunctionWords:
    """Reads the words for one function. `name` is how the user called it."""

    def __init__(self, name: str, function: Function, parameters: Mapping[str, Parameter]) -> None:
        self._name = name
        self._parameters = parameters
        self._hints = _hints(function)
        self._by_option = {_option(one): one for one in parameters}
        self._by_place = [n for n, one in parameters.items() if one.kind is Parameter.POSITIONAL_OR_KEYWORD]

    @property
    def usage(self) -> str:
        """How it is called: what is required by its place where it may, and the rest by name."""
        return " ".join([self._name, *(self._usage_of(one) for one in self._parameters)])

    def explain(self) -> list[tuple[str, str]]:
        """Return a line for each parameter: how it is given, and what it takes."""
        return [(_option(name), self._meaning(name)) for name in self._parameters]

    def read(self, words: Sequence[str]) -> dict[str, Json]:
        """Return the arguments, as JSON has them. Raise `Invalid`, which says how the function is called."""
        given: dict[str, list[str]] = {}
        places = iter(self._by_place)
        rest, plain = list(words), False
        while rest:
            word = rest.pop(0)
            if word == "--" and not plain:
                plain = True
            elif plain or not _is_option(word):
                name = next((one for one in places if one not in given), None)
                if name is None:
                    raise self._wrong(f"There is no place for {word!r}")
                given[name] = [word]
            else:
                name, text = self._option(word, rest)
                given.setdefault(name, []).append(text)
        return {name: self._value(name, texts) for name, texts in given.items()}

    def _option(self, word: str, rest: list[str]) -> tuple[str, str]:
        """Return the parameter and its text; `rest` are the words after the option."""
        option, equals, text = word.partition("=")
        option = option.replace("_", "-")
        name = self._by_option.get(option)
        if name is None:
            refused = self._by_option.get(f"--{option.removeprefix('--no-')}")
            if refused is not None and option.startswith("--no-") and self._is(refused, bool) and not equals:
                return refused, "false"
            raise self._unknown(option)
        if equals:
            return name, text
        if self._is(name, bool) and not (rest and rest[0] in ("true", "false")):
            return name, "true"
        if not rest:
            raise self._wrong(f"{option} needs a value")
        return name, rest.pop(0)

    def _value(self, name: str, texts: Sequence[str]) -> Json:
        hint = self._hints.get(name, Any)
        if len(texts) == 1:
            return _value(texts[0], hint)
        if self._item(name) is None:
            raise self._wrong(f"{_option(name)} is given {len(texts)} times")
        return [_value(text, self._item(name)) for text in texts]

    def _item(self, name: str) -> Any:  # noqa: ANN401
        """Return the type of the items of a list; None if this is no list."""
        return _item_type(self._hints.get(name, Any))

    def _is(self, name: str, kind: type) -> bool:
        return any(one is kind for one in _members(self._hints.get(name, Any)))

    def _usage_of(self, name: str) -> str:
        parameter, option = self._parameters[name], _option(name)
        if parameter.default is not Parameter.empty:
            return (
                f"[{option}]"
                if self._is(name, bool)
                else f"[{option} {_type_word(self._hints.get(name, Any))}]"
            )
        if name in self._by_place:
            return name.upper()
        return f"{option} {_type_word(self._hints.get(name, Any))}"

    def _meaning(self, name: str) -> str:
        parameter = self._parameters[name]
        shown = inspect.formatannotation(parameter.annotation)
        kind = "" if parameter.annotation is Parameter.empty else shown
        needed = "required" if parameter.default is Parameter.empty else f"default: {parameter.default!r}"
        return f"{kind}  [{needed}]".strip()

    def _unknown(self, option: str) -> Invalid:
        close = get_close_matches(option, self._by_option, 1)
        hint = f" Did you mean {close[0]}?" if close else ""
        return self._wrong(
            f"{self._name} has no argument {option}.{hint} Options of the job come before the function"
        )

    def _wrong(self, message: str) -> Invalid:
        return Invalid(f"{message}.", advice=f"It is called as: {self.usage}")


class _Failed(Struct):
    """A text that is not of this type."""


def _hints(function: Function) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # they name what is imported for the type checker only
        return {}


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _is_option(word: str) -> bool:
    """Whether this is an option, and no negative number."""
    return word.startswith("-") and len(word) > 1 and not (word[1].isdigit() or word[1] == ".")


def _value(text: str, hint: Any) -> Json:  # noqa: ANN401
    """Return the text as this type takes it in JSON: as it is, or as the JSON that it is. What fits neither
    way is returned as it is: the function says what is wrong with it."""
    parsed = _parsed(text)
    if _is_free(hint):
        return text if isinstance(parsed, _Failed) else parsed
    if _fits(text, hint):
        return text
    if text.lower() in _OTHER_FLOATS and _fits(0.5, hint):
        return _OTHER_FLOATS[text.lower()]
    if not isinstance(parsed, _Failed) and (_fits(parsed, hint) or isinstance(parsed, dict | list)):
        return parsed
    item = _item_type(hint)
    return text if item is None else [_value(text, item)]


def _is_free(hint: Any) -> bool:  # noqa: ANN401
    """Whether any JSON may fit: there is no annotation, or one that only the function knows."""
    if isinstance(hint, type) and issubclass(hint, PurePath):
        return False
    try:
        return isinstance(type_info(hint), AnyType | CustomType)
    except (TypeError, ValueError, NameError, RecursionError):
        return True


def _parsed(text: str) -> Json | _Failed:
    try:
        value: Json = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return _Failed()
    return value


def _fits(value: Json, hint: Any) -> bool:  # noqa: ANN401
    try:
        msgspec.convert(value, hint)
    except (msgspec.ValidationError, TypeError, ValueError):  # wrong, or a type that only the function knows
        return False
    return True


def _members(hint: Any) -> Iterable[Any]:  # noqa: ANN401
    """Return the types that a hint allows."""
    if get_origin(hint) is Annotated:
        return _members(get_args(hint)[0])
    return get_args(hint) if get_origin(hint) in _UNIONS else (hint,)


def _item_type(hint: Any) -> Any:  # noqa: ANN401
    for one in _members(hint):
        origin = get_origin(one) or one
        if (
            isinstance(origin, type)
            and issubclass(origin, _COLLECTIONS)
            and not issubclass(origin, (str, bytes, *_MAPPINGS))
        ):
            return (*get_args(one), Any)[0]
    return None


def _type_word(hint: Any) -> str:  # noqa: ANN401
    """Return one word for what is to be typed."""
    if (item := _item_type(hint)) is not None:
        return f"{_type_word(item)}..."
    kinds = [one for one in _members(hint) if one is not type(None)]
    if len(kinds) == 1 and isinstance(kinds[0], type) and get_origin(kinds[0]) is None:
        return kinds[0].__name__.upper()
    return "VALUE" if _is_free(hint) else "JSON"
