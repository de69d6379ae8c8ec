"""Commands: what is meant when nothing more is said."""

from msgspec.structs import asdict

from holdfast.core.lifecycle import (
    Cancel,
    CompleteValidation,
    Enqueue,
    Expire,
    HandoffStep,
    Release,
    ReportValidation,
    Restore,
)
from holdfast.core.outputs import ValidationResult
from holdfast.core.spec import Spec
from tests.core.sample_jobs import WORKER


def test_a_job_is_made_claimable_unless_it_is_to_be_handed_over() -> None:
    command = Enqueue(op_id="op", job_id="job-1", spec=Spec(), actor=WORKER)

    assert command.register is False


def test_a_release_is_of_something_delivered_and_a_cancel_is_soft() -> None:
    assert Release(op_id="op", token=1, actor=WORKER).undelivered is False
    assert Cancel(op_id="op", actor=WORKER).hard is False


def test_a_verdict_counts_from_nothing() -> None:
    verdict = CompleteValidation(op_id="op", actor="validator:v")

    assert verdict.found == ValidationResult(verified=0, missing=0, reused=0)
    assert (verdict.evidence, verdict.override) == ((), None)


def test_a_look_says_how_far_it_is_from_nothing() -> None:
    look = ReportValidation(actor="validator:v")

    assert (look.done, look.total, look.version, look.trouble) == (0, 0, None, None)


def test_time_and_restores_act_in_the_name_of_the_system() -> None:
    assert asdict(Expire()) == {"actor": "system:expire"}
    assert Restore(op_id="op").actor == "system:restore"


def test_a_handoff_has_three_steps() -> None:
    assert list(HandoffStep) == ["begin", "done", "refused"]
