"""Planted mistakes about the end of attempts and jobs, their budgets, and their events."""

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from holdfast.core import projection
from holdfast.core.job import CancelRequest, Failure, Job
from holdfast.core.lifecycle import (
    Cancel,
    Change,
    Enqueue,
    creation,
    ownership,
    termination,
)
from holdfast.core.lifecycle.draft import Draft, unchanged
from holdfast.core.state import State
from holdfast.registry import idempotency
from holdfast.testing.simulation.planted_bug import Swaps, bug


@bug(trap=41)
def no_backoff() -> Swaps:
    """A failed job is tried again at once."""
    return ((termination, "backoff", lambda *_: timedelta()),)


@bug(trap=43)
def crash_not_counted() -> Swaps:
    """An expired lease is not counted as a crash."""
    real = termination.close_expired

    def close_expired(draft: Draft, command: Any) -> None:
        draft.job = replace(draft.job, crashes=draft.job.crashes - 1)
        real(draft, command)

    return (
        (termination, "close_expired", close_expired),
        (ownership, "close_expired", close_expired),
    )


@bug(trap=43)
def one_attempt_too_many() -> Swaps:
    """A budget of n gives n + 1 tries."""
    real = termination._fail

    def fail(draft: Draft, *rest: Any) -> None:
        job = draft.job
        retry = replace(job.spec.retry, max_failures=job.spec.retry.max_failures + 1)
        draft.job = replace(job, spec=replace(job.spec, retry=retry))
        real(draft, *rest)
        draft.job = job

    return ((termination, "_fail", fail),)


@bug(trap=43)
def crashing_job_never_parked() -> Swaps:
    """A job that crashes its owners is tried for ever."""
    real = termination.close_expired

    def close_expired(draft: Draft, command: Any) -> None:
        job = draft.job
        retry = replace(job.spec.retry, max_crashes=100)
        draft.job = replace(job, spec=replace(job.spec, retry=retry))
        real(draft, command)
        draft.job = job

    return (
        (termination, "close_expired", close_expired),
        (ownership, "close_expired", close_expired),
    )


@bug(trap=44)
def release_counted_as_failure() -> Swaps:
    """Giving a job back counts as a failure."""
    real = termination.release

    def release(job: Job, *rest: Any) -> Change:
        change = real(job, *rest)
        return replace(change, after=replace(change.after, failures=job.failures + 1))

    return ((termination, "release", release),)


@bug(trap=44)
def not_understood_is_fatal() -> Swaps:
    """A job that one worker does not understand is parked at once."""
    real = termination._is_forgiven

    def is_forgiven(job: Job, failure: Failure) -> bool:
        return not failure.not_understood and real(job, failure)

    return ((termination, "_is_forgiven", is_forgiven),)


@bug(trap=44)
def not_understood_counted_as_failure() -> Swaps:
    """A job that one worker does not understand has failed once more."""
    real = termination._give_back

    def give_back(draft: Draft, failure: Failure) -> None:
        real(draft, failure)
        draft._changes["failures"] = draft.job.failures + 1

    return ((termination, "_give_back", give_back),)


@bug(trap=44)
def not_understood_never_counted() -> Swaps:
    """Jobs that no worker understands are given back for ever: it is not counted."""
    real = termination._give_back

    def give_back(draft: Draft, failure: Failure) -> None:
        draft.job = replace(draft.job, not_understood=draft.job.not_understood - 1)
        real(draft, failure)

    return ((termination, "_give_back", give_back),)


@bug(trap=44)
def not_started_is_fatal() -> Swaps:
    """A job that one machine could not start has failed at once."""
    real = termination._is_forgiven

    def is_forgiven(job: Job, failure: Failure) -> bool:
        return not failure.not_started and real(job, failure)

    return ((termination, "_is_forgiven", is_forgiven),)


@bug(trap=44)
def not_started_never_counted() -> Swaps:
    """Jobs that no machine can start are given back for ever: it is not counted."""
    real = termination._give_back

    def give_back(draft: Draft, failure: Failure) -> None:
        if failure.not_started:
            draft.job = replace(draft.job, not_started=draft.job.not_started - 1)
        real(draft, failure)

    return ((termination, "_give_back", give_back),)


@bug(trap=41)
def not_understood_without_wait() -> Swaps:
    """A job that is not understood is given back without a wait."""
    return ((termination, "give_back_wait", lambda _: timedelta()),)


@bug(trap=40)
def ended_job_cancelled() -> Swaps:
    """A cancel ends a job that has ended."""
    real = termination.cancel

    def cancel(job: Job, command: Cancel, now: datetime, resource: Any) -> Change:
        if not job.ended:
            return real(job, command, now, resource)
        draft = Draft(job, now=now, op_id=command.op_id, actor=command.actor)
        draft.state = State.RUNNING
        draft.move(State.CANCELLED, ended_at=now)
        return draft.change()

    return ((termination, "cancel", cancel),)


@bug(trap=40)
def cancel_not_stored() -> Swaps:
    """A cancel is acknowledged and not stored."""
    real = termination.cancel

    def cancel(job: Job, *rest: Any) -> Change:
        return unchanged(job) if job.leased else real(job, *rest)

    return ((termination, "cancel", cancel),)


@bug(trap=13)
def two_events_for_one_transition() -> Swaps:
    """One transition writes two events."""
    real = Draft.move

    def move(self: Draft, target: State, **more: Any) -> None:
        real(self, target, **more)
        if target is State.ASSIGNED:
            self._version += 1
            self._events += (replace(self._events[-1], offset=self._version),)

    return ((Draft, "move", move),)


@bug(trap=20)
def offset_skips() -> Swaps:
    """An offset is left out."""
    real = Draft.move

    def move(self: Draft, target: State, **more: Any) -> None:
        self._version += target is State.QUEUED
        real(self, target, **more)

    return ((Draft, "move", move),)


@bug(trap=13)
def event_lacks_field() -> Swaps:
    """The record has a value that its event lacks."""
    real = Draft.move

    def move(self: Draft, target: State, *, attributes: Any = None, **more: Any) -> None:
        attributes = {k: v for k, v in (attributes or {}).items() if k != "crashes"}
        real(self, target, attributes=attributes, **more)

    return ((Draft, "move", move),)


@bug(trap=39)
def fold_in_arrival_order() -> Swaps:
    """The projection folds events in the order of arrival."""
    real = projection.fold

    def fold(events: Any, job_id: str) -> Any:
        listed = [event for event in events if event.job_id == job_id]
        numbered = [replace(event, offset=n) for n, event in enumerate(listed, 1)]
        return real(numbered, job_id)

    return ((projection, "fold", fold),)


@bug(trap=39)
def fold_counts_repeats() -> Swaps:
    """The projection counts an event twice that came twice."""
    real = projection.fold

    def fold(events: Any, job_id: str) -> Any:
        listed = list(events)
        folded = real(listed, job_id)
        folded.job.attempt = 1 + sum(e.event_type == "job_requeued" for e in listed)
        return folded

    return ((projection, "fold", fold),)


@bug(trap=17)
def payload_ignored() -> Swaps:
    """An enqueue with another payload under a used id returns the old job."""
    real = creation.enqueue

    def enqueue(job: Job | None, command: Enqueue, *rest: Any) -> Change:
        return real(job, command, *rest) if job is None else unchanged(job)

    return ((creation, "enqueue", enqueue),)


@bug(trap=17)
def different_outcome_accepted() -> Swaps:
    """A second report with another outcome is acknowledged."""
    return ((idempotency, "_same", lambda *_: True),)


@bug(trap=11)
def same_outcome_refused() -> Swaps:
    """A repeat of the same outcome under another op_id is fenced."""
    return ((idempotency, "_same", lambda *_: False),)


@bug(trap=40)
def cancel_keeps_lease() -> Swaps:
    """A hard cancel ends the job and not its lease."""
    real = termination.cancel

    def cancel(job: Job, command: Cancel, now: datetime, resource: Any) -> Change:
        change = real(job, command, now, resource)
        if job.lease is None or not change.events:
            return change
        request = CancelRequest(actor=command.actor, requested_at=now)
        return replace(change, after=replace(change.after, lease=job.lease, cancel=request))

    return ((termination, "cancel", cancel),)
