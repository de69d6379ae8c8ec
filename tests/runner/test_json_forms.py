"""Values that JSON has no word for arrive as they were given, with an annotation or without."""

import dataclasses
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from io import StringIO
from math import inf, isnan, nan
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import msgspec
import pandas as pd  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Invalid
from holdfast.runner.json_forms import Unencodable, value_of
from holdfast.runner.places import readable
from holdfast.runner.signature import Signature


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Mode(StrEnum):
    FAST = "fast"


class Pair(NamedTuple):
    left: int
    right: float


@dataclasses.dataclass
class Point:
    x: float
    extra: Any = None


@dataclasses.dataclass(eq=False)
class Bare:
    at: datetime
    extra: Any = None


@attrs.define
class Box:
    size: Decimal
    tags: set[str]


class Renamed(msgspec.Struct, rename="camel"):
    long_name: Any
    at: date


class Opaque:
    def __repr__(self) -> str:
        return "<an opaque thing>"


NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
ID = UUID("00000000-0000-4000-8000-000000000001")
PLAIN: list[object] = [
    NOW,
    datetime(2026, 3, 1, 12, 30, 0, 7),
    date(2026, 3, 1),
    time(1, 2, 3),
    timedelta(days=1, microseconds=3),
    Decimal("1.10"),
    ID,
    b"\xff\0",
    Path("a/b.png"),
    (1, "a", (2.5, None)),
    {1, 2},
    frozenset({"a"}),
    complex(1, -2),
    {1: "a", (1, 2): {b"k": NOW}},
    {"holdfast:float": "NaN"},
    {"a": [{"b": (1, {2})}]},
    inf,
    [-inf, 1.5],
]


def free(value, other=1): ...  # type: ignore[no-untyped-def]  # noqa: ANN001


def of(hint: object) -> Signature:
    def takes(value): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    takes.__annotations__["value"] = hint
    return Signature(takes, "takes")


def through(signature: Signature, value: object) -> object:
    return signature.decode(signature.encode((value,), {}))["value"]


def returned(value: object, hint: Any = Any) -> object:  # noqa: ANN401
    """Return a result as its caller reads it, out of the record of the job."""

    def gives(): ...  # type: ignore[no-untyped-def]  # noqa: ANN202

    gives.__annotations__["return"] = hint
    place = Signature(gives, "gives").result_place
    return readable(msgspec.json.decode(place.result(value)), hint)


FREE = Signature(free, "free")


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_a_parameter_without_annotation_loses_no_type(value: object) -> None:
    read = through(FREE, value)

    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_a_result_without_annotation_loses_no_type(value: object) -> None:
    read = returned(value)

    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("hint", "value", "form"),
    [
        (datetime, NOW, b'"2026-03-01T12:30:00Z"'),
        (timedelta, timedelta(minutes=5), b'"PT300S"'),
        (Decimal, Decimal("1.10"), b'"1.10"'),
        (set[int], {1}, b"[1]"),
        (tuple[int, ...], (1, 2), b"[1,2]"),
        (UUID, ID, b'"00000000-0000-4000-8000-000000000001"'),
        (bytes, b"a", b'"YQ=="'),
        (Colour, Colour.RED, b'"red"'),
        (Path, Path("a/b"), b'"a/b"'),
        (PurePosixPath | None, PurePosixPath("a"), b'"a"'),
        (list[Path], [Path("a")], b'["a"]'),
        (complex, 1j, b"[0.0,1.0]"),
        (Pair, Pair(1, 2.5), b"[1,2.5]"),
        (Point, Point(1.5), b'{"x":1.5,"extra":null}'),
        (Box, Box(Decimal(1), {"a"}), b'{"size":"1","tags":["a"]}'),
        (dict[str, Any], {"a": 1}, b'{"a":1}'),
        (tuple, (1, 2), b"[1,2]"),
    ],
)
def test_with_an_annotation_the_form_is_plain(hint: object, value: object, form: bytes) -> None:
    signature = of(hint)

    payload = signature.encode((value,), {})

    assert bytes(payload) == b'{"value":%s}' % form
    assert signature.decode(payload) == {"value": value}
    assert returned(value, hint) == value


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (dict[str, Any], {"since": NOW}),
        (Point, Point(nan, extra={1, 2})),
        (Bare, Bare(NOW, extra=(1, NOW))),
        (list[Any], [Decimal(1), "1"]),
        (Renamed, Renamed({NOW}, date(2026, 1, 1))),
        (dict[str, Point], {"a": Point(inf)}),
        (Pair, Pair(1, nan)),
        (float | None, nan),
        (dict[int, float], {1: -inf}),
        (float | dict[str, str], nan),
    ],
)
def test_where_an_annotation_leaves_a_type_open_it_is_kept_too(hint: object, value: object) -> None:
    assert _alike(through(of(hint), value), value)
    assert _alike(returned(value, hint), value)


def _alike(one: object, other: object) -> bool:
    if isinstance(one, Bare) and isinstance(other, Bare):
        return (one.at, one.extra) == (other.at, other.extra)
    return repr(one) == repr(other)


def test_nan_has_one_form_everywhere() -> None:
    form = {"holdfast:float": "NaN"}

    def train(lr: float, more: dict[str, float]) -> dict[str, float]:
        return more

    signature = Signature(train, "train")
    payload = signature.encode((nan,), {"more": {"a": nan, "b": 1.0}})

    assert msgspec.json.decode(payload) == {"lr": form, "more": {"a": form, "b": 1.0}}
    read = signature.decode(payload)
    assert isnan(read["lr"])  # type: ignore[arg-type]
    document = signature.result_place.result({"loss": nan, "best": -inf})
    assert msgspec.json.decode(document) == {"loss": form, "best": {"holdfast:float": "-Infinity"}}
    assert (
        repr(readable(msgspec.json.decode(document), signature.result_type)) == "{'loss': nan, 'best': -inf}"
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Point(1), "free: value: cannot be written as JSON: it has a Point, and no annotation says so"),
        ([Box(Decimal(1), set())], "Annotate the parameter with Box, or give plain values"),
        (Colour.RED, "it has a Colour, and no annotation says so"),
        (Pair(1, 2), "it has a Pair, and no annotation says so"),
        (Opaque(), "a Opaque has no JSON form: give its data"),
        ({"a": {Opaque()}}, "a Opaque has no JSON form: give its data"),
    ],
)
def test_what_would_lose_its_class_is_refused_before_anything_runs(value: object, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        FREE.encode((value,), {})

    assert words in caught.value.message


def test_a_union_that_json_cannot_tell_apart_is_refused_at_the_declaration() -> None:
    with pytest.raises(Invalid, match="Take one of them; only None may stand beside it"):
        of(str | Path)


def test_a_dict_that_looks_like_a_form_is_a_dict() -> None:
    for name in ("float", "stored", "unencodable", "anything"):
        value = {f"holdfast:{name}": {"a": 1}}
        for hint in (Any, dict[str, Any], dict[str, dict[str, int]]):
            assert returned(value, hint) == value
        assert through(FREE, value) == value


@pytest.mark.parametrize(("value", "plain"), [(Level.HIGH, 3), (Mode.FAST, "fast"), (bytearray(b"a"), b"a")])
def test_a_number_or_text_of_a_class_is_the_number_or_text(value: object, plain: object) -> None:
    assert through(FREE, value) == plain
    assert through(of(dict[str, Any]), {"a": [value]}) == {"a": [plain]}


def test_a_value_of_a_subclass_is_read_as_what_the_annotation_says() -> None:
    class Seconds(float): ...

    class Name(str):
        __slots__ = ()

    assert through(of(float), Seconds(1.5)) == 1.5
    assert through(of(str), Name("ana")) == "ana"
    assert through(FREE, [Seconds(nan), Name("ana")])[1] == "ana"  # type: ignore[index]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (Point(1.5, NOW), {"x": 1.5, "extra": NOW}),
        (Renamed(1, date(2026, 1, 1)), {"longName": 1, "at": date(2026, 1, 1)}),
        (Colour.RED, "red"),
        (Pair(1, 2), (1, 2)),
    ],
)
def test_a_result_that_nothing_annotates_comes_back_without_its_class(value: object, read: object) -> None:
    assert returned(value) == read


def test_only_the_part_of_a_result_without_a_form_is_lost() -> None:
    def gives() -> dict[str, Any]:
        return {}

    document = Signature(gives, "gives").result_place.result({"loss": 0.5, "model": Opaque()})

    stored = msgspec.json.decode(document)
    assert stored["loss"] == 0.5
    assert stored["model"]["holdfast:unencodable"]["repr"] == "<an opaque thing>"
    with pytest.raises(Unencodable, match=r"Opaque, which has no JSON form\. It was <an opaque thing>"):
        value_of(stored)


def test_of_a_table_that_has_no_form_all_rows_are_kept() -> None:
    frame = pd.DataFrame({"g": ["a", "b"] * 600, "h": range(1200), "v": 1.5}).groupby(["g", "h"]).mean()

    with pytest.raises(Unencodable, match="DataFrame, which has no JSON form") as caught:
        returned({"loss": 0.5, "table": frame})

    assert caught.value.csv is not None
    assert pd.read_csv(StringIO(caught.value.csv), index_col=["g", "h"]).equals(frame)
    assert "csv" in caught.value.advice


class Silent:
    def __repr__(self) -> str:
        raise SystemExit


def ring() -> list[object]:
    own: list[object] = []
    own.append(own)
    return own


@pytest.mark.parametrize(
    "make", [Silent, ring, lambda: chr(0xD800), lambda: msgspec.Raw(b"{"), lambda: "x".join]
)
def test_whatever_is_returned_something_is_kept(make: Callable[[], object]) -> None:
    with pytest.raises(Unencodable, match="which has no JSON form"):
        returned(make())


@pytest.mark.parametrize(
    "form",
    [
        {"holdfast:float": "two"},
        {"holdfast:float": []},
        {"holdfast:datetime": "noon"},
        {"holdfast:set": [[1]]},
        {"holdfast:dict": [1]},
        {"holdfast:array": {"dtype": "O", "shape": [1], "data": [1]}},
        {"holdfast:array": {}},
        {"holdfast:of_tomorrow": 1},
    ],
)
def test_a_form_that_is_damaged_is_invalid(form: object) -> None:
    with pytest.raises(Invalid, match="free: "):
        FREE.decode(msgspec.json.encode({"value": form}))
    with pytest.raises(msgspec.ValidationError):
        readable(form, Any)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"))
    | st.binary()
    | st.datetimes()
    | st.dates()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner) | st.tuples(inner)
    ),
    max_leaves=10,
)


@given(ANYTHING)
def test_every_value_of_python_arrives_as_it_was_given(value: object) -> None:
    for read in (through(FREE, value), returned(value)):
        assert read == value
        assert type(read) is type(value)
