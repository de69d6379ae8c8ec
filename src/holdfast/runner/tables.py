"""Frames and series of pandas and polars in JSON: a list of columns, each with its name, dtype and data.

What is read is compared with what was written before it is stored: a table that JSON cannot say exactly is
refused.
"""

import importlib
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from holdfast.runner.arrays import array_of, float_text, list_form

Walk: TypeAlias = Callable[[object], object]

ADVICE = "write it to a file, such as Parquet with ctx.output(…), and pass the path"


def table_form(table: Any, package: str, form_of: Walk, value_of: Walk) -> dict[str, object]:  # noqa: ANN401
    """Return the form of a frame or a series; `TypeError` unless it is read back as it is."""
    name = f"a {type(table).__name__} of {package}"
    make = _pandas_form if package == "pandas" else _polars_form
    try:
        form = make(table, form_of)
        again = table_of(package, form, value_of)
        same = _is_same(package, table, again)
    except Exception as error:
        raise TypeError(f"{name} cannot be written as JSON: {error}; {ADVICE}") from error
    if not same:
        raise TypeError(f"{name} would not come back as it is; {ADVICE}")
    return form


def table_of(package: str, form: Any, value_of: Walk) -> Any:  # noqa: ANN401
    """Return the frame or series that a form says."""
    return (_pandas_of if package == "pandas" else _polars_of)(form, value_of)


def _is_same(package: str, table: Any, again: Any) -> bool:  # noqa: ANN401
    if package == "polars":
        return bool(table.equals(again, null_equal=True)) and _schema(table) == _schema(again)
    testing = importlib.import_module("pandas.testing")
    check = testing.assert_frame_equal if hasattr(table, "columns") else testing.assert_series_equal
    try:
        check(table, again, check_exact=True, check_freq=False)
    except AssertionError:
        return False
    return True


def _schema(table: Any) -> object:  # noqa: ANN401
    return table.schema if hasattr(table, "schema") else (table.name, table.dtype)


# pandas


def _pandas_form(table: Any, form_of: Walk) -> dict[str, object]:  # noqa: ANN401
    if hasattr(table.index, "levels") or hasattr(getattr(table, "columns", None), "levels"):
        raise TypeError("it has an index of several levels: take reset_index()")
    index = table.index
    form: dict[str, object] = {}
    if type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1):
        rows: object = len(index)
        if index.name is not None:
            rows = {"name": form_of(index.name), "length": len(index)}
    else:
        rows = _pandas_column(index.name, index, form_of)
    if not hasattr(table, "columns"):
        form["series"] = _pandas_column(table.name, table, form_of)
    else:
        names = list(table.columns)
        form["columns"] = [_pandas_column(name, table.iloc[:, at], form_of) for at, name in enumerate(names)]
        if table.columns.name is not None or not len(table.columns):
            raise TypeError("its columns have no names, or a name of their own")
    form["index"] = rows
    return form


def _pandas_column(name: object, values: Any, form_of: Walk) -> dict[str, object]:  # noqa: ANN401
    dtype = values.dtype
    if str(dtype) in ("category",) or str(dtype).startswith(("interval", "period", "Sparse")):
        raise TypeError(f"its column {name!r} is of dtype {dtype}")
    missing = values.isna()
    kind = getattr(dtype, "kind", "O")
    if kind in "Mm":
        data = [None if gone else one.isoformat() for one, gone in zip(values, missing, strict=True)]
    elif kind in "biuf" and not hasattr(dtype, "na_value"):
        data = list_form(values.to_numpy())
    elif str(dtype) == "object":
        data = [form_of(one) for one in values.tolist()]
    else:
        data = [None if gone else form_of(one) for one, gone in zip(values.tolist(), missing, strict=True)]
    return {"name": form_of(name), "dtype": str(dtype), "data": data}


def _pandas_of(form: Any, value_of: Walk) -> Any:  # noqa: ANN401
    pandas = importlib.import_module("pandas")
    rows = form["index"]
    if isinstance(rows, dict) and "data" in rows:
        index = pandas.Index(_pandas_values(rows, value_of), name=value_of(rows["name"]))
    else:
        length, name = (rows["length"], value_of(rows["name"])) if isinstance(rows, dict) else (rows, None)
        index = pandas.RangeIndex(length, name=name)
    if "series" in form:
        series = _pandas_values(form["series"], value_of)
        return pandas.Series(series.array, index=index, name=value_of(form["series"]["name"]), copy=False)
    columns = form["columns"]
    frame = pandas.DataFrame(
        {at: _pandas_values(column, value_of).array for at, column in enumerate(columns)}, index=index
    )
    frame.columns = pandas.Index([value_of(column["name"]) for column in columns])
    return frame


def _pandas_values(column: Any, value_of: Walk) -> Any:  # noqa: ANN401
    """Return the data of a column as a series."""
    pandas = importlib.import_module("pandas")
    dtype, data = column["dtype"], column["data"]
    if dtype.startswith("datetime64"):
        times = pandas.Series(pandas.to_datetime(data, format="ISO8601", utc="," in dtype))
        return times.astype(dtype)
    if dtype.startswith("timedelta64"):
        return pandas.Series(pandas.to_timedelta(data)).astype(dtype)
    if _NUMBERS.match(dtype):
        return pandas.Series(array_of({"dtype": dtype, "shape": [len(data)], "data": data}))
    return pandas.Series([value_of(one) for one in data], dtype=dtype)


_NUMBERS = re.compile(r"(bool|(u?int(8|16|32|64))|float(16|32|64))\Z")


# polars

_TEMPORAL = re.compile(
    r"(Datetime|Duration)\(time_unit='(ns|us|ms)'(?:, time_zone=(?:None|'([\w/+-]+)'))?\)\Z"
)
_NESTED = re.compile(r"List\((.+)\)\Z")
_SIMPLE = re.compile(r"(Boolean|U?Int(8|16|32|64|128)|Float(32|64)|String|Binary|Date|Time|Null)\Z")


def _polars_form(table: Any, form_of: Walk) -> dict[str, object]:  # noqa: ANN401
    if not hasattr(table, "columns"):
        return {"series": _polars_column(table, form_of)}
    return {"columns": [_polars_column(series, form_of) for series in table.iter_columns()]}


def _polars_column(series: Any, form_of: Walk) -> dict[str, object]:  # noqa: ANN401
    data = series.to_list()
    if str(series.dtype).startswith("Float"):
        data = [one if one is None else float_text(one) for one in data]
    else:
        data = [form_of(one) for one in data]
    return {"name": series.name, "dtype": str(series.dtype), "data": data}


def _polars_of(form: Any, value_of: Walk) -> Any:  # noqa: ANN401
    polars = importlib.import_module("polars")
    if "series" in form:
        return _polars_series(polars, form["series"], value_of)
    return polars.DataFrame([_polars_series(polars, column, value_of) for column in form["columns"]])


def _polars_series(polars: Any, column: Any, value_of: Walk) -> Any:  # noqa: ANN401
    values = [value_of(one) for one in column["data"]]
    if column["dtype"].startswith("Float"):
        values = [one if one is None else float(one) for one in values]  # type: ignore[arg-type]
    return polars.Series(column["name"], values, dtype=_polars_dtype(polars, column["dtype"]))


def _polars_dtype(polars: Any, name: str) -> Any:  # noqa: ANN401
    if _SIMPLE.match(name):
        return getattr(polars, name)
    if found := _TEMPORAL.match(name):
        if found[1] == "Duration":
            return polars.Duration(found[2])
        return polars.Datetime(found[2], found[3])
    if found := _NESTED.match(name):
        return polars.List(_polars_dtype(polars, found[1]))
    raise TypeError(f"a column of dtype {name} is not read")
