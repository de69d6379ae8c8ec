"""Why a job with promised outputs is where it is: who looks, what is missing, and what it rests on."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.explanation import explain
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.outputs import File, OutputPromise, ValidationProgress, ValidationResult
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec, check_spec
from holdfast.core.state import State
from tests.core.sample_jobs import (
    NOW,
    PERMANENT,
    after,
    changed,
    claim,
    complete,
    enqueue,
    job_in,
    judge,
    look,
)

SECOND = timedelta(seconds=1)
OVERRIDE = " If you know better: holdfast validate job-1 --override succeeded --reason ..."


def validating(**check: object) -> Job:
    spec = Spec(outputs=OutputPromise(files=tuple(File(f"{n}.csv") for n in range(8))))
    job = after(enqueue(check_spec(spec)), claim(), complete(Success(where="box-1:/data")))
    assert job.check is not None
    return replace(job, check=replace(job.check, **check))


LOOKED = "Any worker or server on box-1 validates them again in 10 s."


def test_promised_outputs_that_nobody_has_looked_at_say_who_does() -> None:
    job = validating()

    told = "The work is done; its promised outputs have not been validated yet."
    assert explain(job, NOW + 5 * SECOND) == f"{told} {LOOKED.replace(' again', '')}"
    for next_at in (NOW, None):
        due = explain(validating(next_at=next_at), NOW)
        assert due == f"{told} The next worker or server on box-1 that can see them validates them."
    nowhere = explain(validating(where=None), NOW + 15 * SECOND)
    assert nowhere == f"{told} The next worker or server that can see them validates them."
    assert explain(replace(job, check=None), NOW) == nowhere


def test_whoever_looks_is_named_with_how_far_it_is_until_it_falls_silent() -> None:
    looking = changed(validating(), look(total=0)).after
    counting = changed(looking, look(done=1000, total=8000)).after
    here = "The work is done; validator:v is validating its outputs"

    assert explain(looking, NOW) == f"{here}."
    assert explain(counting, NOW + 59 * SECOND) == f"{here}, 1,000 of 8,000 so far."
    assert "have not been validated yet" in explain(counting, NOW + 60 * SECOND)
    for check in ({"by": None}, {"until": None}, {"until": NOW}):
        told = explain(validating(**{"by": "x", "until": NOW + SECOND} | check), NOW)
        assert "is validating" not in told


def test_outputs_that_could_not_be_seen_say_why_when_again_and_how_to_end_it() -> None:
    once = changed(validating(), look(trouble="the bucket does not answer.")).after
    twice = changed(once, look(trouble="no disk"), NOW).after

    blind = "The work is done, but its outputs could not be seen, tried"
    assert explain(once, NOW) == f"{blind} once: the bucket does not answer. {LOOKED}{OVERRIDE}"
    assert explain(twice, NOW + 10 * SECOND) == f"{blind} 2 times: no disk. {LOOKED}{OVERRIDE}"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (ValidationResult(verified=1, missing=7), "1 of its 8 outputs are there, 7 are missing."),
        (
            ValidationResult(verified=7, missing=1, names=("a.csv",)),
            "7 of its 8 outputs are there, 1 is missing: a.csv.",
        ),
        (
            ValidationResult(verified=6, missing=2, names=("a.csv", "b.csv")),
            "6 of its 8 outputs are there, 2 are missing: a.csv, b.csv.",
        ),
        (
            ValidationResult(verified=5, missing=3, names=("a.csv", "b.csv")),
            "5 of its 8 outputs are there, 3 are missing: a.csv, b.csv and 1 more.",
        ),
        (
            ValidationResult(verified=1, missing=7, names=tuple("abcdefg")),
            "1 of its 8 outputs are there, 7 are missing: a, b, c, d, e and 2 more.",
        ),
    ],
)
def test_a_partial_success_names_what_is_missing_and_how_to_make_it(
    found: ValidationResult, told: str
) -> None:
    job = changed(validating(), replace(judge(0, 0), found=found)).after

    assert explain(job, NOW) == f"{told} To run it again for those: holdfast resume job-1"
    study = replace(job, spec=STUDY)
    assert explain(study, NOW).endswith(" To make only those: holdfast resume job-1")


def test_large_numbers_of_outputs_can_be_read() -> None:
    job = replace(
        job_in(State.PARTIAL_SUCCESS),
        spec=Spec(promised_outputs=1_000_000),
        found=ValidationResult(verified=990_000, missing=10_000, names=("a",)),
    )

    assert explain(job, NOW).startswith(
        "990,000 of its 1,000,000 outputs are there, 10,000 are missing: a and 9,999 more."
    )


def test_a_partial_success_that_could_not_be_seen_again_says_so() -> None:
    job = changed(job_in(State.PARTIAL_SUCCESS), look(trouble="no disk.")).after

    assert explain(job, NOW) == (
        "5 of its 8 outputs are there, 3 are missing. Validated again, they could not be seen:"
        " no disk. To make only what is missing: holdfast resume job-1"
    )
    unknown = replace(job, found=None, check=None)
    assert explain(unknown, NOW).startswith("0 of its 8 outputs are there, 0 are missing. To")


@pytest.mark.parametrize(
    ("promised", "found", "told"),
    [
        (8, ValidationResult(verified=8), "all 8 outputs are there"),
        (1, ValidationResult(verified=1), "its output is there"),
        (2000, ValidationResult(verified=2000, reused=1500),
         "all 2,000 outputs are there, 1,500 of them made before"),
    ],
)  # fmt: skip
def test_a_success_with_outputs_says_that_they_are_there(
    promised: int, found: ValidationResult, told: str
) -> None:
    job = after(enqueue(Spec(promised_outputs=promised)), claim(), complete(Success()))
    done = changed(job, replace(judge(0, 0), found=found)).after

    assert explain(done, NOW) == (f"It succeeded on the first attempt: {told}. Nothing more will happen.")


@pytest.mark.parametrize(("promised", "told"), [(1, "its output is there"), (8, "all 8 outputs are there")])
def test_a_job_that_had_nothing_left_to_do_says_so(promised: int, told: str) -> None:
    made = replace(enqueue(Spec(promised_outputs=promised), actor="validator:v"))
    job = after(replace(made, found=ValidationResult(verified=promised, reused=promised)))

    assert explain(job, NOW) == f"Nothing was run for it: {told} already."


def test_a_success_by_somebodys_word_is_not_called_found() -> None:
    override = judge(0, 0, override=State.SUCCEEDED, reason="checked by hand")
    never = changed(job_in(State.VALIDATING), override).after
    partly = changed(job_in(State.PARTIAL_SUCCESS), override).after

    for job in (never, partly):
        assert explain(job, NOW) == ("It counts as succeeded by an override: checked by hand.")
        assert not job.resumable


STUDY = check_spec(
    Spec(
        outputs=OutputPromise(manifest="a" * 64, entries=6, store="s-1"),
        retry=Retry(max_failures=1),
    )
)


def ended(spec: Spec = STUDY, found: ValidationResult | None = None, **check: object) -> Job:
    job = after(enqueue(spec), claim(), complete(PERMANENT))
    return replace(job, found=found, check=ValidationProgress(**check) if check else None)  # type: ignore[arg-type]


FAILED_SO = "It failed on the first attempt: no such model."
RETRY = "To run it again: holdfast replay job-1"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (
            ValidationResult(verified=4, missing=2),
            "4 of 6 outputs are there; to make the other 2: holdfast resume job-1",
        ),
        (ValidationResult(missing=6), f"All 6 outputs are missing. {RETRY}"),
        (ValidationResult(verified=6), f"All 6 outputs are there all the same. {RETRY}"),
        (
            None,
            "Its 6 outputs may be there: not validated yet. Validate now: holdfast validate job-1"
            f" --force {RETRY}",
        ),
    ],
)
def test_a_job_that_failed_says_what_is_there_and_how_to_make_the_rest(
    found: ValidationResult | None, told: str
) -> None:
    assert explain(ended(found=found), NOW) == f"{FAILED_SO} {told}"


def test_a_failed_command_is_run_again_as_a_whole_for_what_is_missing() -> None:
    files = check_spec(Spec(kind="command", outputs=OutputPromise(files=(File("a"), File("b")))))
    one = check_spec(Spec(kind="command", outputs=OutputPromise(files=(File("a"),))))

    told = explain(ended(files, ValidationResult(verified=1, missing=1)), NOW)
    assert told == (
        f"{FAILED_SO} 1 of 2 outputs are there; to run it again for the other 1: holdfast resume job-1"
    )
    for found, words in (
        (ValidationResult(missing=1), "Its output is missing."),
        (ValidationResult(verified=1), "Its output is there all the same."),
    ):
        assert explain(ended(one, found), NOW) == f"{FAILED_SO} {words} {RETRY}"
    assert explain(ended(one), NOW).startswith(f"{FAILED_SO} Its output may be there: not validated")


def test_outputs_known_by_name_alone_are_made_by_running_the_whole_again() -> None:
    named = check_spec(Spec(outputs=OutputPromise(names=("a", "b"), store="s-1")))

    told = explain(ended(named, ValidationResult(verified=1, missing=1)), NOW)

    assert told.endswith("to run it again for the other 1: holdfast resume job-1")


def test_an_unsuccessful_job_says_who_looks_or_why_nothing_was_seen() -> None:
    blind = explain(ended(tries=2, reason="no disk."), NOW)
    looking = explain(ended(by="validator:v", until=NOW + SECOND), NOW)

    assert blind == (
        f"{FAILED_SO} Its 6 outputs could not be seen: no disk. Validate now: holdfast validate job-1"
        f" --force {RETRY}"
    )
    assert looking == f"{FAILED_SO} validator:v is validating its outputs. {RETRY}"
    for by, until in ((None, NOW + SECOND), ("validator:v", NOW - SECOND)):
        assert "not validated yet" in explain(ended(by=by, until=until), NOW)


def test_every_unsuccessful_end_tells_of_its_outputs() -> None:
    found = ValidationResult(verified=4, missing=2)
    rest = "4 of 6 outputs are there; to make the other 2: holdfast resume job-1"
    for state, words in (
        (State.CANCELLED, "It was cancelled: no such model."),
        (State.TIMEOUT, "It timed out on the first attempt: no such model."),
        (
            State.DEAD_LETTERED,
            "It was parked among the dead letters on the first attempt: no such model.",
        ),
    ):
        job = replace(ended(found=found), state=state)
        assert explain(job, NOW) == f"{words} {rest}"
    letter = replace(ended(found=ValidationResult(missing=6)), state=State.DEAD_LETTERED)
    assert explain(letter, NOW).endswith("To run it again: holdfast dead-letters replay job-1")
