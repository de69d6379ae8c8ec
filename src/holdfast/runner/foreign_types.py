"""Values of NumPy, pandas, polars and pydantic, as arguments and results.

They are the user's packages: nothing here imports one, except to read a value of it. A value is recognised
by the module of its class.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import PurePath
from typing import Any, TypeAlias, get_origin

from holdfast.runner import arrays, tables

PYDANTIC = "pydantic"
TABLES = ("pandas", "polars")
Walk: TypeAlias = Callable[[object], object]


def package_of(value: object) -> str | None:
    """Return the package, of those known here, that the class of a value is from."""
    return _package(type(value))  # type: ignore[arg-type]  # mypy: a type is not hashable


@lru_cache(maxsize=1024)
def _package(cls: Any) -> str | None:  # noqa: ANN401
    for base in cls.__mro__[:-1]:
        package: str = base.__module__.partition(".")[0]
        if package in ("numpy", PYDANTIC, *TABLES):
            return package
    return None


@lru_cache(maxsize=1024)
def is_readable(cls: type) -> bool:
    """Return whether values of a class that `msgspec` does not know can be read here, by annotation."""
    package = _package(cls)
    if package == PYDANTIC:
        return hasattr(cls, "model_validate_json")
    if package == "numpy":
        return cls.__name__ == "ndarray" or arrays.is_scalar_class(cls)
    if package in TABLES:
        return cls.__name__ in ("DataFrame", "Series", "Timestamp")
    return issubclass(cls, PurePath | complex)


def plain_value(value: Any) -> object:  # noqa: ANN401
    """Return a value of NumPy or pandas as one of Python, where that has the same; else the value."""
    if arrays.is_scalar(value):
        return arrays.array_of_scalar(value) if value.dtype.kind in "Mm" else arrays.plain_scalar(value)
    if type(value).__name__ in ("Timestamp", "Timedelta") and package_of(value) == "pandas":
        if value.nanoseconds if hasattr(value, "nanoseconds") else value.nanosecond:
            raise TypeError("a time with nanoseconds needs an annotation: pandas.Timestamp")
        return value.to_pydatetime() if hasattr(value, "to_pydatetime") else value.to_pytimedelta()
    return value


def form_of(value: Any, form: Walk, read: Walk, *, plain: bool = False) -> object:  # noqa: ANN401
    """Return the form of a value of such a package, `TypeError` when it has none. With `plain` an array is
    a list, for a place whose annotation says so. `form` and `read` are for the values in it."""
    package = package_of(value)
    if package == PYDANTIC and hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    if package == "numpy":
        if arrays.is_scalar(value):
            return arrays.plain_scalar(value)
        if arrays.is_array(value):
            return (
                arrays.list_form(value, texts=False)
                if plain
                else {"holdfast:array": arrays.array_form(value)}
            )
    name = type(value).__name__
    if package in TABLES and name in ("DataFrame", "Series"):
        if plain and name == "Series":
            return [form(one) for one in value.to_list()]
        return {f"holdfast:{package}": tables.table_form(value, str(package), form, read)}
    if name == "Timestamp":
        return value.isoformat()
    raise no_form(value)


def csv_of(value: Any) -> str | None:  # noqa: ANN401
    """Return the rows of a table as CSV, whatever its index and types; None for what is no table."""
    if package_of(value) not in TABLES:
        return None
    try:
        if hasattr(value, "to_csv"):
            return str(value.to_csv())
        return str((value if hasattr(value, "write_csv") else value.to_frame()).write_csv())
    except Exception:
        return None


def no_form(value: object) -> TypeError:
    name = type(value).__qualname__
    return TypeError(f"a {name} has no JSON form: give its data, such as a number or a dict")


def value_of(name: str, form: Any, read: Walk) -> object:  # noqa: ANN401
    """Return the value that a form says; `ValueError` when there is no such form, or it is damaged."""
    try:
        if name == "array":
            return arrays.array_of(form)
        if name in TABLES:
            return tables.table_of(name, form, read)
    except ModuleNotFoundError as error:
        raise ValueError(f"it is a value of {error.name}, which is not installed here") from error
    raise ValueError(f"there is no form holdfast:{name} in this version")


def build(hint: Any, value: Any) -> object:  # noqa: ANN401
    """Return a value as the type of an annotation that `msgspec` does not know; `ValueError` when it is
    none."""
    cls = get_origin(hint) or hint
    if isinstance(value, cls):
        return value
    package = _package(cls)
    if package == PYDANTIC:
        return _model(cls, value)
    if package == "numpy":
        read = arrays.array_of_list if cls.__name__ == "ndarray" else arrays.scalar_of
        return read(hint, value)
    if cls.__name__ == "Timestamp" or issubclass(cls, PurePath):
        if not isinstance(value, str | PurePath):
            raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
        return cls(value)
    if cls is complex:
        return complex(value) if isinstance(value, int | float) else complex(*value)
    raise ValueError(f"Expected `{cls.__name__}`, got `{type(value).__name__}`")


def _model(cls: Any, value: object) -> object:  # noqa: ANN401
    try:
        return cls.model_validate_json(json.dumps(value))
    except ValueError as error:
        details: Any = getattr(error, "errors", list)()
        words = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in details[:3])
        raise ValueError(words or str(error)) from error
