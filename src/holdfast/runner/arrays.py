"""NumPy arrays and scalars in JSON: `{"dtype": "float64", "shape": [2], "data": [0.5, "NaN"]}`."""

import importlib
import math
from typing import Any, get_args, get_origin

BYTES_MAX = 256 * 1024 * 1024
"""The most memory that an array takes which is made from a form."""

_KINDS = "biufcUMm"
_ADVICE = "take an array of numbers, texts or times, such as array.astype(float)"


def is_scalar_class(cls: type) -> bool:
    return cls.__module__ == "numpy" and any(base.__name__ == "generic" for base in cls.__mro__)


def is_array(value: object) -> bool:
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def is_scalar(value: object) -> bool:
    return is_scalar_class(type(value))


def plain_scalar(value: Any) -> object:  # noqa: ANN401
    """Return a scalar of NumPy as one of Python; a time as text, a timedelta as its count."""
    kind = value.dtype.kind
    if kind not in _KINDS or value.dtype.itemsize > _itemsize_max(kind):
        raise TypeError(f"a numpy.{value.dtype} has no JSON form: {_ADVICE}")
    if kind in "Mm":
        return str(value) if kind == "M" else int(value.astype("int64"))
    return value.item()


def array_of_scalar(value: Any) -> Any:  # noqa: ANN401
    """Return a scalar as an array without dimensions."""
    return importlib.import_module("numpy").array(value)


def array_form(array: Any) -> dict[str, object]:  # noqa: ANN401
    """Return the form of an array; `TypeError` when its data is not of a kind that JSON can say exactly."""
    return {
        "dtype": str(array.dtype.newbyteorder("=")),
        "shape": list(array.shape),
        "data": list_form(array),
    }


def list_form(array: Any, *, texts: bool = True) -> Any:  # noqa: ANN401
    """Return the data of an array as lists in lists; with `texts`, NaN and the infinities as text."""
    numpy = importlib.import_module("numpy")
    kind = array.dtype.kind
    if kind not in _KINDS or array.dtype.itemsize > _itemsize_max(kind):
        raise TypeError(f"an array of dtype {array.dtype} has no JSON form: {_ADVICE}")
    if kind == "M":
        return numpy.datetime_as_string(array).tolist()
    if kind == "m":
        return array.astype("int64").tolist()
    if kind == "c":
        return list_form(numpy.stack([array.real, array.imag], axis=-1), texts=texts)
    data = array.tolist()
    return data if not texts or kind != "f" or numpy.isfinite(array).all() else _with_texts(data)


def _itemsize_max(kind: str) -> float:
    """Return how many bytes an item may have: floats of more have no equal in Python."""
    return {"f": 8, "c": 16}.get(kind, math.inf)


def _with_texts(data: Any) -> Any:  # noqa: ANN401
    if isinstance(data, list):
        return [_with_texts(one) for one in data]
    return float_text(data)


def float_text(value: float) -> float | str:
    """Return a number, or the text for NaN and the infinities."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def array_of(form: Any) -> Any:  # noqa: ANN401
    """Return the array that a form says; `ValueError` when it is none."""
    numpy = importlib.import_module("numpy")
    dtype, shape = numpy.dtype(form["dtype"]), tuple(form["shape"])
    if dtype.kind not in _KINDS:
        raise ValueError(f"an array of dtype {dtype} is not read")
    if dtype.itemsize * math.prod(shape) > BYTES_MAX:
        raise ValueError(f"an array of dtype {dtype} and shape {shape} takes more than {BYTES_MAX:,} bytes")
    data = form["data"]
    if dtype.kind == "c":
        part = numpy.dtype(f"f{dtype.itemsize // 2}")
        pairs = numpy.array(data, dtype=part).reshape((*shape, 2))
        return pairs.view(dtype).reshape(shape)
    if dtype.kind == "m":
        return numpy.array(data, dtype="int64").reshape(shape).astype(dtype)
    array = numpy.array(data, dtype=dtype).reshape(shape)
    return array if shape else array[()] if dtype.kind in "Mm" else array


def array_of_list(hint: Any, data: object) -> Any:  # noqa: ANN401
    """Return an array from plain lists, as another program sends them, of the dtype in the annotation."""
    numpy = importlib.import_module("numpy")
    array = numpy.array(data, dtype=_dtype_of(hint))
    if array.dtype.kind not in _KINDS:
        raise ValueError("Expected an array of numbers, as nested lists")
    return array


def _dtype_of(hint: Any) -> Any:  # noqa: ANN401
    """Return the dtype of `numpy.typing.NDArray[...]`; None if it names no single one."""
    for argument in get_args(hint):
        if get_origin(argument) is not None and get_args(argument):
            named = get_args(argument)[0]
            if isinstance(named, type) and is_scalar_class(named) and not named.__subclasses__():
                return named
    return None


def scalar_of(cls: Any, value: object) -> Any:  # noqa: ANN401
    """Return a scalar of this class of NumPy; `ValueError` when it cannot have this value."""
    if cls.__name__ in ("datetime64", "timedelta64"):
        return cls(value)
    try:
        scalar = cls(value)
    except (TypeError, ValueError, OverflowError):
        scalar = None
    kind = "" if scalar is None else scalar.dtype.kind
    same_sort = isinstance(value, bool) is (kind == "b") and isinstance(value, str) is (kind == "U")
    # A float of fewer bits is the nearest one.
    if scalar is None or not same_sort or (scalar.item() != value and kind not in "fc"):
        raise ValueError(f"Expected `{cls.__name__}`, got {value!r:.80}")
    return scalar
