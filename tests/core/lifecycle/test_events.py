"""What each decision writes, word for word: the events are all that is left of a job's life."""

from datetime import timedelta

import pytest
from msgspec.structs import asdict, replace

from holdfast.core.catalogue import ReasonCode
from holdfast.core.event import Event
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Change, Command, Expire, Restore, Stopped, Success, decide
from holdfast.core.state import State
from tests.core.sample_jobs import (
    BEGIN,
    LATER,
    NOW,
    PERMANENT,
    REFUSED,
    SYNC,
    USER,
    VALIDATOR,
    WORKER,
    aggregate,
    cancel,
    changed,
    claim,
    complete,
    enqueue,
    handoff,
    heartbeat,
    job_in,
    judge,
    refused,
    release,
)

SECOND = timedelta(seconds=1)
ERROR = {"message": "no such model", "code": "PermanentError", "retryable": False}


def words(event: Event) -> dict[str, object]:
    """What an event says beyond what every event of these tests says."""
    said = {name: value for name, value in asdict(event).items() if value not in (None, {})}
    assert said.pop("job_id") == "job-1"
    assert said.pop("occurred_at") == LATER
    assert said.pop("schema_version") == 1
    return said


def moved(
    offset: int, event_type: str, arrow: str, op_id: str, actor: str, **more: object
) -> dict[str, object]:
    """What a transition of attempt 1 under token 1 says, and more."""
    source, target = arrow.split(" to ")
    return {
        "event_type": event_type,
        "event_class": "transition",
        "offset": offset,
        "transition_no": offset,
        **({"from_state": source} if source != "nothing" else {}),
        "to_state": target,
        "attempt": 1,
        "fencing_token": 1,
        "op_id": op_id,
        "actor": actor,
        **more,
    }


def untokened(said: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in said.items() if name != "fencing_token"}


@pytest.mark.parametrize(
    ("state", "command", "said"),
    [
        (
            State.PENDING,
            handoff(BEGIN),
            untokened(moved(2, "job_submitting", "pending to submitting", "op-begin", SYNC)),
        ),
        (
            State.QUEUED,
            cancel(reason="enough"),
            untokened(
                moved(2, "job_cancelled", "queued to cancelled", "op-cancel", USER, reason="enough")
            ),
        ),
        (
            State.QUEUED,
            claim(),
            moved(2, "job_claimed", "queued to assigned", "op-claim", WORKER),
        ),
        (
            State.QUEUED,
            claim(actor=SYNC),
            moved(
                2, "job_claimed", "queued to assigned", "op-claim", SYNC, attributes={"owner": "w"}
            ),
        ),
        (
            State.ASSIGNED,
            heartbeat(),
            moved(3, "job_started", "assigned to running", "start:1", WORKER),
        ),
        (
            State.RUNNING,
            aggregate(),
            moved(4, "job_aggregating", "running to aggregating", "op-aggregate", WORKER),
        ),
        (
            State.RUNNING,
            complete(Success()),
            moved(4, "job_succeeded", "running to succeeded", "op-complete", WORKER),
        ),
        (
            State.RUNNING,
            complete(PERMANENT),
            moved(
                4, "job_failed", "running to failed", "op-complete", WORKER,
                reason="no such model",
                attributes={"error": ERROR, "failures": 1, "crashes": 0},
            ),
        ),
        (
            State.RUNNING,
            complete(Stopped()),
            moved(
                4, "job_cancelled", "running to cancelled", "op-complete", WORKER,
                reason="cancelled by worker:w",
            ),
        ),
        (
            State.RUNNING,
            release(),
            moved(
                4, "job_requeued", "running to queued", "op-release", WORKER,
                reason="released", attributes={"cause": "released"}, attempt=2,
            ),
        ),
        (
            State.VALIDATING,
            judge(8, 0),
            moved(
                5, "job_succeeded", "validating to succeeded", "op-judge", VALIDATOR,
                attributes={"found": {"verified": 8}},
            ),
        ),
        (
            State.VALIDATING,
            judge(0, 8),
            moved(
                5, "job_failed", "validating to failed", "op-judge", VALIDATOR,
                reason="No promised output was found.",
                attributes={
                    "found": {"missing": 8},
                    "error": {
                        "message": "No promised output was found.",
                        "code": "NO_OUTPUTS",
                        "retryable": False,
                    },
                },
            ),
        ),
    ],
)  # fmt: skip
def test_a_transition_says_who_did_what_under_which_token(
    state: State, command: Command, said: dict[str, object]
) -> None:
    change = changed(job_in(state), command, LATER)

    [event] = change.events
    assert words(event) == said
    assert change.after.updated_at == LATER


@pytest.mark.parametrize("floor", [0, 7])
def test_the_first_event_of_a_job_says_above_which_token_its_own_rise(floor: int) -> None:
    change = decide(enqueue(), None, LATER, None, floor)

    assert isinstance(change, Change)
    [event] = change.events
    said = moved(1, "job_queued", "nothing to queued", "op-enqueue", USER, fencing_token=floor)
    assert words(event) == (said if floor else untokened(said))
    assert event.from_state is None
    assert change.after.fencing_token == floor
    assert changed(change.after, claim(), LATER).after.fencing_token == floor + 1


def test_a_cancel_request_is_a_control_event_and_no_transition() -> None:
    change = changed(job_in(State.RUNNING), cancel(reason="enough"), LATER)

    [event] = change.events
    assert words(event) == {
        "event_type": "job_cancel_requested",
        "event_class": "control",
        "offset": 4,
        "attempt": 1,
        "fencing_token": 1,
        "op_id": "op-cancel",
        "actor": USER,
        "reason": "enough",
    }
    assert change.after.cancel is not None
    assert change.after.cancel.requested_at == LATER
    assert change.after.reason is None


def test_a_refused_owner_leaves_a_fact_about_itself() -> None:
    job = replace(job_in(State.RUNNING), fencing_token=43)

    [fact] = refused(job, release(42, actor="worker:zombie"), LATER).facts

    assert words(fact) == {
        "event_type": "job_stale_write_rejected",
        "event_class": "fact",
        "attempt": 1,
        "fencing_token": 42,
        "actor": "worker:zombie",
        "reason": "release with token 42; the job is running under token 43",
        "given_id": "job-1/stale_write_rejected/42/release",
        "attributes": {"verb": "release"},
    }


def test_a_suspicion_is_a_fact_of_one_silence() -> None:
    job = changed(job_in(State.QUEUED), claim(heartbeat_interval=30 * SECOND)).after
    beaten = changed(job, heartbeat()).after

    [first] = changed(job, Expire(), LATER).facts
    [second] = changed(beaten, Expire(), LATER).facts

    assert words(first) == {
        "event_type": "job_orphan_suspected",
        "event_class": "fact",
        "attempt": 1,
        "fencing_token": 1,
        "actor": "system:expire",
        "reason": "w missed two heartbeats",
        "given_id": "job-1/orphan_suspected/1/0",
    }
    assert second.event_id == "job-1/orphan_suspected/1/1"


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (State.PENDING, "the deadline passed before it was claimed"),
        (State.SUBMITTING, "timeout: the deadline passed before it was claimed"),
        (State.QUEUED, "timeout: the deadline passed before it was claimed"),
        (State.RUNNING, "timeout: the deadline passed"),
    ],
)
def test_a_deadline_passes_in_the_name_of_the_system(state: State, reason: str) -> None:
    job = replace(job_in(state), deadline_at=NOW)

    [event] = changed(job, Expire(), LATER).events

    assert event.op_id == f"expire:{job.version}"
    assert event.actor == "system:expire"
    assert event.reason == reason


def test_time_up_is_an_error_of_its_own() -> None:
    job = replace(job_in(State.QUEUED), deadline_at=NOW)

    ended = changed(job, Expire(), LATER).after

    assert ended.error == Failure(
        message="the deadline passed before it was claimed",
        code="TimeUp",
        crash=True,
        reason_code=ReasonCode.TIMEOUT,
    )


def test_an_executor_that_refuses_leaves_its_words() -> None:
    [silent] = changed(job_in(State.SUBMITTING), handoff(REFUSED), LATER).events
    change = changed(job_in(State.SUBMITTING), handoff(REFUSED, error="x" * 5000), LATER)

    failure = change.after.error
    assert silent.reason == "The executor refused the job."
    assert silent.attributes == {"error": {"message": silent.reason, "retryable": False}}
    assert failure is not None
    assert (len(failure.message) <= 4096, failure.retryable) == (True, False)
    assert change.events[0].reason == failure.message


def test_a_restore_says_so_twice_when_somebody_held_the_job() -> None:
    noted, moved_back = changed(job_in(State.RUNNING), Restore(op_id="op-restore"), LATER).events

    assert (noted.event_class, noted.transition_no, noted.from_state) == ("control", None, None)
    assert (noted.actor, noted.fencing_token) == ("system:restore", 1 + 2**40)
    assert moved_back.reason == "restored from a backup"
    assert moved_back.attributes == {"cause": "restored"}
