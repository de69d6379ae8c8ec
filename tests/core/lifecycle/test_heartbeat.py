"""Signs of life: what they start, renew and keep, and what silence means."""

from datetime import timedelta

import pytest

from holdfast.core.errors import Fenced
from holdfast.core.job import Job, Progress
from holdfast.core.lifecycle import Expire
from holdfast.core.spec import Spec
from holdfast.core.state import State
from tests.core.sample_jobs import (
    LATER,
    NOW,
    after,
    aggregate,
    changed,
    claim,
    enqueue,
    heartbeat,
    job_in,
    refused,
)

SECOND = timedelta(seconds=1)


def test_the_first_sign_of_life_starts_and_later_ones_write_no_event() -> None:
    first = changed(job_in(State.ASSIGNED), heartbeat())
    second = changed(first.after, heartbeat(progress=Progress(3, 8), checkpoint={"epoch": 3}), LATER)

    assert [event.event_type for event in first.events] == ["job_started"]
    assert (first.after.started_at, first.before) == (NOW, job_in(State.ASSIGNED))
    assert second.events == ()
    assert second.after.version == first.after.version
    assert second.after.lease is not None
    assert second.after.lease.heartbeat_at == LATER
    assert second.after.lease.expires_at == LATER + 60 * SECOND
    assert (second.after.progress, second.after.checkpoint) == (Progress(3, 8), {"epoch": 3})
    assert second.after.heartbeats == 2


def test_a_heartbeat_may_change_the_length_of_the_lease_for_good() -> None:
    longer = changed(job_in(State.RUNNING), heartbeat(lease=300 * SECOND)).after
    again = changed(longer, heartbeat(), LATER).after

    assert longer.lease is not None
    assert again.lease is not None
    assert longer.lease.expires_at == NOW + 300 * SECOND
    assert again.lease.expires_at == LATER + 300 * SECOND


def test_a_heartbeat_without_progress_keeps_the_last_one() -> None:
    told = changed(job_in(State.RUNNING), heartbeat(progress=Progress(3), checkpoint=[1])).after

    silent = changed(told, heartbeat(), LATER).after

    assert (silent.progress, silent.checkpoint) == (Progress(3), [1])


@pytest.mark.parametrize("empty", [0, {}, [], "", False])
def test_an_empty_checkpoint_replaces_the_one_before(empty: object) -> None:
    told = changed(job_in(State.RUNNING), heartbeat(checkpoint={"epoch": 3})).after

    reset = changed(told, heartbeat(checkpoint=empty)).after

    assert reset.checkpoint == empty


@pytest.mark.parametrize("seconds", [30, 61, 3600])
def test_a_lapsed_lease_still_holds_while_nobody_took_it(seconds: int) -> None:
    beaten = changed(job_in(State.RUNNING), heartbeat(), NOW + seconds * SECOND)

    assert beaten.after.lease is not None
    assert beaten.after.lease.expires_at == NOW + (seconds + 60) * SECOND


def test_aggregating_starts_first_and_a_repeat_changes_nothing() -> None:
    change = changed(job_in(State.ASSIGNED), aggregate())

    assert [e.event_type for e in change.events] == ["job_started", "job_aggregating"]
    assert change.after.started_at == NOW
    assert changed(change.after, aggregate()).after is change.after


def test_two_missed_heartbeats_are_said_once_and_take_nothing() -> None:
    job = changed(job_in(State.QUEUED), claim(heartbeat_interval=30 * SECOND)).after

    early = changed(job, Expire(), NOW + 59 * SECOND)
    suspected = changed(job, Expire(), NOW + 60 * SECOND)
    again = changed(suspected.after, Expire(), NOW + 89 * SECOND)
    beaten = changed(suspected.after, heartbeat(), NOW + 70 * SECOND).after
    lost = changed(suspected.after, Expire(), NOW + 90 * SECOND)

    assert early.after is job
    assert [fact.event_type for fact in suspected.facts] == ["job_orphan_suspected"]
    assert (suspected.events, suspected.after.version) == ((), job.version)
    assert _suspected(suspected.after)
    assert again.after is suspected.after
    assert not _suspected(beaten)
    assert lost.events[0].attributes["cause"] == "orphaned"


def _suspected(job: Job) -> bool:
    return job.lease is not None and job.lease.suspected


def test_an_owner_refused_by_its_deadline_is_no_stale_owner() -> None:
    job = after(enqueue(Spec(ttl=60 * SECOND)), claim())

    refusal = refused(job, heartbeat(), NOW + 60 * SECOND)

    assert isinstance(refusal.error, Fenced)
    assert refusal.facts == ()
