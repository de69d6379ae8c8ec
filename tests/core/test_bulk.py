"""Plans of one command on many jobs: which jobs they cover, and the op_ids they give."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.bulk import (
    BulkPlan,
    BulkVerb,
    JobSelection,
)
from holdfast.core.errors import Invalid
from holdfast.core.state import State

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def plan(verb: BulkVerb = BulkVerb.CANCEL, *, plan_id: str = "p-1", again: bool = False) -> BulkPlan:
    return BulkPlan(
        plan_id=plan_id, verb=verb, selection=JobSelection(), planned_at=NOW + timedelta(hours=1), again=again
    )


def test_a_filter_selects_only_jobs_that_the_verb_applies_to() -> None:
    assert State.RUNNING in plan().states
    assert State.FAILED not in plan().states
    assert set(plan(BulkVerb.REPLAY).states) >= {State.FAILED, State.DEAD_LETTERED}
    some = replace(plan(), selection=JobSelection(states=(State.FAILED, State.QUEUED)))
    assert some.states == (State.QUEUED,)
    none = replace(plan(), selection=JobSelection(states=(State.FAILED,)))
    with pytest.raises(Invalid, match="nothing to cancel in jobs that are failed"):
        _ = none.states


UNSUCCESSFUL = "cancelled dead_lettered failed partial_success timeout"


@pytest.mark.parametrize(
    ("verb", "states"),
    [
        (BulkVerb.CANCEL, "aggregating assigned pending queued running submitting validating"),
        (BulkVerb.REPLAY, UNSUCCESSFUL),
        (BulkVerb.VALIDATE, f"{UNSUCCESSFUL} validating"),
        (BulkVerb.RESUME, UNSUCCESSFUL),
    ],
)
def test_each_verb_has_something_to_do_in_these_states(verb: BulkVerb, states: str) -> None:
    assert set(plan(verb).states) == {State(state) for state in states.split()}


def test_a_job_has_another_op_id_in_another_plan() -> None:
    assert plan().op_id("j") == plan().op_id("j")
    assert len({plan().op_id("j"), plan().op_id("k"), plan(plan_id="p-2").op_id("j")}) == 3


def test_the_first_replay_has_one_op_id_in_all_plans() -> None:
    first, other = plan(BulkVerb.REPLAY), plan(BulkVerb.REPLAY, plan_id="p-2")

    assert first.op_id("j") == other.op_id("j")
    assert replace(first, again=True).op_id("j") != replace(other, again=True).op_id("j")
