"""What a job may promise, and how often it is looked for."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.core.outputs import (
    OWNER_GRACE,
    RECHECK_WAIT_MAX,
    VALIDATION_TIMEOUT,
    File,
    Output,
    OutputPromise,
    ValidationProgress,
    ValidationResult,
    check_output_name,
    check_promise,
    check_validation_result,
    is_being_validated,
    recheck_wait,
    retry_wait,
    to_json_value,
    validation_due_at,
)
from tests.core.sample_jobs import NOW

SHA = "0123456789abcdef" * 4
NAMED = OutputPromise(names=("model",), store="s-1")
LISTED = OutputPromise(manifest=SHA, entries=8, store="s-1")
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def files(*each: File) -> OutputPromise:
    return OutputPromise(files=each)


@pytest.mark.parametrize(
    "promise",
    [
        files(File("results/model.pt")),
        files(File("a b/ü.csv"), File("run-7/*.parquet", 4)),
        files(File("x" * 1024, 1, 0, SHA)),
        files(File("a", 10_000_000, 2**63 - 1)),
        files(*(File(f"f-{n}") for n in range(100))),
        files(*(File(f"{n:x}" * 1024) for n in range(16))),
        NAMED,
        replace(NAMED, names=("a", "_b", "C.d-e_9", "x" * 128)),
        replace(NAMED, store="x" * 128, place="y" * 4096),
        LISTED,
        replace(LISTED, entries=10_000_000, names=("model",), files=(File("a"),)),
        replace(LISTED, entries=1, resume_attempt=2, original_total=8),
    ],
)
def test_a_promise_of_outputs_is_given_back(promise: OutputPromise) -> None:
    assert check_promise(promise, plain=True) is promise


@pytest.mark.parametrize(
    ("promise", "words"),
    [
        (OutputPromise(), "A promise names at least one output."),
        (OutputPromise(store="s-1", manifest=SHA), "A promise names at least one output."),
        (files(*(File(f"f-{n}") for n in range(101))), "At most 100 outputs are named one by one"),
        (
            OutputPromise(
                files=tuple(File(f"f-{n}") for n in range(50)),
                names=tuple(f"n-{n}" for n in range(51)),
                store="s-1",
            ),
            "At most 100 outputs are named one by one",
        ),
        (files(File("")), "The path of an output is empty."),
        (files(File(" \t")), "The path of an output is empty."),
        (files(File("a"), File("x" * 1025)), "The path of an output has 1,025 characters"),
        (files(File("a\0b")), "The path of an output contains a NUL"),
        (files(File("\udcff")), "The path of an output contains what is not text"),
        (files(File("a", 0)), "a: a count is from 1 to 10,000,000, not 0."),
        (files(File("a", 10_000_001)), "a: a count is from 1 to 10,000,000, not 10000001."),
        (files(File("a", None, -1)), "a: a size is a number of bytes, not -1."),
        (files(File("a", None, 2**63)), "a: a size is a number of bytes"),
        (files(File("a", sha256=SHA[1:])), "a: sha256 is 64 hexadecimal digits."),
        (files(File("a", sha256=SHA + "0")), "a: sha256 is 64 hexadecimal digits."),
        (files(File("a", sha256=SHA.upper())), "a: sha256 is 64 hexadecimal digits."),
        (files(File("a", sha256=SHA + "\n")), "a: sha256 is 64 hexadecimal digits."),
        (files(File("a", sha256="")), "a: sha256 is 64 hexadecimal digits."),
        (
            files(*(File(f"{n:x}" * 1024) for n in range(16)), File("y")),
            "The names of all outputs have more than 16,384 bytes; promise a pattern",
        ),
        (
            files(*(File(f"{n:x}" * 1024) for n in range(15)), File("ü" * 513)),
            "The names of all outputs have more than 16,384 bytes; promise a pattern",
        ),
        (replace(NAMED, names=("a/b",)), "An output cannot be called 'a/b'"),
        (replace(NAMED, names=("a", "a")), "An output is promised twice; name each once."),
        (files(File("a"), File("a", 2)), "An output is promised twice; name each once."),
        (
            OutputPromise(files=(File("a"),), names=("a",), store="s-1"),
            "An output is promised twice; name each once.",
        ),
        (replace(LISTED, manifest=None), "A manifest and how many entries it has are given"),
        (replace(NAMED, manifest=SHA), "A manifest and how many entries it has are given"),
        (replace(LISTED, manifest="x" * 64), "A manifest is named by its sha256"),
        (replace(LISTED, manifest=""), "A manifest is named by its sha256"),
        (replace(LISTED, entries=-1), "A manifest has from 1 to 10,000,000 entries, not -1."),
        (replace(LISTED, entries=10_000_001), "A manifest has from 1 to 10,000,000 entries"),
        (replace(NAMED, store=None), "The promise does not say in which output store"),
        (replace(LISTED, store=None), "The promise does not say in which output store"),
        (replace(LISTED, store="x" * 129), "The output store has 129 characters"),
        (replace(LISTED, place="x" * 4097), "The output store has 4,097 characters"),
        (replace(files(File("a")), store="x" * 129), "The output store has 129 characters"),
    ],
)
def test_what_is_wrong_with_a_promise_is_said(promise: OutputPromise, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_promise(promise, plain=True)

    assert type(caught.value) is Invalid
    assert str(caught.value).startswith(words)


def test_plain_paths_are_for_commands_alone() -> None:
    with pytest.raises(Invalid, match="Plain paths are for commands"):
        check_promise(files(File("a")), plain=False)

    assert check_promise(NAMED, plain=False) is NAMED
    assert check_promise(LISTED, plain=False) is LISTED


@pytest.mark.parametrize(
    ("promise", "count"),
    [
        (OutputPromise(), 0),
        (NAMED, 1),
        (LISTED, 8),
        (replace(LISTED, names=("a", "b"), files=(File("c", 4),)), 11),
    ],
)
def test_a_promise_counts_its_outputs_and_a_pattern_is_one(promise: OutputPromise, count: int) -> None:
    assert promise.count == count


@pytest.mark.parametrize("name", ["a", "A9", "_x", "model.pt", "a-b_c.d", "9", "x" * 128])
def test_an_output_has_a_name_that_is_safe_in_paths(name: str) -> None:
    assert check_output_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".hidden", "-x", "a/b", "a b", "a:b", "ä", "a\n", "a\0", "\udcff", "x" * 129],
)
def test_an_output_cannot_be_called_just_anything(name: str) -> None:
    with pytest.raises(Invalid, match=r"^(The name of an output|An output cannot be called) "):
        check_output_name(name)


@pytest.mark.parametrize(
    "found",
    [
        ValidationResult(verified=8),
        ValidationResult(missing=8),
        ValidationResult(verified=8, reused=8),
        ValidationResult(verified=3, missing=5, reused=0),
    ],
)
def test_what_was_found_accounts_for_every_output(found: ValidationResult) -> None:
    assert check_validation_result(found, 8) is found


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            ValidationResult(verified=7),
            "7 verified and 0 missing outputs are not the 8 that were promised.",
        ),
        (
            ValidationResult(missing=9),
            "0 verified and 9 missing outputs are not the 8 that were promised.",
        ),
        (ValidationResult(verified=-1, missing=9), "What was found is counted from 0"),
        (ValidationResult(verified=9, missing=-1), "What was found is counted from 0"),
        (ValidationResult(verified=8, reused=-1), "What was found is counted from 0"),
        (ValidationResult(verified=8, reused=9), "What was found is counted from 0"),
    ],
)
def test_what_does_not_add_up_is_refused(found: ValidationResult, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_validation_result(found, 8)

    assert type(caught.value) is Invalid
    assert str(caught.value).startswith(words)


def test_what_is_told_comes_back_as_a_log_gives_it() -> None:
    found = ValidationResult(verified=1, missing=1, names=("a",))

    assert to_json_value(found) == {"verified": 1, "missing": 1, "names": ["a"]}
    assert to_json_value((Output(name="a"), Output(name="b", size=3))) == [
        {"name": "a"},
        {"name": "b", "size": 3},
    ]
    assert to_json_value(None) is None


def test_nothing_said_is_nothing_looked_at() -> None:
    assert File("a") == File("a", None, None, None)
    assert ValidationResult() == ValidationResult(verified=0, missing=0, reused=0, names=(), report=None)
    assert (
        ValidationProgress().tries,
        ValidationProgress().done,
        ValidationProgress().total,
        ValidationProgress().by,
    ) == (0, 0, 0, None)
    assert not Output(name="a").reused
    assert (OutputPromise().resume_attempt, OutputPromise().original_total) == (0, 0)


@pytest.mark.parametrize(
    ("tries", "age", "wait"),
    [
        (1, DAY, timedelta(seconds=10)),
        (2, DAY, timedelta(seconds=20)),
        (3, timedelta(), MINUTE),
        (3, 3 * MINUTE, 3 * MINUTE),
        (99, DAY, 15 * MINUTE),
    ],
)
def test_what_was_not_seen_is_looked_for_again(tries: int, age: timedelta, wait: timedelta) -> None:
    assert retry_wait(tries, age) == wait


@pytest.mark.parametrize(
    ("age", "wait"),
    [(-DAY, 5 * MINUTE), (timedelta(), 5 * MINUTE), (MINUTE * 90, MINUTE * 90), (2 * DAY, DAY)],
)
def test_what_is_missing_is_looked_for_again_later(age: timedelta, wait: timedelta) -> None:
    assert recheck_wait(age) == wait


def test_one_who_looks_has_a_minute_and_no_more_whatever_a_clock_said() -> None:
    assert is_being_validated(ValidationProgress(by="v", until=NOW + VALIDATION_TIMEOUT), NOW)
    assert not is_being_validated(ValidationProgress(by="v", until=NOW), NOW)
    assert not is_being_validated(
        ValidationProgress(by="v", until=NOW + VALIDATION_TIMEOUT + timedelta(microseconds=1)), NOW
    )
    assert not is_being_validated(ValidationProgress(), NOW)


def test_the_next_look_is_due_when_it_says_unless_a_clock_was_far_ahead() -> None:
    soon, far = NOW + RECHECK_WAIT_MAX, NOW + RECHECK_WAIT_MAX + timedelta(microseconds=1)

    assert validation_due_at(NOW, None, NOW) == NOW + OWNER_GRACE
    assert validation_due_at(NOW, ValidationProgress(), NOW) == NOW
    assert validation_due_at(NOW, ValidationProgress(next_at=soon), NOW) == soon
    assert validation_due_at(NOW, ValidationProgress(next_at=far), NOW) == NOW


def test_a_path_has_no_control_characters() -> None:
    with pytest.raises(Invalid, match=r"no control characters: 'a.x1bb'"):
        check_promise(OutputPromise(files=(File("a\x1bb"),)), plain=True)
