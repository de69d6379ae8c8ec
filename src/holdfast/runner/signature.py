"""The signature of a handler: its arguments, checked when a job is enqueued and when it is run.

A payload is a JSON object of the arguments that were given; every other argument has the default of the
code that runs the job.
"""

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from math import isfinite
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.inspect import CustomType, Type, type_info
from msgspec.structs import asdict

from holdfast.core.errors import Invalid
from holdfast.core.limits import PAYLOAD_BYTES_MAX, check_bytes
from holdfast.runner.context import Context

Function = Callable[..., object]

_encode = msgspec.json.Encoder().encode
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_AT = re.compile(r"(.*) - at `\$\.?(.*)`\Z", re.DOTALL)
_OTHER_NAMES = re.compile(r"Object (contains unknown|missing required) field `")
_UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


class OtherNames(Invalid):
    """A payload has argument names that the signature has not: another version of the code may have them."""


class Signature:
    """The named arguments of one function, without its context, and the type of its result."""

    def __init__(self, function: Function, kind: str) -> None:
        self.kind = kind
        hints = _hints(function, kind)
        parameters = list(inspect.signature(function).parameters.values())
        self.takes_context = bool(parameters) and hints.get(parameters[0].name) is Context
        if parameters and parameters[0].name == "ctx" and "ctx" not in hints:
            raise Invalid(f"{kind}: ctx has no annotation; write ctx: holdfast.Context.")
        self.parameters = {p.name: p for p in parameters[self.takes_context :]}
        _check_parameters(self.parameters, hints, kind)
        self.result_type: Any = hints.get("return", Any)
        _check_type(self.result_type, f"{kind}: what it returns")
        self._decoder = _decoder(self.parameters, hints, kind)
        self._defaults = any(p.default is not p.empty for p in self.parameters.values())
        self._positional = tuple(p.name for p in self.parameters.values() if p.kind is _NAMED[0])

    def encode(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        defaults: Mapping[str, object] = MappingProxyType({}),
    ) -> msgspec.Raw:
        """Return the payload of a call, with these `defaults` for arguments that are not given; `Invalid`
        unless a worker can read back every argument."""
        given = self._bind(args, kwargs) if args else kwargs
        if defaults:
            given = {**defaults, **given}
        try:
            payload = _encode(given)
        except _UNENCODABLE as error:
            raise Invalid(_unencodable(self.kind, given, error)) from error
        self._decode(payload)
        if b"null" in payload:
            for name, value in given.items():
                check_numbers(value, f"{self.kind}: {name}")
        if len(payload) > PAYLOAD_BYTES_MAX:
            check_bytes(payload, f"{self.kind}: what it is given", PAYLOAD_BYTES_MAX)
        return msgspec.Raw(payload)

    def complete(self, payload: msgspec.Raw, defaults: Mapping[str, object]) -> msgspec.Raw:
        """Return the payload with these `defaults` for arguments that are not given."""
        return self.encode((), msgspec.json.decode(payload), defaults) if defaults else payload

    def decode(self, payload: msgspec.Raw | bytes) -> dict[str, object]:
        """Return the arguments in a payload; `Invalid` when one has a wrong type, `OtherNames` when one is
        unknown here or missing."""
        arguments = self._decode(payload, OtherNames)
        given = asdict(arguments)
        if not self._defaults:
            return given
        return {name: value for name, value in given.items() if value is not UNSET}

    def _decode(self, payload: msgspec.Raw | bytes, other_names: type[Invalid] = Invalid) -> msgspec.Struct:
        try:
            return self._decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            kind = other_names if _OTHER_NAMES.match(str(error)) else Invalid
            raise kind(f"{self.kind}: {self._words(str(error))}.") from error

    def _bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        names = self._positional
        if len(args) > len(names):
            raise Invalid(
                f"{self.kind}: {len(args)} positional arguments were given; it takes at most {len(names)}."
            )
        given = dict(zip(names, args, strict=False))
        if twice := given.keys() & kwargs.keys():
            raise Invalid(f"{self.kind}: {min(twice)} is given twice.")
        return {**given, **kwargs}

    def _words(self, message: str) -> str:
        """Return the message of the decoder, in terms of arguments."""
        if found := re.match(r"Object contains unknown field `(.*)`\Z", message, re.DOTALL):
            taken = ", ".join(self.parameters) or "none"
            return f"there is no argument {found[1]}; it takes {taken}"
        if found := re.match(r"Object missing required field `(.*)`\Z", message, re.DOTALL):
            return f"the argument {found[1]} is missing"
        return located(message)


def located(message: str) -> str:
    """Return an error message of msgspec, with the place of the error first."""
    found = _AT.match(message)
    return f"{found[2]}: {found[1]}" if found and found[2] else message


def readable(result: object, result_type: object) -> object:
    """Return a stored result as the declared type; `msgspec.ValidationError` when it does not fit."""
    if result_type is Any:
        return result
    return msgspec.convert(result, result_type, str_keys=True)


def _hints(function: Function, kind: str) -> dict[str, Any]:
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    # Many import `Context` under TYPE_CHECKING only; it is known here without.
    known = {} if "Context" in scope else {"Context": Context}
    try:
        return typing.get_type_hints(function, localns=known, include_extras=True)
    except Exception as error:
        raise Invalid(
            f"{kind}: its annotations cannot be read: {error}. Import what they name at the top of the"
            " module, not only for type checking."
        ) from error


def _check_parameters(
    parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any], kind: str
) -> None:
    for name, parameter in parameters.items():
        if parameter.kind not in _NAMED:
            shown = str(parameter).partition(":")[0]
            raise Invalid(
                f"{kind}: a job cannot have the parameter {shown}: every argument needs a name of its"
                " own, so that it can be stored and checked."
            )
        if hints.get(name) is Context:
            raise Invalid(f"{kind}: the context is the first parameter, and {name} is not.")
        _check_type(hints.get(name, Any), f"{kind}: the parameter {name}")


def _check_type(hint: object, what: str) -> None:
    try:
        unreadable = _unreadable(type_info(hint))
    except (TypeError, ValueError, NameError, RecursionError) as error:
        raise Invalid(f"{what} has a type that cannot be read from JSON: {error}") from error
    if unreadable is not None:
        raise Invalid(
            f"{what} has the type {unreadable.__qualname__}, which cannot be read from JSON. Take plain"
            " types, dataclasses, TypedDicts or msgspec structs."
        )


def _unreadable(info: Type) -> type | None:
    """Return the first class in a type that msgspec cannot read, at any depth."""
    seen: set[int] = set()
    rest: list[object] = [info]
    while rest:
        node = rest.pop()
        if isinstance(node, CustomType):
            if node.cls is not object:
                return node.cls
        elif isinstance(node, list | tuple):
            rest.extend(node)
        elif isinstance(node, msgspec.Struct) and id(node) not in seen:
            seen.add(id(node))
            rest.extend(getattr(node, name) for name in node.__struct_fields__)
    return None


def _decoder(
    parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any], kind: str
) -> msgspec.json.Decoder[msgspec.Struct]:
    fields = [
        (name, hints.get(name, Any))
        if parameter.default is parameter.empty
        else (name, hints.get(name, Any), UNSET)
        for name, parameter in parameters.items()
    ]
    try:
        taken = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        return msgspec.json.Decoder(taken)
    except (TypeError, ValueError) as error:
        raise Invalid(f"{kind}: its parameters cannot be read from JSON: {error}") from error


def _unencodable(kind: str, given: Mapping[str, object], error: Exception) -> str:
    for name, value in given.items():
        try:
            _encode(value)
        except _UNENCODABLE as reason:
            return f"{kind}: {name}: cannot be written as JSON: {reason}."
    return f"{kind}: what it is given cannot be written as JSON: {error}."


def check_numbers(value: object, what: str) -> None:
    """Raise `Invalid` for infinity and NaN: JSON would make them null."""
    rest = [msgspec.to_builtins(value)]
    while rest:
        node = rest.pop()
        if isinstance(node, float) and not isfinite(node):
            raise Invalid(f"{what}: JSON has no {node}.")
        if isinstance(node, dict):
            rest.extend(node.values())
        elif isinstance(node, list | tuple | set | frozenset):
            rest.extend(node)
