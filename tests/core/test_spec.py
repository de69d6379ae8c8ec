"""A spec is refused with the first thing that is wrong with it, before anything is stored."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from msgspec import Raw
from msgspec.structs import asdict, replace

from holdfast.core.catalogue import Stage
from holdfast.core.errors import Invalid
from holdfast.core.job import Failure, Progress
from holdfast.core.lifecycle import decide
from holdfast.core.outputs import File, OutputPromise
from holdfast.core.retry import Retry
from holdfast.core.spec import (
    COMMAND_KIND,
    JOB_V1_KIND,
    Spec,
    check_json,
    check_spec,
    check_struct,
    check_value,
)
from tests.core.sample_jobs import NOW, enqueue

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
        Spec(timeout=timedelta(days=3660), ttl=timedelta(days=3660)),
        Spec(run_at=NOW),
        Spec(priority=0),
        Spec(priority=9),
        Spec(labels={str(n): "x" for n in range(64)}, name="x" * 256),
        Spec(labels={"x": "y" * 255}),
        Spec(promised_outputs=1),
        json(b"1"),
        json(b"[" * 64 + b"]" * 64),
        json(b"[[]," + b"[" * 63 + b"]" * 64),
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
        (Spec(queue="a b"), "queue 'a b'"),
        (Spec(region="eu west"), "region 'eu west'"),
        (Spec(lock="a/b"), "lock 'a/b'"),
        (Spec(executor="k 8"), "executor 'k 8'"),
        (Spec(executor="", region="eu"), "executor is empty"),
        (Spec(executor=""), "executor is empty"),
        (Spec(lock=""), "lock is empty"),
        (Spec(replayed_from="a/b"), "replayed_from 'a/b'"),
        (Spec(resumed_from="a/b"), "resumed_from 'a/b'"),
        (Spec(lease=0.5 * SECOND), "A lease lasts"),
        (Spec(retry=Retry(max_failures=0)), "max_failures"),
        (Spec(delay=SECOND, run_at=NOW), "Give a delay or a time to run at, not both"),
        (Spec(delay=timedelta(), run_at=NOW), "Give a delay or a time to run at, not both"),
        (Spec(delay=-SECOND), "A delay is"),
        (Spec(delay=timedelta(days=367)), "A delay is"),
        (Spec(run_at=datetime(2030, 1, 1)), "The time to run at needs a time zone"),
        (Spec(timeout=timedelta()), "timeout is longer"),
        (Spec(ttl=-SECOND), "ttl is longer"),
        (Spec(ttl=timedelta.max), "ttl is longer"),
        (Spec(priority=-1), "priority is from"),
        (Spec(priority=10), "priority is from"),
        (Spec(priority=1.5), "priority and promised_outputs are whole"),  # type: ignore[arg-type]
        (Spec(priority=True), "priority and promised_outputs are whole"),
        (Spec(promised_outputs=1.5), "priority and promised_outputs are"),  # type: ignore[arg-type]
        (Spec(promised_outputs=-1), "A job cannot promise"),
        (Spec(labels={str(n): "x" for n in range(65)}), "At most 64 labels"),
        (Spec(labels={"a": "b", "x": "y" * 256}), "At most 64 labels of 256"),
        (Spec(name="x" * 257), "A name has"),
        (Spec(name="\udcff"), "A name contains"),
        (Spec(labels={"x": "\udcff"}), "A label contains"),
        (Spec(labels={"\udcff": "x"}), "A label contains"),
        (json(b'"' + b"x" * (256 * 1024) + b'"'), "payload has 262,146 bytes"),
        (json(b"[" * 65 + b"]" * 65), "payload is nested 65 deep"),
        (json(b'{"a":' * 65 + b"1" + b"}" * 65), "payload is nested 65 deep"),
        (json(b""), "payload is not JSON"),
        (json(b"{"), "payload is not JSON"),
        (json(b'"\xff"'), "payload is not JSON"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(spec: Spec, words: str) -> None:
    with pytest.raises(Invalid, match=f"^{words}"):
        check_spec(spec)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (Spec(priority=True), "priority and promised_outputs are whole"),
        (Spec(promised_outputs=False), "priority and promised_outputs are whole"),
        (Spec(retry=Retry(max_failures=0)), "max_failures and max_crashes are"),
        (Spec(run_at=datetime(2030, 1, 1)), "The time to run at needs a time zone"),
        (Spec(name="x" * 257), "A name has 257"),
        (json(b"{"), "payload is not JSON"),
        (json(b"[" * 65 + b"]" * 65), "payload is nested 65 deep"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_after_a_right_one_too(spec: Spec, words: str) -> None:
    checked = check_spec(Spec(priority=int(spec.priority)))

    with pytest.raises(Invalid, match=f"^{words}"):
        check_spec(spec, checked)


def test_a_promise_that_is_only_equal_to_one_that_was_checked_is_refused() -> None:
    promise = OutputPromise(manifest="0" * 64, entries=1, store="s-1")
    checked = check_spec(Spec(outputs=promise))

    with pytest.raises(Invalid, match=r"^OutputPromise is not valid"):
        check_spec(replace(checked, outputs=replace(promise, entries=True)), checked)


def test_what_was_checked_before_is_not_checked_again() -> None:
    terms, payload = Spec(kind="not checked!"), json(b"nor this")

    assert check_spec(replace(terms, payload=json(b"1").payload), terms).kind == terms.kind
    assert check_spec(replace(payload), payload) == payload
    with pytest.raises(Invalid, match="payload is not JSON"):
        check_spec(replace(terms, payload=payload.payload), terms)


def test_a_spec_like_one_that_was_checked_is_given_back_normalised() -> None:
    first = check_spec(Spec(kind="resize", payload=Raw(b"[1]"), run_at=NOW))
    elsewhere = NOW.astimezone(timezone(timedelta(hours=2)))

    assert check_spec(replace(first), first) == first
    assert bytes(check_spec(replace(first, payload=Raw(b" [2]\n")), first).payload) == b"[2]"
    assert check_spec(replace(first, run_at=elsewhere), first).run_at.tzinfo is UTC  # type: ignore[union-attr]


LISTED = OutputPromise(manifest="0" * 64, entries=8, store="s-1")


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        (Spec(outputs=OutputPromise(files=(File("a"), File("b/*", 4)))), 2),
        (Spec(kind="fit", outputs=OutputPromise(names=("model",), store="s-1")), 1),
        (Spec(kind="fit", outputs=LISTED), 8),
        (Spec(outputs=LISTED, promised_outputs=8), 8),
    ],
)
def test_what_a_job_promises_is_counted(spec: Spec, count: int) -> None:
    checked = check_spec(spec)

    assert checked == replace(spec, promised_outputs=count)
    assert check_spec(checked) == checked


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (Spec(outputs=OutputPromise()), "A promise names at least one output"),
        (Spec(outputs=LISTED, promised_outputs=7), "promised_outputs is 8 here, or left out"),
        (Spec(outputs=LISTED, promised_outputs=-1), "promised_outputs is 8 here, or left out"),
        (
            Spec(kind="fit", outputs=OutputPromise(files=(File("a"),))),
            "Plain paths are for commands",
        ),
        (Spec(outputs=OutputPromise(files=("a",))), f"{OutputPromise.__name__} is not valid"),  # type: ignore[arg-type]
        (Spec(outputs=OutputPromise(files=(File(3),))), f"{OutputPromise.__name__} is not valid"),  # type: ignore[arg-type]
        (Spec(outputs=replace(LISTED, entries=1.5)), f"{OutputPromise.__name__} is not valid"),
        (Spec(outputs="a"), "str is not valid"),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_with_a_promise_is_said(spec: Spec, words: str) -> None:
    with pytest.raises(Invalid, match=f"^{words}"):
        check_spec(spec)


def test_the_place_of_a_promise_is_made_fit_to_keep() -> None:
    kept = check_spec(Spec(outputs=replace(LISTED, place="file:///\udcff/\0"))).outputs

    assert kept is not None
    assert kept.place == "file:///?/?"


def test_specs_that_promise_other_outputs_are_other_specs() -> None:
    first, second = (check_spec(Spec(outputs=LISTED)) for _ in range(2))
    other = check_spec(Spec(outputs=replace(LISTED, manifest="1" * 64)))

    assert first == second
    assert first != other != check_spec(Spec(promised_outputs=8))


@pytest.mark.parametrize("payload", [b" [1]", b"[1]\n", b"\t[1]\r"])
def test_space_around_a_payload_does_not_make_it_another(payload: bytes) -> None:
    assert check_spec(json(payload)) == json(b"[1]")


def test_a_spec_of_nothing_asks_for_a_command_on_the_default_queue() -> None:
    assert asdict(Spec()) == {
        **dict.fromkeys(Spec.__struct_fields__),
        "kind": "command",
        "queue": "default",
        "payload": Raw(b"null"),
        "priority": 5,
        "lease": timedelta(minutes=1),
        "retry": Retry(),
        "labels": {},
        "promised_outputs": 0,
    }


def test_the_kinds_that_stored_jobs_have_keep_their_names() -> None:
    assert (COMMAND_KIND, JOB_V1_KIND) == ("command", "job.v1")


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
    with pytest.raises(Invalid, match=r"^result "):
        check_value(value, "result", 100)


def test_a_struct_of_the_right_types_comes_back_as_it_was() -> None:
    failure = Failure(message="no such model", exit_code=3, stage=Stage.INPUT)

    assert check_struct(failure) == failure


def test_the_texts_of_a_struct_are_made_fit_to_keep() -> None:
    kept = check_struct(Failure(message="broken \udcff text", code="x" * 5000))

    assert kept.message == "broken ? text"
    assert len(kept.code) <= 4096


@pytest.mark.parametrize(
    "value",
    [
        Progress(done="many"),  # type: ignore[arg-type]
        Progress(done=1, total=object()),  # type: ignore[arg-type]
        Progress(done=1, message={"\udcff": 1}),  # type: ignore[arg-type]
        [1],
    ],
)
def test_a_struct_that_could_not_be_read_back_is_invalid(value: Progress) -> None:
    with pytest.raises(Invalid, match=f"^{type(value).__name__} is not valid"):
        check_struct(value)


def test_specs_are_equal_by_their_words() -> None:
    first, second = json(b'{"width":640}'), json(b'{"width":640}')

    assert first == second
    assert first != replace(first, payload=Raw(b'{"width":641}'))


@pytest.mark.parametrize("fold", [0, 1])
def test_a_time_to_run_at_is_kept_in_utc(fold: int) -> None:
    """In the hour that comes twice, a moment of another zone does not even equal itself when read back."""
    moment = datetime(2027, 10, 31, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold)

    kept = check_spec(Spec(run_at=moment)).run_at

    assert kept is not None
    assert kept.tzinfo is UTC
    assert kept == datetime(2027, 10, 31, fold, 30, tzinfo=UTC)


def test_a_time_to_run_at_beyond_all_calendars_is_refused() -> None:
    moment = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))

    with pytest.raises(Invalid, match="out of range"):
        check_spec(Spec(run_at=moment))


@pytest.mark.timeout(20)
def test_strings_that_never_end_are_refused_in_no_time() -> None:
    """65 brackets make us count, and a count that tries again at every quote took minutes."""
    for tail in (b'\\"' * 100_000, b'"' * 200_001, b"\\" * 200_001):
        with pytest.raises(Invalid, match="payload"):
            check_spec(Spec(payload=Raw(b"[" * 65 + b'"' + tail)))
