"""The fold of a job with promised outputs: what was found, by whichever verdict came last."""

import pytest
from msgspec.structs import replace

from holdfast.core.lifecycle import Command, Success
from holdfast.core.outputs import ValidationResult
from holdfast.core.projection import differences, fold, folded_view
from holdfast.core.state import State
from tests.core.sample_jobs import (
    ONCE,
    PERMANENT,
    PROMISING,
    TRANSIENT,
    cancel,
    claim,
    complete,
    enqueue,
    judge,
    lived,
)

PARTIAL = (enqueue(PROMISING), claim(), complete(Success()), judge(5, 3))
NAMED = ValidationResult(verified=5, missing=3, names=("a", "b"), report="reports/1")


@pytest.mark.parametrize(
    ("verdict", "found"),
    [(judge(5, 3), {"verified": 5, "missing": 3}), (judge(0, 8), {"missing": 8})],
)
def test_what_was_found_comes_from_the_verdict(verdict: Command, found: object) -> None:
    job, log = lived(*PARTIAL[:3], verdict)

    assert fold(log, "job-1").job == folded_view(job)
    assert fold(log, "job-1").job.found == found


def test_other_findings_of_a_partial_success_are_folded_and_end_nothing() -> None:
    job, log = lived(*PARTIAL, judge(6, 2), replace(judge(0, 0), found=NAMED))

    projection = fold(log, "job-1")

    assert projection.job == folded_view(job)
    assert (projection.job.state, projection.job.version) == (State.PARTIAL_SUCCESS, 7)
    assert (projection.job.transition_no, projection.late, projection.illegal) == (5, (), ())
    assert projection.job.found == {
        "verified": 5, "missing": 3, "names": ["a", "b"], "report": "reports/1",
    }  # fmt: skip


def test_an_upgrade_after_other_findings_has_the_last_word() -> None:
    job, log = lived(*PARTIAL, judge(6, 2), judge(8, 0))

    assert fold(log, "job-1").job == folded_view(job)
    assert fold(log, "job-1").job.found == {"verified": 8}


def test_findings_after_a_success_are_late() -> None:
    _, log = lived(*PARTIAL, judge(6, 2))
    job, ended = lived(*PARTIAL[:3], judge(8, 0))
    late = replace(log[-1], log_id=90)

    projection = fold([*ended, late], "job-1")

    assert projection.late == (late,)
    assert projection.job == folded_view(job)


@pytest.mark.parametrize("end", [(complete(PERMANENT),), (complete(TRANSIENT),), (cancel(hard=True),)])
def test_findings_after_an_unsuccessful_end_are_folded_and_change_no_end(
    end: tuple[Command, ...],
) -> None:
    once = replace(PROMISING, retry=ONCE.retry)
    before, _ = lived(enqueue(once), claim(), *end)
    job, log = lived(enqueue(once), claim(), *end, judge(5, 3), judge(6, 2))

    projection = fold(log, "job-1")

    assert projection.job == folded_view(job)
    assert (projection.job.state, projection.job.version) == (before.state, before.version + 2)
    assert (projection.late, projection.illegal, projection.gaps) == ((), (), ())
    assert projection.job.found == {"verified": 6, "missing": 2}
    assert not differences(job, projection)


def test_an_override_keeps_what_was_found() -> None:
    override = judge(0, 0, override=State.SUCCEEDED, reason="the rest is not needed")

    job, log = lived(*PARTIAL, override)
    untold, short = lived(*PARTIAL[:3], override)

    assert fold(log, "job-1").job == folded_view(job)
    assert fold(log, "job-1").job.found == {"verified": 5, "missing": 3}
    assert fold(short, "job-1").job == folded_view(untold)
    assert fold(short, "job-1").job.found is None


def test_a_job_that_had_nothing_left_to_do_folds_to_itself() -> None:
    made = replace(enqueue(PROMISING, actor="validator:v"), found=ValidationResult(verified=8, reused=8))

    job, log = lived(made)

    assert fold(log, "job-1").job == folded_view(job)
    assert differences(job, fold(log, "job-1")) == []
    assert fold(log, "job-1").job.owner is None


def test_what_was_found_is_compared() -> None:
    job, log = lived(*PARTIAL)
    tampered = replace(job, found=NAMED)

    [difference] = differences(tampered, fold(log, "job-1"))

    assert difference.field == "found"
