"""Arguments of a job: one safe line, and the rule by which jobs are found by them."""

from datetime import date

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.arguments import (
    CALL_CHARACTERS_MAX,
    argument_text,
    describe_call,
    has_arguments,
)
from holdfast.core.errors import Invalid
from holdfast.core.spec import Spec

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def spec(arguments: object, kind: str = "fit") -> Spec:
    return Spec(kind=kind, payload=msgspec.Raw(msgspec.json.encode(arguments)))


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"alpha": 0.3, "seed": 7}, "fit(alpha=0.3, seed=7)"),
        ({}, "fit"),
        ({"to": "ada", "dry": True, "cc": None}, "fit(to='ada', dry=True, cc=None)"),
        ({"rows": [1, 2], "by": {"a": "x"}}, "fit(rows=[1, 2], by={'a': 'x'})"),
        ({"rows": list(range(100))}, "fit(rows=[0, 1, 2, 3, 4, 5, ...])"),
        ({"a": "x\x1b[2J\n\u202e"}, "fit(a='x\\x1b[2J\\n\\u202e')"),
        ({"no name\n": 1}, "fit('no name\\n'=1)"),
        ([1, 2], "fit([1, 2])"),
        ({"lr": {"holdfast:float": "NaN"}}, "fit(lr=NaN)"),
        ([{"holdfast:datetime": "2026-03-01T12:00:00Z"}], "fit([2026-03-01T12:00:00Z])"),
        ({"at": {"holdfast:path": "a b\n"}}, "fit(at='a b\\n')"),
        ({"a": {"holdfast:tuple": [1, {"holdfast:float": "-Infinity"}]}}, "fit(a=(1, -Infinity))"),
        ({"a": {"holdfast:set": [2, 1]}, "b": {"holdfast:frozenset": ["x"]}}, "fit(a={1, 2}, b={'x'})"),
        ({"a": {"holdfast:set": [[1]]}}, "fit(a=set(…))"),
        ({"a": {"holdfast:array": {"dtype": "int64"}}}, "fit(a=array(…))"),
        ({"a": {"holdfast:\x1b": 1}, "b": {"holdfast:tuple": 1}}, "fit(a=1, b=tuple(…))"),
        ({"a": {"b": {"holdfast:float": "NaN"}, "c": 1}}, "fit(a={'b': NaN, 'c': 1})"),
        (None, "fit"),
    ],
)
def test_a_call_is_shown_as_it_would_be_written(arguments: object, shown: str) -> None:
    assert describe_call(spec(arguments)) == shown


@pytest.mark.parametrize("kind", ["command", "job.v1"])
def test_commands_are_no_calls(kind: str) -> None:
    assert describe_call(spec({"argv": ["echo"]}, kind)) == kind
    assert not has_arguments(spec({"argv": "echo"}, kind), {"argv": "echo"})


def test_a_payload_that_cannot_be_read_is_not_shown() -> None:
    broken = Spec(kind="fit", payload=msgspec.Raw(b"{"))

    assert describe_call(broken) == "fit"
    assert not has_arguments(broken, {"seed": "7"})


def test_another_payload_may_stand_in_for_that_of_the_job() -> None:
    assert describe_call(spec({"key": "hf_secret"}), b'{"key": "***"}') == "fit(key='***')"


def test_a_long_call_is_shortened() -> None:
    many = describe_call(spec({f"argument_{n}": "x" * 50 for n in range(1000)}))
    assert len(many) == CALL_CHARACTERS_MAX
    assert many.startswith("fit(argument_0='xxx")
    assert many.endswith("…)")

    long = describe_call(spec({"text": "x" * 100_000, "seed": 7}))
    assert len(long) < 100
    assert long.endswith("xxx', seed=7)")


@settings(max_examples=40)
@given(st.dictionaries(st.text(), JSON) | JSON)
def test_whatever_it_is_given_a_call_is_one_short_printable_line(arguments: object) -> None:
    shown = describe_call(spec(arguments))

    assert len(shown) <= CALL_CHARACTERS_MAX
    assert shown.isprintable()


@pytest.mark.parametrize(
    ("value", "text", "found"),
    [
        (7, "7", True),
        ("7", "7", True),
        (7, "7.0", True),
        (0.3, "0.3", True),
        (0.3, ".3", False),
        (7, "8", False),
        (7, '"7"', False),
        ("7", '"7"', True),
        (True, "true", True),
        (True, "True", True),
        (True, "1", False),
        (1, "true", False),
        (None, "null", True),
        (None, "None", True),
        ("None", "None", True),
        (False, "False", True),
        ([1, 2], "[1,2]", True),
        ({"a": 1}, '{"a": 1}', True),
        ("ada", "ada", True),
        ("ada", "ad", False),
        (7, "{", False),
        ({"holdfast:float": "NaN"}, "NaN", True),
        ({"holdfast:uuid": "a"}, "b", False),
        ({"a": "b"}, "b", False),
    ],
)
def test_jobs_are_found_by_an_argument_as_it_is_typed(value: object, text: str, found: bool) -> None:
    assert has_arguments(spec({"seed": value, "other": 1}), {"seed": text}) is found


def test_all_arguments_have_to_be_there() -> None:
    job = spec({"seed": 7, "alpha": 0.3})

    assert has_arguments(job, {"seed": "7", "alpha": "0.3"})
    assert not has_arguments(job, {"seed": "7", "alpha": "0.4"})
    assert not has_arguments(job, {"seed": "7", "beta": "0.3"})
    assert not has_arguments(spec([7]), {"seed": "7"})


@pytest.mark.parametrize(
    ("value", "text"),
    [(7, "7"), ("7", "7"), (0.3, "0.3"), (None, "null"), ([1], "[1]"), (date(2026, 1, 2), "2026-01-02")],
)
def test_a_value_is_found_by_its_text(value: object, text: str) -> None:
    assert argument_text("seed", value) == text
    assert has_arguments(spec({"seed": value}), {"seed": text})


def test_a_value_that_no_job_can_have_is_refused() -> None:
    with pytest.raises(Invalid, match="arguments: seed: cannot be written as JSON"):
        argument_text("seed", object())
