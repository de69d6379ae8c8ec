"""Planted mistakes about the owner of a job and its lease."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from holdfast.core import lifecycle, quota
from holdfast.core.event import Event
from holdfast.core.job import Job, Lease, ResourceLock
from holdfast.core.lifecycle import (
    Change,
    Complete,
    Heartbeat,
    Publish,
    Release,
    ownership,
)
from holdfast.core.lifecycle.draft import Draft
from holdfast.core.limits import OUTPUT_ATTEMPT_BYTES_MAX
from holdfast.core.state import State
from holdfast.testing.simulation.planted_bug import Swaps, bug


def _token_blind(*verbs: type[Any]) -> Swaps:
    real = lifecycle._decide

    def decide(command: Any, job: Job | None, *rest: Any) -> Change:
        if isinstance(command, verbs) and job is not None:
            command = replace(command, token=job.fencing_token)
        return real(command, job, *rest)

    return ((lifecycle, "_decide", decide),)


@bug(trap=4)
def owner_by_name() -> Swaps:
    """A caller with the owner's name is taken for the owner."""
    real = lifecycle._decide

    def decide(command: Any, job: Job | None, *rest: Any) -> Change:
        if hasattr(command, "token") and job is not None and command.actor == f"worker:{job.owner}":
            command = replace(command, token=job.fencing_token)
        return real(command, job, *rest)

    return ((lifecycle, "_decide", decide),)


def _before_grant(spoil: Any) -> Swaps:
    real = ownership._grant

    def grant(draft: Draft, command: Any) -> None:
        spoil(draft)
        real(draft, command)

    return ((ownership, "_grant", grant),)


def _reset_token(draft: Draft) -> None:
    draft.token = 0


def _keep_token(draft: Draft) -> None:
    draft.token = max(0, draft.token - 1)


def _forget_lock_token(draft: Draft) -> None:
    if draft.resource is not None:
        draft.resource = ResourceLock(draft.resource.key, 0, draft.resource.holder)


@bug(trap=46)
def lock_leaks() -> Swaps:
    """The end of a lease leaves the lock behind."""

    def end_lease(self: Draft, _: State) -> None:
        self._changes["lease"] = None

    return ((Draft, "_end_lease", end_lease),)


@bug(trap=8)
def expires_early() -> Swaps:
    """A lease is taken a second before its end."""
    real = lifecycle._decide

    def decide(command: Any, job: Job | None, *rest: Any) -> Change:
        if isinstance(command, lifecycle.Expire) and job is not None and job.lease is not None:
            early = replace(job.lease, expires_at=job.lease.expires_at - timedelta(seconds=1))
            return real(command, replace(job, lease=early), *rest)
        return real(command, job, *rest)

    due_at = Job.due_at.fget  # type: ignore[attr-defined]

    def early_due_at(job: Job) -> datetime | None:
        due: datetime | None = due_at(job)
        return due - timedelta(seconds=1) if due is not None and job.lease else due

    return ((lifecycle, "_decide", decide), (Job, "due_at", property(early_due_at)))


def _spoil_lease(spoil: Any) -> Swaps:
    real = ownership.heartbeat

    def heartbeat(job: Job, command: Heartbeat, now: datetime) -> Change:
        change = real(job, command, now)
        assert job.lease is not None  # or it had been refused
        assert change.after.lease is not None
        return replace(change, after=replace(change.after, lease=spoil(job.lease, change.after.lease)))

    return ((ownership, "heartbeat", heartbeat),)


def _twice_as_long(before: Lease, after: Lease) -> Lease:
    return replace(after, expires_at=after.expires_at + after.ttl)


def _as_before(before: Lease, after: Lease) -> Lease:
    return before


@bug(trap=49)
def ended_job_completed() -> Swaps:
    """A late completion moves an ended job."""
    real = lifecycle._decide

    def decide(command: Any, job: Job | None, now: datetime, *rest: Any) -> Change:
        if isinstance(command, Complete) and job is not None and job.lease is None:
            second = timedelta(seconds=1)
            lease = Lease(owner="x", expires_at=now, ttl=second, granted_at=now, heartbeat_at=now)
            job = replace(job, state=State.RUNNING, lease=lease, fencing_token=command.token)
        return real(command, job, now, *rest)

    return ((lifecycle, "_decide", decide),)


@bug(trap=41, store="memory")
def claimed_before_ready() -> Swaps:
    """A job is claimed before it is ready."""
    from holdfast.stores.memory import MemoryStore

    check, claimable = ownership._check_claimable, MemoryStore._claimable

    def check_early(draft: Draft, command: Any) -> None:
        job = draft.job
        draft.job = replace(job, ready_at=draft.now)
        check(draft, command)
        draft.job = job

    def claimable_early(self: Any, job: Job, ready: Any, batch: Any) -> bool:
        return claimable(self, replace(job, ready_at=batch.now), ready, batch)

    return (
        (ownership, "_check_claimable", check_early),
        (MemoryStore, "_claimable", claimable_early),
    )


@bug(trap=6)
def lease_outlives_deadline() -> Swaps:
    """A lease outlives the job's deadline."""
    return ((ownership, "_until", lambda _, expires_at: expires_at),)


@bug(trap=1, timed=True)
def timeout_not_enforced() -> Swaps:
    """An attempt whose owner does not keep its timeout is not ended."""
    return ((Job, "timeout_at", None),)


@bug(trap=9, store="memory")
def lock_ignored() -> Swaps:
    """A lock that is held is granted again."""
    from holdfast.stores.memory import MemoryStore

    real = MemoryStore._lock_of

    def lock(self: Any, key: str) -> ResourceLock:
        return ResourceLock(key, real(self, key).token, None)

    return ((MemoryStore, "_lock_of", lock),)


@bug(trap=48)
def complete_by_id() -> Swaps:
    """A completion is accepted whatever its token."""
    return _token_blind(Complete)


@bug(trap=3)
def heartbeat_by_id() -> Swaps:
    """A heartbeat renews whatever lease the job has."""
    return _token_blind(Heartbeat)


@bug(trap=48)
def release_by_id() -> Swaps:
    """A release is accepted for another owner's job."""
    return _token_blind(Release)


@bug(trap=48)
def publish_by_id() -> Swaps:
    """Output of a stale owner is stored in its successor's attempt."""
    return _token_blind(Publish)


@bug(trap="I14")
def dropped_output_not_reported() -> Swaps:
    """Output beyond the quota of an attempt is dropped, and that is not recorded."""

    def some(events: Sequence[Event], size: int, *, full: bool) -> quota.QuotaResult:
        kept = quota.apply_quota(events, size + OUTPUT_ATTEMPT_BYTES_MAX, full=full)
        return replace(kept, events=kept.events[1:], size=size, dropped=0)

    return ((ownership, "apply_quota", some),)


@bug(trap=48)
def late_output_of_any_owner() -> Swaps:
    """After the end, output is accepted from every former owner."""

    def late(job: Job, _: int, now: datetime) -> bool:
        return job.owner_ended_at is not None

    return ((ownership, "_ended_recently", late),)


@bug(trap=48)
def late_output_after_lost_lease() -> Swaps:
    """After the end, output is accepted from an owner that had lost the job."""

    def late(job: Job, token: int, now: datetime) -> bool:
        return job.ended and token == job.fencing_token

    return ((ownership, "_ended_recently", late),)


@bug(trap=45)
def token_reset() -> Swaps:
    """Every claim starts with token 1."""
    return _before_grant(_reset_token)


@bug(trap=4)
def token_reused() -> Swaps:
    """A second claim gets the token of the first."""
    return _before_grant(_keep_token)


@bug(trap=9)
def lock_token_per_job() -> Swaps:
    """Tokens of one lock are counted per job."""
    return _before_grant(_forget_lock_token)


@bug(trap=6)
def renewed_for_twice_the_time() -> Swaps:
    """A heartbeat renews for twice the time."""
    return _spoil_lease(_twice_as_long)


@bug(trap=5)
def heartbeat_renews_nothing() -> Swaps:
    """A heartbeat is acknowledged and renews nothing."""
    return _spoil_lease(_as_before)
