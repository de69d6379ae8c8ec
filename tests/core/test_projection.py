"""The fold: what counts, what is passed by, and what it reports on the way."""

from datetime import timedelta

import pytest
from msgspec.structs import asdict, replace

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.lifecycle import Command, Success
from holdfast.core.projection import FoldedJob, Projection, differences, fold, folded_view
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from tests.core.sample_jobs import (
    NOW,
    PERMANENT,
    PROMISING,
    TRANSIENT,
    cancel,
    claim,
    complete,
    enqueue,
    heartbeat,
    judge,
    lived,
    said,
)

DONE = (enqueue(), claim(), heartbeat(), complete(Success(result=42)))
UPGRADED = (enqueue(PROMISING), claim(), complete(Success()), judge(5, 3), judge(8, 0))


def test_no_events_fold_to_nothing() -> None:
    projection = fold([], "job-1")

    assert projection == Projection(job=FoldedJob())
    assert (projection.late, projection.gaps, projection.duplicates) == ((), (), 0)
    assert not any(asdict(projection.job).values())


def test_a_whole_log_folds_to_the_job_and_has_nothing_to_report() -> None:
    job, log = lived(*DONE)

    projection = fold(log, "job-1")

    assert projection.job == folded_view(job)
    assert differences(job, projection) == []
    assert (projection.late, projection.illegal, projection.gaps) == ((), (), ())


def test_order_and_repeats_mean_nothing_and_repeats_are_counted() -> None:
    job, log = lived(enqueue(Spec(lock="disk")), claim(), cancel())

    projection = fold([*reversed(log), *log, log[0]], "job-1")

    assert projection.job == folded_view(job)
    assert projection.job.lock == "disk"
    assert projection.job.cancel_requested
    assert projection.duplicates == 4


def test_events_of_others_and_of_none_are_passed_by() -> None:
    job, log = lived(*DONE)
    strangers = [replace(log[1], job_id="job-2"), replace(log[1], job_id=None, given_id="e-1")]

    projection = fold([*strangers, *log], "job-1")

    assert projection.job == folded_view(job)
    assert projection.duplicates == 0


def test_what_comes_after_the_end_is_listed_and_not_applied() -> None:
    job, log = lived(*DONE)
    late = [
        replace(said(1), job_id="job-1", log_id=90),
        replace(log[1], offset=5, log_id=91),
        replace(said(2), job_id="job-1", log_id=92),
    ]
    early = replace(said(3), job_id="job-1", log_id=1)

    projection = fold([early, *late, *log, late[0]], "job-1")

    assert projection.job == folded_view(job)
    assert [event.log_id for event in projection.late] == [91, 90, 92]
    assert projection.duplicates == 1


def test_worker_events_without_a_place_in_the_log_are_not_called_late() -> None:
    _, log = lived(*DONE)
    told = [replace(said(n), job_id="job-1", log_id=log_id) for n, log_id in enumerate((None, 90))]

    assert fold([told[0], *log], "job-1").late == ()
    assert fold([*told, *log], "job-1").late == (told[1],)


def test_nothing_is_late_in_a_log_without_places() -> None:
    _, log = lived(*UPGRADED)
    bare = [replace(event, log_id=None) for event in log]

    assert fold([*bare, replace(said(1), job_id="job-1", log_id=90)], "job-1").late == ()


@pytest.mark.parametrize("log_id", [1, 90])
def test_nothing_is_late_while_the_job_lives(log_id: int) -> None:
    _, log = lived(*DONE[:3])

    projection = fold([*log, replace(said(1), job_id="job-1", log_id=log_id)], "job-1")

    assert projection.late == ()


def test_an_end_that_is_not_in_the_table_ends_nothing() -> None:
    _, log = lived(*DONE)

    projection = fold([log[0], log[3], replace(said(1), job_id="job-1", log_id=90)], "job-1")

    assert projection.job.state is State.QUEUED
    assert projection.late == ()


def test_late_events_are_listed_in_the_order_they_were_stored() -> None:
    _, log = lived(*DONE)
    late = [replace(said(n), job_id="job-1", log_id=100 - n) for n in (1, 2, 3)]

    projection = fold([*log, *late], "job-1")

    assert [event.log_id for event in projection.late] == [97, 98, 99]


def test_a_partial_success_is_upgraded_and_late_is_what_follows_the_last_end() -> None:
    job, log = lived(*UPGRADED)
    between = replace(said(1), job_id="job-1", log_id=log[-1].log_id)
    end = replace(log[-1], log_id=90)

    projection = fold([*log[:-1], between, end], "job-1")

    assert projection.job == folded_view(job)
    assert projection.job.state is State.SUCCEEDED
    assert projection.late == ()


def test_a_transition_without_an_offset_has_no_place_in_the_chain() -> None:
    job, log = lived(*DONE)
    lost = replace(log[1], offset=None, given_id="e-1")

    assert fold([lost, *log], "job-1").job == folded_view(job)


def test_a_missing_event_is_a_gap_and_what_hangs_on_it_is_illegal() -> None:
    job, log = lived(*DONE)
    holed = [event for event in log if event.offset != 2]

    projection = fold(holed, "job-1")

    assert projection.gaps == (2,)
    assert [event.event_type for event in projection.illegal] == ["job_started", "job_succeeded"]
    found = {difference.field for difference in differences(job, projection)}
    assert {"state", "version", "gaps", "illegal"} <= found


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_every_missing_offset_is_a_gap(missing: int) -> None:
    job, log = lived(*DONE)

    projection = fold([event for event in log if event.offset != missing], "job-1")

    assert projection.gaps == (missing,)
    reported = {d.field: (d.stored, d.derived) for d in differences(job, projection)}
    assert reported["gaps"] == ((), (missing,))
    assert reported["illegal"] == ((), tuple(e.event_id for e in projection.illegal))


@pytest.mark.parametrize(
    "change",
    [
        {"event_type": EventType.AGGREGATING},
        {"from_state": State.PENDING},
        {"to_state": None},
        {"to_state": State.VALIDATING},
    ],
)
def test_an_arrow_that_is_not_in_the_table_is_not_applied(change: dict[str, object]) -> None:
    _, log = lived(*DONE[:3])

    projection = fold([*log[:2], replace(log[2], **change)], "job-1")

    assert projection.job.state is State.ASSIGNED
    assert [event.offset for event in projection.illegal] == [3]


def test_facts_with_an_offset_of_their_own_do_not_count() -> None:
    job, log = lived(*DONE)
    fact = replace(log[0], offset=2, event_class=EventClass.FACT, given_id="job-1/seen")

    assert fold([fact, *log], "job-1").job == folded_view(job)


def test_budgets_error_and_dead_letter_come_from_the_events() -> None:
    job, log = lived(enqueue(Spec(retry=Retry(max_failures=1))), claim(), complete(TRANSIENT))

    folded = fold(log, "job-1").job

    assert folded == folded_view(job)
    assert folded.failures == 1
    assert isinstance(folded.dead_letter, dict)
    assert folded.dead_letter["last_lease_expires_at"] == "2026-01-01T00:01:00Z"


@pytest.mark.parametrize("nonsense", ["many", None, [1]])
def test_nonsense_in_attributes_is_not_taken_for_a_number_or_a_text(nonsense: object) -> None:
    _, log = lived(*DONE[:2])
    odd = {"failures": nonsense, "crashes": nonsense, "lock": nonsense}

    folded = fold([log[0], replace(log[1], attributes=odd)], "job-1").job

    assert (folded.failures, folded.crashes) == (0, 0)
    assert folded.lock == ("many" if nonsense == "many" else None)


def test_an_event_that_names_no_attempt_and_no_token_leaves_them() -> None:
    _, log = lived(*DONE[:3])
    silent = replace(log[2], attempt=None, fencing_token=None)

    folded = fold([*log[:2], silent], "job-1").job

    assert (folded.state, folded.attempt, folded.fencing_token) == (State.RUNNING, 1, 1)


def test_a_claim_by_nobody_has_an_owner_without_a_name() -> None:
    _, log = lived(*DONE[:2])

    assert fold([log[0], replace(log[1], actor=None)], "job-1").job.owner == ""


@pytest.mark.parametrize(
    ("promised", "ends", "state"),
    [
        (0, (), State.SUCCEEDED),
        (8, (), State.VALIDATING),
        (8, (judge(5, 3),), State.PARTIAL_SUCCESS),
        (8, (judge(8, 0),), State.SUCCEEDED),
    ],
)
def test_a_success_forgets_the_error_before_it(
    promised: int, ends: tuple[Command, ...], state: State
) -> None:
    spec = Spec(promised_outputs=promised, retry=Retry(backoff=timedelta()))
    again = (claim("op-2"), complete(Success(), 2))

    job, log = lived(enqueue(spec), claim(), complete(TRANSIENT), *again, *ends)

    folded = fold(log, "job-1").job
    assert (folded.state, folded.error) == (state, None)
    assert folded == folded_view(job)


def test_an_error_stays_until_a_success() -> None:
    retried, log = lived(enqueue(), claim(), complete(TRANSIENT))
    spec = Spec(retry=Retry(backoff=timedelta()))
    again, later = lived(enqueue(spec), claim(), complete(TRANSIENT), claim("op-2"), heartbeat(2))
    failed, end = lived(enqueue(), claim(), complete(PERMANENT))

    assert fold(log, "job-1").job == folded_view(retried)
    assert fold(log, "job-1").job.error == {"message": TRANSIENT.message, "code": TRANSIENT.code}
    assert fold(later, "job-1").job == folded_view(again)
    assert again.error == retried.error == TRANSIENT
    assert fold(end, "job-1").job == folded_view(failed)


def test_every_field_that_differs_is_named() -> None:
    job, log = lived(*DONE)
    tampered = replace(job, attempt=7, result=43, updated_at=NOW + timedelta(days=1))

    found = differences(tampered, fold(log, "job-1"))

    assert [(d.field, d.stored, d.derived) for d in found] == [
        ("attempt", 7, 1),
        ("result", 43, 42),
    ]
