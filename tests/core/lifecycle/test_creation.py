"""How a job comes to be, and how it is handed to an executor."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Conflict, Denied, Invalid
from holdfast.core.lifecycle import Change, Expire, HandoffStep, decide
from holdfast.core.projection import fold, folded_view
from holdfast.core.spec import Spec
from holdfast.core.state import LEASED, State
from tests.core.sample_jobs import (
    BEGIN,
    DONE,
    LATER,
    NOW,
    REFUSED,
    SYNC,
    USER,
    after,
    cancel,
    changed,
    claim,
    enqueue,
    handoff,
    job_in,
    refused,
)


def test_a_new_job_is_queued_as_attempt_one_by_one_event() -> None:
    change = changed(None, enqueue())

    [event] = change.events
    assert change.before is None
    assert (change.after.state, change.after.attempt, change.after.version) == ("queued", 1, 1)
    assert (event.event_id, event.event_type, event.actor) == ("job-1/1", "job_queued", USER)


def test_the_same_words_again_answer_the_job_and_write_nothing() -> None:
    job = job_in(State.RUNNING)

    change = changed(job, enqueue())

    assert change.before is change.after is job
    assert change.events == ()


def test_other_words_under_the_same_id_are_refused() -> None:
    refusal = refused(job_in(State.QUEUED), enqueue(Spec(kind="other")))

    assert isinstance(refusal.error, Conflict)
    assert "different request" in refusal.error.message


@pytest.mark.parametrize("spec", [Spec(resumed_from="job-1"), Spec(replayed_from="job-1")])
def test_a_job_resumes_or_replays_another(spec: Spec) -> None:
    refusal = refused(None, enqueue(spec))

    assert isinstance(refusal.error, Invalid)


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        (Spec(), 0),
        (Spec(delay=timedelta(seconds=5)), 5),
        (Spec(run_at=NOW + timedelta(seconds=8)), 8),
        (Spec(run_at=NOW - timedelta(seconds=8)), 0),
    ],
)
def test_a_job_is_ready_when_it_was_asked_to_be(spec: Spec, seconds: int) -> None:
    job = changed(None, enqueue(spec)).after

    assert job.ready_at == NOW + timedelta(seconds=seconds)
    assert job.deadline_at is None


def test_the_deadline_counts_from_the_making() -> None:
    assert changed(None, enqueue(Spec(ttl=timedelta(hours=1)))).after.deadline_at == (
        NOW + timedelta(hours=1)
    )


def test_a_handed_over_job_keeps_its_handle_and_is_claimable_for_its_executor() -> None:
    bound = Spec(executor="k8s")
    done = handoff(DONE, handle={"pod": "p-1"})

    job = after(enqueue(bound, register=True), handoff(BEGIN), done)

    assert job.handle == {"pod": "p-1"}
    assert isinstance(refused(job, claim()).error, Conflict)
    assert changed(job, claim(executor="k8s", actor=SYNC)).after.state is State.ASSIGNED


def test_a_handoff_without_a_handle_says_nothing_of_one() -> None:
    change = changed(job_in(State.SUBMITTING), handoff(DONE))

    [event] = change.events
    assert (event.attributes, change.after.handle) == ({}, None)


@pytest.mark.parametrize(("error", "words"), [("no quota", "no quota"), (None, "refused")])
def test_a_job_its_executor_refuses_has_failed_with_its_words(error: str | None, words: str) -> None:
    change = changed(job_in(State.SUBMITTING), handoff(REFUSED, error=error))

    assert change.after.state is State.FAILED
    assert change.after.error is not None
    assert words in change.after.error.message
    assert change.after.ended_at == NOW


@pytest.mark.parametrize(("reason", "words"), [("enough", "enough"), (None, "cancelled by user:ana")])
def test_a_cancel_during_submitting_takes_effect_when_the_executor_has_answered(
    reason: str | None, words: str
) -> None:
    asked = changed(job_in(State.SUBMITTING), cancel(hard=True, reason=reason))

    change = changed(asked.after, handoff(DONE))

    assert asked.after.state is State.SUBMITTING
    assert [event.event_type for event in change.events] == ["job_queued", "job_cancelled"]
    assert change.after.reason == words
    log = (*changed(None, enqueue(register=True)).events, *_begun().events, *asked.events)
    assert fold((*log, *change.events), "job-1").job == folded_view(change.after)


def _begun() -> Change:
    return changed(job_in(State.PENDING), handoff(BEGIN))


@pytest.mark.parametrize("state", sorted(LEASED))
@pytest.mark.parametrize("step", [DONE, REFUSED])
@pytest.mark.parametrize("actor", [SYNC, "system:x", "worker:zombie"])
def test_a_handoff_never_takes_a_job_from_its_owner(state: State, step: object, actor: str) -> None:
    command = handoff(step, actor=actor)  # type: ignore[arg-type]

    refusal = refused(job_in(state), command)

    assert isinstance(refusal.error, Conflict)


@pytest.mark.parametrize(
    ("state", "step", "words"),
    [
        (State.SUBMITTING, BEGIN, "its handoff to an executor has begun already"),
        (State.PENDING, DONE, "its handoff to an executor has not begun"),
        (State.QUEUED, BEGIN, "there is no handoff"),
    ],
)
def test_a_step_of_a_handoff_out_of_turn_is_refused_in_true_words(
    state: State, step: HandoffStep, words: str
) -> None:
    job = _begun().after if state is State.SUBMITTING else job_in(state)

    assert refused(job, handoff(step)).error.message.startswith(f"Job is {state}: {words}")


def test_a_handoff_is_no_verdict_on_outputs() -> None:
    refusal = refused(job_in(State.VALIDATING), handoff(REFUSED, actor=USER))

    assert isinstance(refusal.error, Conflict)


def test_nobody_unknown_may_make_a_job() -> None:
    assert isinstance(refused(None, enqueue(actor="stranger")).error, Denied)
    assert isinstance(refused(None, enqueue(register=True, actor="validator:v")).error, Denied)


@pytest.mark.parametrize(
    ("state", "end"), [(State.PENDING, State.CANCELLED), (State.SUBMITTING, State.FAILED)]
)
def test_a_deadline_also_ends_a_job_no_executor_took(state: State, end: State) -> None:
    hurried = Spec(ttl=timedelta(seconds=1))
    made = enqueue(hurried, register=True)
    job = after(made) if state is State.PENDING else after(made, handoff(BEGIN))

    change = changed(job, Expire(), LATER)

    assert change.after.state is end
    assert change.after.ended_at == LATER
    assert "deadline passed" in (change.after.reason or "")


def test_a_claim_can_make_the_job_it_claims_in_one_write() -> None:
    change = changed(None, claim(create=enqueue(actor="worker:w")))

    assert change.before is None
    assert [event.event_type for event in change.events] == ["job_queued", "job_claimed"]
    assert [event.op_id for event in change.events] == ["op-enqueue", "op-claim"]
    assert change.after.owner == "w"


def test_a_claim_does_not_make_a_job_that_is_not_ready() -> None:
    later = enqueue(Spec(delay=timedelta(seconds=5)), actor="worker:w")

    decision = decide(claim(create=later), None, NOW)

    assert not isinstance(decision, Change)
    assert "not ready" in decision.error.message


def test_a_job_remembers_who_asked_and_what_it_belongs_to() -> None:
    command = replace(enqueue(), submitted_by="ana", correlation_id="order-7", trace_id="t-1")

    job = changed(None, command, LATER).after

    assert (job.submitted_by, job.correlation_id, job.trace_id) == ("ana", "order-7", "t-1")
    assert job.created_at == job.updated_at == job.ready_at == LATER


def test_a_cancel_that_waited_for_the_executor_ends_the_job_then() -> None:
    asked = changed(job_in(State.SUBMITTING), cancel()).after

    ended = changed(asked, handoff(DONE), LATER).after

    assert (ended.state, ended.ended_at) == (State.CANCELLED, LATER)
