"""The signature of a handler: its arguments, checked when a job is enqueued and when it is run.

A payload is a JSON object of the arguments that were given; every other argument has the default of the
code that runs the job.
"""

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict

from holdfast.core.errors import Invalid
from holdfast.core.limits import PAYLOAD_BYTES_MAX
from holdfast.runner.context import Context
from holdfast.runner.json_forms import MARK_BYTES, has_other_floats, value_of
from holdfast.runner.places import Place, built, place_of

Function = Callable[..., object]

_encode = msgspec.json.Encoder().encode
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_AT = re.compile(r"(.*) - at `\$\.?(.*)`\Z", re.DOTALL)
_OTHER_NAMES = re.compile(r"Object (contains unknown|missing required) field `")
_PLAIN = frozenset({str, int, float, bool, type(None)})
"""What JSON says as it is, NaN and the infinities aside: three of them are looked at in 0.1 us."""
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
        self._places = _places(self.parameters, hints, kind)
        self._open = tuple(name for name, place in self._places.items() if place.open)
        self._takes_forms = any(place.open or place.dicts for place in self._places.values())
        self.result_type: Any = hints.get("return", Any)
        self.result_place = place_of(self.result_type, f"{kind}: what it returns")
        self._taken = _arguments(self.parameters, hints, kind)
        self._decoder = _decoder(self._taken, kind)
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
            arguments = self._decoder.decode(payload)
        except _UNENCODABLE:
            payload = self._with_forms(given)
        else:
            special = self._open and not _PLAIN.issuperset(map(type, given.values()))
            if (special or b"null" in payload) and self._loses(given, payload, arguments):
                payload = self._with_forms(given)
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise Invalid(
                f"{self.kind}: what it is given has {len(payload):,} bytes; at most {PAYLOAD_BYTES_MAX:,} are"
                " taken. Write it to a file or a bucket, and pass its path."
            )
        return msgspec.Raw(payload)

    def complete(self, payload: msgspec.Raw, defaults: Mapping[str, object]) -> msgspec.Raw:
        """Return the payload with these `defaults` for arguments that are not given."""
        if not defaults:
            return payload
        plain = MARK_BYTES not in bytes(payload)
        return self.encode((), msgspec.json.decode(payload) if plain else self.decode(payload), defaults)

    def decode(self, payload: msgspec.Raw | bytes) -> dict[str, object]:
        """Return the arguments in a payload; `Invalid` when one has a wrong type, `OtherNames` when one is
        unknown here or missing."""
        arguments = self._decode(payload, OtherNames)
        given = asdict(arguments)
        if not self._defaults:
            return given
        return {name: value for name, value in given.items() if value is not UNSET}

    def _decode(self, payload: msgspec.Raw | bytes, other_names: type[Invalid] = Invalid) -> msgspec.Struct:
        document = payload if type(payload) is bytes else bytes(payload)
        try:
            if not (self._takes_forms and MARK_BYTES in document):
                return self._decoder.decode(document)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if MARK_BYTES not in document:
                raise self._mismatch(error, other_names) from error
        try:
            given = value_of(msgspec.json.decode(document))
            return msgspec.convert(given, self._taken, str_keys=True, dec_hook=built)
        except _UNENCODABLE as error:
            raise self._mismatch(error, other_names) from error

    def _mismatch(self, error: Exception, other_names: type[Invalid]) -> Invalid:
        kind = other_names if _OTHER_NAMES.match(str(error)) else Invalid
        return kind(f"{self.kind}: {self._words(str(error))}.")

    def _loses(self, given: Mapping[str, object], payload: bytes, arguments: msgspec.Struct) -> bool:
        """Return whether a worker would read something else than what is given."""
        if b"null" in payload and any(map(has_other_floats, given.values())):
            return True
        if self._open and MARK_BYTES in payload:
            return True
        return any(name in given and getattr(arguments, name) != given[name] for name in self._open)

    def _with_forms(self, given: Mapping[str, object]) -> bytes:
        """Return the payload with the forms of values for which JSON has no word."""
        forms: dict[str, object] = {}
        for name, value in given.items():
            try:
                forms[name] = self._places[name].form(value) if name in self._places else None
                _encode(forms[name])
            except _UNENCODABLE as error:
                words = str(error).rstrip(".")
                raise Invalid(f"{self.kind}: {name}: cannot be written as JSON: {words}.") from error
        payload = _encode(forms)
        arguments = self._decode(payload)
        for name, value in given.items():
            self._places[name].check_same(value, getattr(arguments, name), f"{self.kind}: {name}")
        return payload

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


def _places(
    parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any], kind: str
) -> dict[str, Place]:
    places: dict[str, Place] = {}
    for name, parameter in parameters.items():
        if parameter.kind not in _NAMED:
            shown = str(parameter).partition(":")[0]
            raise Invalid(
                f"{kind}: a job cannot have the parameter {shown}: every argument needs a name of its"
                " own, so that it can be stored and checked."
            )
        if hints.get(name) is Context:
            raise Invalid(f"{kind}: the context is the first parameter, and {name} is not.")
        places[name] = place_of(hints.get(name, Any), f"{kind}: the parameter {name}")
    return places


def _arguments(
    parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any], kind: str
) -> type[msgspec.Struct]:
    fields = [
        (name, hints.get(name, Any))
        if parameter.default is parameter.empty
        else (name, hints.get(name, Any), UNSET)
        for name, parameter in parameters.items()
    ]
    try:
        return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    except (TypeError, ValueError) as error:
        raise Invalid(f"{kind}: its parameters cannot be read from JSON: {error}") from error


def _decoder(taken: type[msgspec.Struct], kind: str) -> msgspec.json.Decoder[msgspec.Struct]:
    try:
        return msgspec.json.Decoder(taken, dec_hook=built)
    except (TypeError, ValueError) as error:
        raise Invalid(f"{kind}: its parameters cannot be read from JSON: {error}") from error
