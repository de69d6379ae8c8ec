"""Arguments are checked when a job is enqueued, exactly as a worker will read them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Context, Invalid
from holdfast.core.limits import PAYLOAD_BYTES_MAX
from holdfast.runner.places import readable
from holdfast.runner.signature import OtherNames, Signature
from tests.sdk.sample_jobs import resize


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    x: int
    y: int


class Size(msgspec.Struct, forbid_unknown_fields=True):
    width: int
    height: int


class Options(TypedDict, total=False):
    fast: bool


@dataclass
class Picture:
    path: str
    points: tuple[Point, ...]


RESIZE = Signature(resize, "resize")


def wide(
    number: float,
    *,
    at: datetime,
    colour: Colour,
    picture: Picture,
    options: Options,
    size: Annotated[int, msgspec.Meta(ge=1)] = 1,
    mode: Literal["fit", "fill"] = "fit",
    anything: Any = None,  # noqa: ANN401
    whatever: object = None,
    by_number: dict[int, bytes] | None = None,
    _hidden: int = 3,
) -> None: ...


WIDE = Signature(wide, "wide")
ARGUMENTS: dict[str, object] = {
    "number": 1.5,
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "colour": Colour.RED,
    "picture": Picture("a.png", (Point(1, 2),)),
    "options": {"fast": True},
}


def test_only_what_was_given_is_stored() -> None:
    assert bytes(RESIZE.encode(("a",), {})) == b'{"path":"a"}'
    assert bytes(RESIZE.encode((), {"width": 3, "path": "a"})) == b'{"width":3,"path":"a"}'
    assert RESIZE.decode(b'{"path":"a"}') == {"path": "a"}


def test_a_worker_reads_back_what_was_given() -> None:
    more = {
        "anything": [1, None],
        "whatever": {"a": 1.5},
        "by_number": {7: b"\0"},
        "_hidden": 2**70,
    }
    given_ = {**ARGUMENTS, **more}

    assert WIDE.decode(WIDE.encode((), given_)) == given_


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((1,), {}, "resize: path: Expected `str`, got `int`."),
        (("a", "b"), {}, "resize: width: Expected `int`, got `str`."),
        (("a", True), {}, "resize: width: Expected `int`, got `bool`."),
        (("a", 1.5), {}, "resize: width: Expected `int`, got `float`."),
        (("a", None), {}, "resize: width: Expected `int`, got `null`."),
        ((), {}, "resize: the argument path is missing."),
        (("a", 1, 2), {}, "resize: 3 positional arguments were given; it takes at most 2."),
        (("a",), {"path": "b"}, "resize: path is given twice."),
        (("a",), {"widht": 1}, "resize: there is no argument widht; it takes path, width."),
        (("a",), {"ctx": 1}, "resize: there is no argument ctx; it takes path, width."),
        (
            (print,),
            {},
            "resize: path: cannot be written as JSON: a builtin_function_or_method has no JSON form",
        ),
        (("\ud800",), {}, "resize: path: cannot be written as JSON: 'utf-8' codec"),
        (("x" * PAYLOAD_BYTES_MAX,), {}, "resize: what it is given has 262,155 bytes; at most"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    args: tuple[object, ...], kwargs: dict[str, object], words: str
) -> None:
    with pytest.raises(Invalid) as caught:
        RESIZE.encode(args, kwargs)

    assert caught.value.message.startswith(words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": float("nan")}, "wide: size: Expected `int`, got `float`."),
        ({"colour": "green"}, "wide: colour: Invalid enum value 'green'."),
        ({"mode": "stretch"}, "wide: mode: Invalid enum value 'stretch'."),
        ({"size": 0}, "wide: size: Expected `int` >= 1."),
        ({"picture": {"path": "a", "points": [[1]]}}, "wide: picture.points[0]: Expected `object`"),
        ({"options": {"fast": 1}}, "wide: options.fast: Expected `bool`, got `int`."),
        ({"anything": [1, {"a": object()}]}, "wide: anything: cannot be written as JSON: a object has no"),
    ],
)
def test_deep_inside_too(change: dict[str, object], words: str) -> None:
    with pytest.raises(Invalid) as caught:
        WIDE.encode((), {**ARGUMENTS, **change})

    assert caught.value.message.startswith(words)


def test_what_holds_itself_is_refused() -> None:
    ring: list[object] = []
    ring.append(ring)

    with pytest.raises(Invalid, match="wide: anything: cannot be written as JSON"):
        WIDE.encode((), {**ARGUMENTS, "anything": ring})


def test_an_argument_without_a_place_needs_its_name() -> None:
    with pytest.raises(Invalid, match="2 positional arguments were given; it takes at most 1"):
        WIDE.encode((1.5, ARGUMENTS["at"]), {})


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"null", "resize: Expected `object`, got `null`."),
        (b'["a"]', "resize: Expected `object`, got `array`."),
        (b'{"path":"a","width":"b"}', "resize: width: Expected `int`, got `str`."),
        (b'{"path":"a","old":1}', "resize: there is no argument old; it takes path, width."),
        (b'{"width":1}', "resize: the argument path is missing."),
        (b"{", "resize: Input data was truncated."),
        (b'{"path":"\xff"}', "resize: "),
    ],
)
def test_a_payload_of_other_code_is_refused_in_a_sentence(payload: bytes, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        RESIZE.decode(payload)

    assert caught.value.message.startswith(words)


@pytest.mark.parametrize(
    ("payload", "other_names"),
    [
        (b'{"path":"a","old":1}', True),
        (b'{"width":1}', True),
        (b'{"path":"a","size":{"width":1}}', True),
        (b'{"path":"a","size":{"width":1,"height":2,"depth":3}}', True),
        (b'{"path":"a","width":"b"}', False),
        (b'{"path":"a","size":{"width":1,"height":"tall"}}', False),
        (b'["a"]', False),
        (b"{", False),
    ],
)
def test_names_of_other_code_are_told_from_values_that_do_not_fit(payload: bytes, other_names: bool) -> None:
    def crop(path: str, width: int = 1, size: Size | None = None) -> None: ...

    with pytest.raises(Invalid) as caught:
        Signature(crop, "crop").decode(payload)

    assert isinstance(caught.value, OtherNames) is other_names


def test_whoever_calls_it_wrongly_is_told_that_it_is_invalid() -> None:
    with pytest.raises(Invalid) as caught:
        RESIZE.encode(("a",), {"widht": 1})

    assert type(caught.value) is Invalid


def test_a_function_without_arguments_takes_none() -> None:
    def nothing(ctx: Context) -> None: ...

    signature = Signature(nothing, "nothing")

    assert bytes(signature.encode((), {})) == b"{}"
    with pytest.raises(Invalid, match="nothing: there is no argument a; it takes none"):
        signature.encode((), {"a": 1})


def test_what_has_no_annotation_takes_anything() -> None:
    def free(first, second=2): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    signature = Signature(free, "free")

    assert signature.result_type is Any
    assert signature.decode(signature.encode(({"a": [1]},), {})) == {"first": {"a": [1]}}


TEXT = st.text(st.characters(codec="utf-8"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


def take(value: object, width: int = 1) -> None: ...


TAKE = Signature(take, "take")


@given(JSON, st.integers(-(2**70), 2**70))
def test_whatever_is_json_arrives_as_it_was_given(value: object, width: int) -> None:
    assert TAKE.decode(TAKE.encode((value, width), {})) == {"value": value, "width": width}


def test_a_result_comes_back_as_it_was_declared() -> None:
    stored = {"7": {"x": 1, "y": 2}}

    assert readable(stored, dict[int, Point]) == {7: Point(1, 2)}
    assert readable("2026-01-01T00:00:00Z", datetime) == datetime(2026, 1, 1, tzinfo=UTC)
    assert readable(stored, Any) == stored
    assert readable(None, None) is None
