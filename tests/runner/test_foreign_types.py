"""Values of NumPy, pandas, polars and pydantic as arguments and as results, as their users type them."""

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from math import inf, nan
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import polars.testing
import pydantic
import pytest

from holdfast import Invalid
from holdfast.runner.signature import Signature
from tests.runner.test_json_forms import FREE, of, returned, through


class Kind(Enum):
    LINEAR = "linear"


class Settings(pydantic.BaseModel):
    lr: float
    kind: Kind = Kind.LINEAR
    since: datetime | None = None
    path: Path | None = None
    tags: set[str] = set()
    price: Decimal = Decimal(1)


class Narrow(Settings):
    depth: int = 3


class Loose(pydantic.BaseModel):
    extra: Any = None


class Strict(pydantic.BaseModel, strict=True, frozen=True):
    at: datetime = pydantic.Field(alias="startedAt")
    tags: frozenset[int] = frozenset()

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def year(self) -> int:
        return self.at.year


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SETTINGS = Settings(lr=0.1, since=NOW, path=Path("a"), tags={"x"}, price=Decimal("1.10"))


def test_a_sweep_over_a_linspace_is_enqueued() -> None:
    def fit(alpha: float, seed: int = 0, *, quick: bool = False) -> None: ...

    signature = Signature(fit, "fit")

    for alpha in np.linspace(0, 1, 3):
        payload = signature.encode((alpha, np.int64(7)), {"quick": np.True_})
        assert signature.decode(payload) == {"alpha": float(alpha), "seed": 7, "quick": True}
    with pytest.raises(Invalid, match=r"fit: seed: Expected `int`, got `float`"):
        signature.encode((0.5, np.float64(1.5)), {})


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float64(0.1), 0.1),
        (np.float32(0.5), 0.5),
        (np.int8(-3), -3),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.complex128(1j), 1j),
        (np.float64(inf), inf),
    ],
)
def test_a_scalar_without_annotation_is_a_plain_number(value: object, plain: object) -> None:
    for read in (through(FREE, value), returned(value), through(FREE, [value])[0]):  # type: ignore[index]
        assert read == plain
        assert type(read) is type(plain)


@pytest.mark.parametrize(
    "value", [np.float32(0.1), np.int16(3), np.bool_(True), np.datetime64("2026-01-01T00:00", "ns")]
)
def test_a_scalar_with_its_annotation_is_that_scalar(value: Any) -> None:  # noqa: ANN401
    for read in (through(of(type(value)), value), returned(value, type(value))):
        assert (read, type(read)) == (value, type(value))


def test_a_scalar_that_its_annotation_cannot_have_is_refused() -> None:
    for hint, value in ((np.int8, 300), (np.int8, 1.5), (np.float64, "1.5"), (np.int64, True)):
        with pytest.raises(Invalid, match=f"takes: value: Expected `{hint.__name__}`"):
            of(hint).encode((value,), {})


ARRAYS = [
    np.array([[1.5, nan], [inf, -inf]]),
    np.arange(3),
    np.zeros((0, 3), dtype="float32"),
    np.array(2.5),
    np.array([True, False]),
    np.array(["a", "bcd"]),
    np.array([1 + 2j, complex(nan, 1)]),
    np.array(["2026-01-01", "NaT"], dtype="datetime64[ns]"),
    np.array([1, -5], dtype="timedelta64[s]"),
    np.array([0.1], dtype="float16"),
    np.array([2**64 - 1], dtype="uint64"),
    np.array([[1, 2], [3, 4]]).T,
    np.array([1, 2], dtype=">i4"),
]


@pytest.mark.parametrize("array", ARRAYS, ids=str)
@pytest.mark.parametrize("hint", [Any, np.ndarray, npt.NDArray[np.generic]], ids=str)
def test_an_array_arrives_with_its_dtype_and_shape(array: Any, hint: Any) -> None:  # noqa: ANN401
    for read in (through(of(hint), array), returned(array, hint)):
        np.testing.assert_array_equal(read, array)
        assert read.shape == array.shape  # type: ignore[attr-defined]
        assert read.dtype == array.dtype.newbyteorder("=")  # type: ignore[attr-defined]


def test_the_form_of_an_array_can_be_read_by_other_languages() -> None:
    payload = of(np.ndarray).encode((np.array([[1.0, nan]]),), {})

    assert msgspec.json.decode(payload) == {
        "value": {"holdfast:array": {"dtype": "float64", "shape": [1, 2], "data": [[1.0, "NaN"]]}}
    }


def test_other_languages_may_send_an_array_as_lists() -> None:
    read = of(npt.NDArray[np.float32]).decode(b'{"value":[[1,2],[3,4]]}')["value"]

    np.testing.assert_array_equal(read, np.array([[1, 2], [3, 4]], dtype="float32"))
    assert read.dtype == "float32"  # type: ignore[attr-defined]
    for document in (b'{"value":[[1],[2,3]]}', b'{"value":{"a":1}}', b'{"value":[null]}'):
        with pytest.raises(Invalid, match="takes: value: "):
            of(np.ndarray).decode(document)


@pytest.mark.parametrize(
    "values", [np.array([0.5, nan]), pd.Series([0.5, nan]), pl.Series([0.5, nan])], ids=type
)
def test_where_the_annotation_says_list_an_array_is_a_list(values: object) -> None:
    for read in (through(of(list[float]), values), returned(values, list[float])):
        assert repr(read) == "[0.5, nan]"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.array([object()]), "an array of dtype object has no JSON form: take an array of numbers"),
        (np.zeros(1, dtype=[("a", "i4")]), "has no JSON form"),
        (np.zeros(1, dtype="longdouble"), "has no JSON form"),
        (np.longdouble(1), "has no JSON form"),
        (np.ma.array([1]), "a MaskedArray has no JSON form"),
        (np.zeros(100_000), "what it is given has 400,0"),
    ],
)
def test_an_array_that_json_cannot_say_is_refused(value: object, words: str) -> None:
    for hint in (Any, np.ndarray):
        with pytest.raises(Invalid) as caught:
            of(hint).encode((value,), {})
        assert words in caught.value.message


def test_an_array_of_a_form_that_asks_for_much_memory_is_refused() -> None:
    form = {"holdfast:array": {"dtype": "U100000000", "shape": [2], "data": ["a", "b"]}}

    with pytest.raises(Invalid, match="more than 268,435,456 bytes"):
        FREE.decode(msgspec.json.encode({"value": form}))


PANDAS = [
    pd.DataFrame({"a": [1, 2], "b": [0.5, nan], "c": ["x", None], "d": [True, False]}),
    pd.DataFrame(
        {"t": pd.to_datetime(["2026-01-01", None]).tz_localize("Europe/Berlin"), "d": pd.to_timedelta([1, 2])}
    ),
    pd.DataFrame({"n": pd.array([1, None], dtype="Int64"), "o": [{"a": (1, 2)}, NOW]}, index=["x", "y"]),
    pd.DataFrame({1: [inf], "two": [2**60]}, index=pd.RangeIndex(1, name="row")),
    pd.DataFrame({"a": [1]}, index=pd.to_datetime(["2026-01-01T00:00:00.000000001"])),
    pd.Series([1.5, nan], name="loss"),
    pd.Series(["a", "b"], index=[3, 4]),
    pd.DataFrame({"a": []}),
]


@pytest.mark.parametrize("table", PANDAS, ids=range(len(PANDAS)))
def test_a_table_of_pandas_arrives_as_it_is(table: Any) -> None:  # noqa: ANN401
    check: Any = pd.testing.assert_frame_equal if table.ndim == 2 else pd.testing.assert_series_equal

    for hint in (Any, type(table)):
        for read in (through(of(hint), table), returned(table, hint)):
            check(read, table)


POLARS = [
    pl.DataFrame({"a": [1, None], "b": [0.5, nan], "c": ["x", None], "d": [True, False], "e": [b"a", None]}),
    pl.DataFrame({"t": [NOW, None], "d": [date(2026, 1, 1), None], "w": [timedelta(1), None]}),
    pl.DataFrame({"l": [[1, 2], []]}, schema={"l": pl.List(pl.Int16)}),
    pl.DataFrame({"a": []}, schema={"a": pl.Float32}),
    pl.Series("loss", [1.5, None, inf]),
]


@pytest.mark.parametrize("table", POLARS, ids=range(len(POLARS)))
def test_a_table_of_polars_arrives_as_it_is(table: Any) -> None:  # noqa: ANN401
    check: Any = (
        polars.testing.assert_frame_equal
        if isinstance(table, pl.DataFrame)
        else polars.testing.assert_series_equal
    )

    for hint in (Any, type(table)):
        for read in (through(of(hint), table), returned(table, hint)):
            check(read, table)


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"a": pd.Categorical(["x"])}),
        pd.DataFrame({"a": [object()]}),
        pd.DataFrame({"a": [1]}, index=pd.MultiIndex.from_tuples([(1, 2)])),
        pl.DataFrame({"a": ["x"]}, schema={"a": pl.Categorical}),
        pl.DataFrame({"a": [{"b": 1}]}),
        pl.DataFrame({"a": [1]}, schema={"a": pl.Datetime("ns")}),
    ],
    ids=range(6),
)
def test_a_table_that_would_change_is_refused_with_what_to_do(table: object) -> None:
    for hint in (Any, type(table)):
        with pytest.raises(Invalid, match="write it to a file, such as Parquet"):
            of(hint).encode((table,), {})


def test_a_model_of_pydantic_is_checked_and_arrives_as_it_was() -> None:
    signature = of(Settings)

    payload = signature.encode((SETTINGS,), {})

    assert msgspec.json.decode(payload)["value"]["since"] == "2026-03-01T12:00:00Z"
    assert signature.decode(payload) == {"value": SETTINGS}
    assert returned(SETTINGS, Settings) == SETTINGS
    assert through(of(list[Settings] | None), [SETTINGS]) == [SETTINGS]
    assert repr(through(signature, Settings(lr=nan))) == repr(Settings(lr=nan))
    strict = Strict(startedAt=NOW, tags=frozenset({1}))
    assert through(of(Strict), strict) == strict
    assert through(of(dict[str, Strict]), {"a": strict}) == {"a": strict}
    assert through(of(Loose), Loose(extra=[1])) == Loose(extra=[1])


def test_a_model_may_be_given_as_a_dict_and_is_refused_where_it_does_not_fit() -> None:
    assert through(of(Settings), {"lr": 1}) == Settings(lr=1.0)
    with pytest.raises(Invalid, match="takes: value: lr: Input should be a valid number"):
        of(Settings).encode(({"lr": "much"},), {})
    with pytest.raises(Invalid, match=r"takes: lr: Input should be a valid number|takes: value: lr: Input"):
        of(Settings).decode(b'{"value":{"lr":"much"}}')


@pytest.mark.parametrize(
    ("hint", "value", "words"),
    [
        (Settings, Narrow(lr=1.0), "would not come back as it is"),
        (Loose, Loose(extra=NOW), "would not come back as it is"),
        (Any, SETTINGS, "it has a Settings, and no annotation says so"),
        (dict[str, Any], {"a": SETTINGS}, "Annotate the parameter with Settings"),
    ],
)
def test_a_model_that_would_change_is_refused(hint: object, value: object, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        of(hint).encode((value,), {})

    assert words in caught.value.message


def test_a_model_that_nothing_annotates_comes_back_as_a_dict() -> None:
    assert returned(Settings(lr=0.5))["lr"] == 0.5  # type: ignore[index]


def test_a_time_of_pandas_is_a_time() -> None:
    stamp = pd.Timestamp("2026-03-01T12:00:00Z")
    fine = pd.Timestamp("2026-03-01T12:00:00.000000001Z")

    assert through(of(datetime), stamp) == through(FREE, stamp) == NOW
    assert through(of(pd.Timestamp), fine) == fine
    assert through(FREE, pd.Timedelta(seconds=1)) == timedelta(seconds=1)
    with pytest.raises(Invalid, match="nanoseconds"):
        FREE.encode((fine,), {})


def test_a_type_that_nobody_can_read_is_refused_at_the_declaration() -> None:
    for hint in (np.ma.MaskedArray, pl.LazyFrame, pl.Expr, pd.Index):
        with pytest.raises(Invalid, match="which cannot be read from JSON"):
            of(hint)


def test_nothing_of_them_is_imported_by_holdfast() -> None:
    code = (
        "import sys, holdfast\n"
        "app = holdfast.App('memory://')\n"
        "@app.job\n"
        "def fit(x, y: float): ...\n"
        "fit.call({1, 2}, float('nan'))\n"
        "print([m for m in ('numpy', 'pandas', 'polars', 'pydantic', 'attr') if m in sys.modules])"
    )

    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stdout == "[]\n"


Limited = Annotated[int, msgspec.Meta(ge=1)]


def test_a_limit_holds_for_a_number_of_numpy_too() -> None:
    with pytest.raises(Invalid, match=r"takes: value: Expected `int` >= 1"):
        of(Limited).encode((np.int64(0),), {})
