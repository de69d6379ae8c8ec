"""A spec is refused with the first thing that is wrong with it, before anything is stored."""

from datetime import datetime, timedelta

import pytest
from lives import NOW, enqueue
from msgspec import Raw
from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.core.lifecycle import decide
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec, check_json, check_spec, check_value

SECOND = timedelta(seconds=1)


def json(text: bytes) -> Spec:
    return Spec(payload=Raw(text))


@pytest.mark.parametrize(
    "spec",
    [
        Spec(),
        Spec(region="eu-west", lock="disk:1", executor="k8s", replayed_from="a", resumed_from="b"),
        Spec(delay=timedelta(days=366), timeout=SECOND, ttl=SECOND),
        Spec(delay=timedelta()),
        Spec(run_at=NOW),
        Spec(priority=0),
        Spec(priority=9),
        Spec(labels={str(n): "x" for n in range(64)}, name="x" * 256),
        json(b"[" * 64 + b"]" * 64),
        json(b"[[],[],[],[]" + b",[]" * 100 + b"]"),
        json(b'"' + b"x" * (256 * 1024 - 2) + b'"'),
    ],
)
def test_a_sane_spec_is_given_back(spec: Spec) -> None:
    assert check_spec(spec) is spec


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (Spec(kind=""), "kind is empty"),
        (Spec(queue="a b"), "queue"),
        (Spec(region="eu west"), "region"),
        (Spec(lock="a/b"), "lock"),
        (Spec(executor="k 8"), "executor"),
        (Spec(executor="", region="eu"), "executor is empty"),
        (Spec(executor=""), "executor is empty"),
        (Spec(lock=""), "lock is empty"),
        (Spec(replayed_from="a/b"), "replayed_from"),
        (Spec(resumed_from="a/b"), "resumed_from"),
        (Spec(lease=0.5 * SECOND), "lease"),
        (Spec(retry=Retry(max_failures=0)), "max_failures"),
        (Spec(delay=SECOND, run_at=NOW), "not both"),
        (Spec(delay=-SECOND), "delay"),
        (Spec(delay=timedelta(days=367)), "delay"),
        (Spec(run_at=datetime(2030, 1, 1)), "time zone"),
        (Spec(timeout=timedelta()), "timeout"),
        (Spec(ttl=-SECOND), "ttl"),
        (Spec(ttl=timedelta.max), "ttl"),
        (Spec(priority=-1), "priority"),
        (Spec(priority=10), "priority"),
        (Spec(promised_outputs=-1), "negative"),
        (Spec(labels={str(n): "x" for n in range(65)}), "labels"),
        (Spec(labels={"x": "y" * 256}), "labels"),
        (Spec(name="x" * 257), "name"),
        (Spec(name="\udcff"), "name"),
        (Spec(labels={"x": "\udcff"}), "label"),
        (json(b'"' + b"x" * (256 * 1024) + b'"'), "bytes"),
        (json(b"[" * 65 + b"]" * 65), "nested 65 deep"),
        (json(b""), "not JSON"),
        (json(b"{"), "not JSON"),
        (json(b'"\xff"'), "not JSON"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(spec: Spec, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        check_spec(spec)


def test_brackets_inside_a_string_are_not_depth() -> None:
    check_json(b'"' + b"[" * 100 + b'"', "payload", 1000)
    check_json(b'["\\"' + b"{" * 100 + b'"]', "payload", 1000)


@pytest.mark.parametrize("spec", [Spec(ttl=timedelta.max), Spec(retry=Retry(factor=1e300))])
def test_a_spec_that_passes_its_check_can_be_decided_on(spec: Spec) -> None:
    try:
        check_spec(spec)
    except Invalid:
        return

    decide(enqueue(spec), None, NOW)


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ({"a": (1, 2)}, {"a": [1, 2]}),
        (b"\xff", "/w=="),
        (NOW, "2026-01-01T00:00:00Z"),
        (float("nan"), None),
        (0, 0),
    ],
)
def test_a_value_comes_back_as_json_says_it(value: object, back: object) -> None:
    assert check_value(value, "result", 100) == back


def _endless() -> object:
    loop: list[object] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize("value", [object(), "\udcff", _endless(), {1.5: object()}, "x" * 200])
def test_a_value_that_json_cannot_say_is_invalid(value: object) -> None:
    with pytest.raises(Invalid, match="result"):
        check_value(value, "result", 100)


def test_specs_are_equal_by_their_words() -> None:
    first, second = json(b'{"width":640}'), json(b'{"width":640}')

    assert first == second
    assert first != replace(first, payload=Raw(b'{"width":641}'))
