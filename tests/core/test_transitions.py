"""Every state meets every command: it follows an arrow of the table, or it changes nothing."""

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import TRANSITION_TYPES, EventClass
from holdfast.core.errors import Conflict, Denied, Fenced, HoldfastError, NotFound
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, Command, Expire, Refusal, Stopped, Success, decide
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.spec import Spec
from holdfast.core.state import ENDED, LEASED, LEGAL, RANK, TRANSITIONS, State, advances
from tests.core.sample_jobs import (
    BEGIN,
    COMMANDS,
    DONE,
    LATER,
    NOW,
    PERMANENT,
    REFUSED,
    TRANSIENT,
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
    release,
)

S = State
KINDS = ("user", "worker", "system", "sync", "validator")

Answer = State | type[HoldfastError]

_CANCELS = {S.PENDING: S.CANCELLED, S.QUEUED: S.CANCELLED, S.SUBMITTING: S.SUBMITTING}
_STAYS = {state: state for state in State}
_JUDGED = {S.VALIDATING: S.VALIDATING, S.PARTIAL_SUCCESS: S.PARTIAL_SUCCESS}


_COMPLETED = {
    state: state for state in (S.VALIDATING, S.SUCCEEDED, S.PARTIAL_SUCCESS, S.FAILED, S.DEAD_LETTERED)
}
"""Where `lives` has jobs that their owners ended: they may publish a little later."""


def _leased(target: State) -> dict[State, State]:
    return dict.fromkeys(LEASED, target)


# What becomes of a job in a state that is not named is the error beside the table.
EXPECTED: dict[str, tuple[dict[State, State], Answer]] = {
    "enqueue": ({}, Conflict),
    "claim": ({S.QUEUED: S.ASSIGNED}, Conflict),
    "heartbeat": ({**_leased(S.RUNNING), S.AGGREGATING: S.AGGREGATING}, Fenced),
    "publish": ({**_leased(S.RUNNING), S.AGGREGATING: S.AGGREGATING, **_COMPLETED}, Fenced),
    "note a refusal": (_STAYS, Fenced),
    "aggregate": (_leased(S.AGGREGATING), Fenced),
    "succeed": (_leased(S.SUCCEEDED), Fenced),
    "fail": (_leased(S.QUEUED), Fenced),
    "fail for good": (_leased(S.FAILED), Fenced),
    "stop": (_leased(S.CANCELLED), Fenced),
    "release": (_leased(S.QUEUED), Fenced),
    "stale heartbeat": ({}, Fenced),
    "stale publish": ({}, Fenced),
    "note a stale refusal": (_STAYS, Fenced),
    "stale complete": ({}, Fenced),
    "stale release": ({}, Fenced),
    "stale aggregate": ({}, Fenced),
    "cancel": ({**_CANCELS, **{state: state for state in LEASED}}, Conflict),
    "hard cancel": ({**_CANCELS, **_leased(S.CANCELLED)}, Conflict),
    "expire": (_STAYS, Conflict),
    "begin handoff": ({S.PENDING: S.SUBMITTING}, Conflict),
    "finish handoff": ({S.SUBMITTING: S.QUEUED}, Conflict),
    "refuse handoff": ({S.SUBMITTING: S.FAILED}, Conflict),
    "look": (_JUDGED, Conflict),
    "look in vain": (_JUDGED, Conflict),
    "judge all": ({S.VALIDATING: S.SUCCEEDED, S.PARTIAL_SUCCESS: S.SUCCEEDED}, Conflict),
    "judge some": ({S.VALIDATING: S.PARTIAL_SUCCESS, S.PARTIAL_SUCCESS: S.PARTIAL_SUCCESS}, Conflict),
    "judge none": ({S.VALIDATING: S.FAILED, S.PARTIAL_SUCCESS: S.PARTIAL_SUCCESS}, Conflict),
    "restore": ({**_STAYS, **_leased(S.QUEUED)}, Conflict),
}  # fmt: skip

EVERY = [(state, name) for state in State for name in COMMANDS]


@pytest.mark.parametrize(("state", "name"), EVERY)
def test_each_command_takes_each_state_where_the_table_says(state: State, name: str) -> None:
    job = job_in(state)

    decision = decide(COMMANDS[name], job, NOW)

    targets, otherwise = EXPECTED[name]
    if state in targets:
        assert isinstance(decision, Change), decision
        assert decision.after.state is targets[state]
    else:
        assert isinstance(decision, Refusal), decision
        assert type(decision.error) is otherwise


@pytest.mark.parametrize(("state", "name"), EVERY)
def test_a_change_follows_the_arrows_and_a_refusal_changes_nothing(state: State, name: str) -> None:
    job = job_in(state)

    decision = decide(COMMANDS[name], job, NOW)

    assert job == job_in(state)
    if isinstance(decision, Change):
        _assert_lawful(job, decision)
    else:
        assert decision.job is job
        assert (decision.error.job_id, decision.error.version) == (job.job_id, job.version)
        assert len(decision.facts) == isinstance(decision.error, Fenced)


def _assert_lawful(job: Job, change: Change) -> None:
    here, attempt = job.state, job.attempt
    for n, event in enumerate(change.events, start=job.version + 1):
        assert event.offset == n
        if event.event_class is EventClass.TRANSITION:
            assert event.from_state is here
            assert event.to_state is not None
            arrow = LEGAL[here, event.to_state]
            assert event.event_type == arrow.event
            assert event.attempt == attempt + arrow.next_attempt
            assert advances((attempt, here), (event.attempt, event.to_state))
            here, attempt = event.to_state, event.attempt
    moves = [e for e in change.events if e.event_class is EventClass.TRANSITION]
    assert (change.after.state, change.after.attempt) == (here, attempt)
    assert change.after.version == job.version + len(change.events)
    assert change.after.transition_no == job.transition_no + len(moves)
    assert (change.after.lease is not None) == change.after.leased
    assert (change.after.ended_at is not None) == change.after.ended


@pytest.mark.parametrize(("state", "name"), EVERY)
def test_deciding_twice_gives_the_same_answer(state: State, name: str) -> None:
    job = job_in(state)

    first, second = (decide(COMMANDS[name], job, LATER) for _ in range(2))

    if isinstance(first, Change):
        assert first == second
    else:
        assert isinstance(second, Refusal)
        assert (str(first.error), first.facts) == (str(second.error), second.facts)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("enqueue", "claim")])
def test_no_command_but_enqueue_makes_a_job(name: str) -> None:
    decision = decide(COMMANDS[name], None, NOW)

    assert isinstance(decision, Refusal)
    assert decision.job is None
    assert decision.error.version is None
    assert isinstance(decision.error, NotFound)


TIMED_OUT = Spec(promised_outputs=0, retry=Retry(max_failures=1, on_exhausted=OnExhausted.TIMEOUT))


def _with(state: State, spec: Spec) -> Job:
    return replace(job_in(state), spec=spec)


def _taking(number: str, source: State | None, actor: str) -> tuple[Job | None, Command]:
    """A job and a command of this actor that takes this arrow from this state."""
    job = None if source is None else job_in(source)
    hard = cancel(hard=True, actor=actor)
    commands: dict[str, Command] = {
        "T0": enqueue(register=True, actor=actor),
        "T1": enqueue(actor=actor),
        "T2": handoff(BEGIN, actor=actor),
        "T3": handoff(DONE, actor=actor),
        "T4": handoff(REFUSED, actor=actor),
        "T5": hard,
        "T6": claim("op-2", actor=actor),
        "T7": heartbeat(actor=actor),
        "T8": aggregate(actor=actor),
        "T9": complete(Success(), actor=actor),
        "T10": complete(Success(), actor=actor),
        "T11": judge(8, 0, actor=actor),
        "T12": judge(5, 3, actor=actor),
        "T13": judge(0, 8, actor=actor),
        "T14": judge(8, 0, actor=actor),
        "T15": complete(PERMANENT, actor=actor),
        "T16": release(actor=actor),
        "T17": complete(TRANSIENT, actor=actor),
        "T18": complete(TRANSIENT, actor=actor),
        "T19": hard,
    }
    if source is None:
        return None, commands[number]
    if number == "T10":
        job = _with(source, Spec(promised_outputs=8))
    elif number == "T17":
        job = _with(source, Spec(retry=Retry(max_failures=1)))
    elif number == "T18":
        job = _with(source, TIMED_OUT)
    return job, commands[number]


ARROWS = [
    (arrow.number, source, kind)
    for arrow in TRANSITIONS
    for source in arrow.sources
    for kind in KINDS
    # A queued job is only ended by time; an assigned one is started first, by whoever ends it.
    if not (arrow.number in ("T17", "T18") and source is State.QUEUED)
    and not (arrow.number in ("T15", "T17", "T18") and source is State.ASSIGNED)
]


@pytest.mark.parametrize(("number", "source", "kind"), ARROWS)
def test_only_those_named_in_the_table_may_take_an_arrow(
    number: str, source: State | None, kind: str
) -> None:
    [arrow] = [arrow for arrow in TRANSITIONS if arrow.number == number]
    job, command = _taking(number, source, f"{kind}:x")

    decision = decide(command, job, NOW)

    if kind in arrow.actors:
        assert isinstance(decision, Change), decision
        assert decision.after.state is arrow.target
        assert decision.events[-1].event_type == arrow.event
    else:
        assert isinstance(decision, Refusal), decision
        assert type(decision.error) is Denied


@pytest.mark.parametrize("state", [S.SUBMITTING, *sorted(LEASED)])
@pytest.mark.parametrize("actor", ["validator:v", "nobody"])
def test_a_soft_cancel_needs_the_same_right_as_a_cancel(state: State, actor: str) -> None:
    decision = decide(cancel(actor=actor), job_in(state), NOW)

    assert isinstance(decision, Refusal), decision
    assert type(decision.error) is Denied


@pytest.mark.parametrize("state", [S.QUEUED, *sorted(LEASED)])
def test_time_ends_a_job_by_its_policy_from_every_state_it_can_wait_in(state: State) -> None:
    for policy, target in (
        (OnExhausted.DEAD_LETTER, S.DEAD_LETTERED),
        (OnExhausted.TIMEOUT, S.TIMEOUT),
        (OnExhausted.FAIL, S.TIMEOUT),
    ):
        job = replace(_with(state, Spec(retry=Retry(on_exhausted=policy))), deadline_at=NOW)

        assert changed(job, Expire(), LATER).after.state is target


def test_the_table_names_every_transition_event_and_every_state() -> None:
    assert {arrow.event for arrow in TRANSITIONS} == TRANSITION_TYPES
    assert {arrow.target for arrow in TRANSITIONS} == set(State)
    assert [arrow.number for arrow in TRANSITIONS] == [f"T{n}" for n in range(20)]


def test_no_two_arrows_share_source_and_target() -> None:
    assert len(LEGAL) == sum(len(arrow.sources) for arrow in TRANSITIONS)


def test_every_arrow_goes_forward_and_only_a_verdict_leaves_an_end() -> None:
    for (source, target), arrow in LEGAL.items():
        if source is not None:
            assert advances((1, source), (1 + arrow.next_attempt, target))
        if source in ENDED:
            assert (arrow.number, source, target) == ("T14", S.PARTIAL_SUCCESS, S.SUCCEEDED)
    assert set(RANK) == set(State)


def test_stopping_by_the_owner_ends_the_job_cancelled_in_two_events_of_one_op() -> None:
    change = changed(job_in(S.ASSIGNED), complete(Stopped(reason="the pod is going")))

    assert [event.event_type for event in change.events] == ["job_started", "job_cancelled"]
    assert {event.op_id for event in change.events} == {"op-complete"}
    assert change.after.reason == "the pod is going"
