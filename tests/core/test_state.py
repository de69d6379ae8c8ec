"""The state machine, written down a second time: whoever changes an arrow changes it here too."""

import pytest

from holdfast.core.state import ENDED, LEASED, LEGAL, RANK, TRANSITIONS, State, advances

RANKS = {
    0: "pending",
    1: "submitting",
    2: "queued",
    3: "assigned",
    4: "running",
    5: "aggregating",
    6: "validating",
    7: "partial_success",
    8: "succeeded failed cancelled timeout dead_lettered",
}
EVERYBODY = "sync system user validator worker"
SUBMITTER = "sync system user worker"
HOLDER = "sync validator worker"
CLOSER = "sync system worker"
LEASE = "assigned running aggregating"
ARROWS = {
    "T0": ("None", "pending", "job_registered", SUBMITTER),
    "T1": ("None", "queued", "job_queued", EVERYBODY),
    "T2": ("pending", "submitting", "job_submitting", SUBMITTER),
    "T3": ("submitting", "queued", "job_queued", SUBMITTER),
    "T4": ("submitting", "failed", "job_failed", SUBMITTER),
    "T5": ("pending queued", "cancelled", "job_cancelled", SUBMITTER),
    "T6": ("queued", "assigned", "job_claimed", HOLDER),
    "T7": ("assigned", "running", "job_started", HOLDER),
    "T8": ("running", "aggregating", "job_aggregating", HOLDER),
    "T9": ("running aggregating", "succeeded", "job_succeeded", HOLDER),
    "T10": ("running aggregating", "validating", "job_validating", HOLDER),
    "T11": ("validating", "succeeded", "job_succeeded", "user validator"),
    "T12": ("validating", "partial_success", "job_partially_succeeded", "validator"),
    "T13": ("validating", "failed", "job_failed", "user validator"),
    "T14": ("partial_success", "succeeded", "job_succeeded", "validator"),
    "T15": (LEASE, "failed", "job_failed", CLOSER),
    "T16": (LEASE, "queued", "job_requeued", CLOSER),
    "T17": (f"queued {LEASE}", "dead_lettered", "job_dead_lettered", CLOSER),
    "T18": (f"queued {LEASE}", "timeout", "job_timed_out", CLOSER),
    "T19": (LEASE, "cancelled", "job_cancelled", SUBMITTER),
}


def test_every_arrow_is_as_it_was_agreed() -> None:
    table = {
        arrow.number: (
            " ".join(map(str, arrow.sources)),
            arrow.target,
            arrow.event,
            " ".join(sorted(arrow.actors)),
        )
        for arrow in TRANSITIONS
    }

    assert table == ARROWS


def test_every_arrow_is_found_by_its_ends() -> None:
    ends = {(str(source), str(target)): arrow.number for (source, target), arrow in LEGAL.items()}

    assert ends == {
        (source, target): number
        for number, (sources, target, _, _) in ARROWS.items()
        for source in sources.split()
    }


def test_only_a_requeue_opens_the_next_attempt() -> None:
    assert [arrow.number for arrow in TRANSITIONS if arrow.next_attempt] == ["T16"]


def test_states_keep_their_names_and_their_ranks() -> None:
    assert {state: rank for rank, states in RANKS.items() for state in states.split()} == RANK
    assert " ".join(State) == " ".join(RANKS.values())
    for state in State:
        assert state.name == state.value.upper()


def test_a_lease_is_held_in_three_states_and_six_are_an_end() -> None:
    assert set(LEASE.split()) == LEASED
    assert {state for state in State if RANK[state] >= 7} == ENDED


@pytest.mark.parametrize(
    ("before", "after", "forward"),
    [
        ((1, State.QUEUED), (1, State.ASSIGNED), True),
        ((1, State.QUEUED), (1, State.QUEUED), False),
        ((1, State.RUNNING), (1, State.QUEUED), False),
        ((1, State.RUNNING), (2, State.QUEUED), True),
        ((2, State.QUEUED), (1, State.RUNNING), False),
        ((1, State.FAILED), (1, State.SUCCEEDED), False),
    ],
)
def test_forward_is_a_higher_rank_or_the_next_attempt(
    before: tuple[int, State], after: tuple[int, State], forward: bool
) -> None:
    assert advances(before, after) is forward
