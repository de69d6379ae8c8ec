"""Forms that are derived from values of the core: the same fields and defaults, with what REST requires
of each. A new field of the core is accepted, and described in the OpenAPI document, without an edit
here."""

from collections.abc import Mapping
from functools import partial
from typing import TypeVar, cast

from msgspec import NODEFAULT, Raw, Struct, defstruct, field, structs

S = TypeVar("S", bound=Struct)
_VALUES: dict[type[Struct], type[Struct]] = {}
"""The type of the core that each derived form describes."""


def derive_form(kind: type[Struct], title: str, summary: str, /, **accepted: object) -> type[Struct]:
    """Return the form `title` of `kind`. `accepted` are the types of fields that REST describes or limits
    further than the core does; raises `TypeError` for one that `kind` does not have."""
    if unknown := accepted.keys() - set(kind.__struct_fields__):
        raise TypeError(f"{kind.__name__} has no field {min(unknown)}, which {title} describes.")
    fields = [_field(one, accepted.get(one.name, one.type)) for one in structs.fields(kind)]
    form = defstruct(title, fields, frozen=True, kw_only=True, forbid_unknown_fields=True)
    form.__doc__ = summary
    _VALUES[form] = kind
    return form


def _field(one: structs.FieldInfo, accepted: object) -> tuple[str, object] | tuple[str, object, object]:
    """The field with its default, as JSON Schema can show it: None stands for a value with its own
    fields."""
    if isinstance(one.default, Struct):
        return one.name, accepted, None
    if isinstance(one.default, Raw):
        return one.name, accepted, field(default_factory=partial(Raw, bytes(one.default)))
    if one.default_factory is not NODEFAULT:
        return one.name, accepted, field(default_factory=one.default_factory)
    return (one.name, accepted) if one.required else (one.name, accepted, one.default)


def value_of(form: S, **given: object) -> S:
    """Return the value of the core that a derived form describes, with `given` in place of its own
    fields."""
    kind = _described(type(form))
    assert kind is not None, type(form)  # only forms of `derive_form` are given
    fields: Mapping[str, object] = {**structs.asdict(form), **given}
    return cast("S", kind(**{name: _converted(value) for name, value in fields.items()}))


def _described(form: type) -> type[Struct] | None:
    """The type of the core that a form, or what it extends, describes."""
    return next((_VALUES[base] for base in form.__mro__ if base in _VALUES), None)


def _converted(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_converted, value))
    return value_of(value) if isinstance(value, Struct) and _described(type(value)) else value
