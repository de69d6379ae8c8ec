"""`--output`, and the summary of what was found, from values alone."""

from datetime import UTC, datetime, timedelta

import click
import pytest
from msgspec.structs import replace

from holdfast.cli.output_option import PlainOutput
from holdfast.cli.output_summary import (
    is_cached,
    missing_names,
    name_list,
    output_counts,
    validation_status,
    verdict_words,
)
from holdfast.core.job import Failure, Job
from holdfast.core.outputs import File, OutputPromise, ValidationProgress, ValidationResult
from holdfast.core.spec import Spec
from holdfast.core.state import State

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SHA = "ab" * 32


def parse(text: str) -> File:
    return PlainOutput().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("results/model.pt", File("results/model.pt")),
        ("run-7/*.parquet:4", File("run-7/*.parquet", count=4)),
        ("model.pt,size=2GiB", File("model.pt", size=2 * 1024**3)),
        ("model.pt,size=0", File("model.pt", size=0)),
        (f"model.pt,sha256={SHA.upper()}", File("model.pt", sha256=SHA)),
        (f"a/*:2,sha256={SHA},size=1kB", File("a/*", count=2, size=1000, sha256=SHA)),
        ("a,b.txt", File("a,b.txt")),
        ("lr=0.1,seed=3/model.pt", File("lr=0.1,seed=3/model.pt")),
        ("run,md5=old/model.pt", File("run,md5=old/model.pt")),
        ("/abs/a b", File("/abs/a b")),
    ],
)
def test_an_output_is_a_path_with_what_is_promised_of_it(text: str, file: File) -> None:
    assert parse(text) == file


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("12:30", File("12", count=30)),
        ("12:30:1", File("12:30", count=1)),
        ("host:8080/x", File("host:8080/x")),
        ("a:b", File("a:b")),
        ("odd,size=3:1", File("odd,size=3", count=1)),
        (f"a:1:2,sha256={SHA}", File("a:1", count=2, sha256=SHA)),
    ],
)
def test_a_path_that_ends_like_a_count_is_given_one_of_its_own(text: str, file: File) -> None:
    assert parse(text) == file


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "needs a path"),
        ("  ", "empty"),
        ("a:0", "from 1 to"),
        ("a:999999999999", "from 1 to"),
        ("a,size=big", "not a size"),
        ("a,size=", "not a size"),
        ("a,sha256=beef", "64 hexadecimal digits"),
        ("a,size=1,size=2", "twice"),
        ("a,md5=00", "write size= or sha256="),
        ("a,count=3", "write size= or sha256="),
        ("a\0b", "NUL"),
        ("a" * 2000, "characters"),
    ],
)
def test_what_cannot_be_promised_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(click.BadParameter) as error:
        parse(text)

    assert words in error.value.message


def job(
    found: ValidationResult | None = None,
    *,
    promised: int = 8,
    check: ValidationProgress | None = None,
) -> Job:
    spec = Spec(outputs=OutputPromise(manifest=SHA, entries=promised, store="s"))
    made = Job(
        job_id="j",
        spec=replace(spec, promised_outputs=promised),
        state=State.PARTIAL_SUCCESS,
        version=1,
        created_at=NOW,
        updated_at=NOW,
        ready_at=NOW,
    )
    return replace(made, found=found, check=check)


def test_what_was_found_is_counted_in_words() -> None:
    some = ValidationResult(verified=5, missing=3, reused=2, names=("a", "b"))

    assert output_counts(job()) == "8 outputs promised"
    assert output_counts(job(some)) == "5 of 8 outputs verified (2 reused), 3 missing"
    assert output_counts(job(ValidationResult(verified=1), promised=1)) == "1 of 1 output verified"
    assert output_counts(job(promised=0)) is None
    assert missing_names(job(some)) == "a, b and 1 more"
    assert (
        missing_names(job(ValidationResult(verified=1, missing=7, names=tuple("abcdefg"))))
        == "a, b, c, d, e and 2 more"
    )
    assert missing_names(job()) is None
    assert name_list((), 5) == ""
    assert name_list(("a",), 1) == "a"


def test_who_looks_and_why_nobody_sees_anything_is_said() -> None:
    later = NOW + timedelta(seconds=20)
    busy = ValidationProgress(by="validator:w-1", until=later, done=300, total=1000)
    blind = ValidationProgress(tries=2, reason="The bucket does not answer.", next_at=later)

    assert validation_status(job(check=busy), NOW) == "validator:w-1 is validating, 300 of 1,000"
    assert validation_status(job(check=replace(busy, total=0)), NOW) == "validator:w-1 is validating"
    assert validation_status(job(check=busy), later) is None
    assert validation_status(job(check=blind), NOW) == (
        "could not be seen, tried 2 times: The bucket does not answer; next validation in 20 s"
    )
    assert validation_status(job(check=replace(blind, tries=1)), later) == (
        "could not be seen, tried once: The bucket does not answer; next validation is due"
    )
    assert validation_status(job(), NOW) is None


def test_a_verdict_says_the_state_and_what_it_rests_on() -> None:
    partial = job(ValidationResult(verified=5, missing=3, names=("a", "b", "c")))
    failed = replace(
        job(ValidationResult(missing=8, names=("a",))),
        state=State.FAILED,
        error=Failure(message="No promised output was found.", code="NO_OUTPUTS"),
    )

    assert verdict_words(partial) == ("partial_success: 5 of 8 outputs verified, 3 missing: a, b, c.")
    assert verdict_words(replace(job(ValidationResult(verified=8)), state=State.SUCCEEDED)) == (
        "succeeded: 8 of 8 outputs verified."
    )
    assert verdict_words(failed) == "failed: No promised output was found."


def test_a_job_for_which_nothing_was_run_is_told_from_one_that_says_so_itself() -> None:
    reused = replace(job(), result={"cached": True}, started_at=NOW)
    ran = replace(reused, started_at=NOW + timedelta(microseconds=1))

    assert is_cached(reused)
    assert not is_cached(ran)
    assert not is_cached(replace(reused, result={"cached": 1}))
    assert not is_cached(job())
