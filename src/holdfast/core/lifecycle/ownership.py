"""The acts of an owner: claim, heartbeat, publish, aggregate. After the claim, each names its token."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from msgspec.structs import replace

from holdfast.core.catalogue import EventType, WorkerEventType
from holdfast.core.errors import Conflict, Fenced, Invalid, NotFound
from holdfast.core.event import Attributes, Event, check_published
from holdfast.core.job import Flaws, Job, Lease, ResourceLock, timeout_failure
from holdfast.core.lifecycle.commands import (
    Aggregate,
    Claim,
    Expire,
    Heartbeat,
    Publish,
    RefusePublish,
)
from holdfast.core.lifecycle.creation import create
from holdfast.core.lifecycle.draft import Change, Draft, make_fact, unchanged
from holdfast.core.lifecycle.termination import close_expired, has_timed_out
from holdfast.core.limits import (
    CLOCK_AHEAD_MAX,
    EVENTS_PER_PUBLISH_MAX,
    NUMBER_MAX,
    OUTPUT_LATE_MAX,
    check_interval,
    check_lease,
    clip,
)
from holdfast.core.process_spec import holdfast_worker_reason
from holdfast.core.quota import QUOTA_EXCEEDED, apply_quota
from holdfast.core.state import State
from holdfast.core.visibility import REFUSED_FOR_HOLDER

# A member's name is looked up by a Python function of the enum (0.1 us): once is enough.
QUEUED, ASSIGNED = State.QUEUED, State.ASSIGNED


def claim(
    job: Job | None, command: Claim, now: datetime, resource: ResourceLock | None, floor: int
) -> Change:
    """T6: grant the lease, or raise why not. A repeat of the same op_id returns the same grant."""
    if job is None:
        if command.create is None:
            raise NotFound("There is no such job.")
        made = create(command.create, now, State.QUEUED, floor)
        draft = Draft.from_creation(made, actor=command.actor, resource=resource)
    else:
        if job.claim_op_id == command.op_id:
            if job.lease is None:
                raise Conflict("This claim was granted before, and its grant is gone.")
            if job.lease.owner != command.owner:
                raise Conflict(f"Job owned by {job.lease.owner}.")
            return unchanged(job)
        draft = Draft(job, now, command.op_id, command.actor, resource)
        if job.lease is not None and job.lease.expires_at <= now and not has_timed_out(job, now):
            close_expired(draft, Expire())
    _grant(draft, command)
    return draft.change()


def _grant(draft: Draft, command: Claim) -> None:
    job, now, resource = draft.job, draft.now, draft.resource
    _check_claimable(draft, command)
    draft.op_id, draft.actor = command.op_id, command.actor
    draft.token += 1
    if resource is not None:
        draft.token = max(draft.token, resource.token + 1)
        draft.resource = ResourceLock(resource.key, draft.token, job.job_id)
    ttl = _ttl(job, command)
    draft.move(
        ASSIGNED,
        attributes=_claim_attributes(job.spec.lock, command),
        lease=_lease(command.owner, ttl, now, job.deadline_at, command.heartbeat_interval, command.timed),
        claim_op_id=command.op_id,
        published=0,
        published_bytes=0,
        progress=None,
        flaws=None,
        started_at=None,
    )


@lru_cache(maxsize=64)
def _lease(
    owner: str,
    ttl: timedelta,
    now: datetime,
    deadline_at: datetime | None,
    heartbeat_interval: timedelta | None,
    timed: bool,
) -> Lease:
    """The lease that begins now. The jobs of one claim share it, as long as they agree in all of this."""
    check_lease(ttl)
    until = now + ttl if deadline_at is None else min(now + ttl, deadline_at)
    return Lease(owner, until, ttl, now, now, heartbeat_interval, timed=timed)


def _claim_attributes(lock: str | None, command: Claim) -> Attributes:
    """What the event's other fields do not say: the lock, and an owner that is not the actor."""
    attributes: Attributes = {"lock": lock} if lock else {}
    if command.actor != "worker:" + command.owner:
        attributes["owner"] = command.owner
    return attributes


def _ttl(job: Job, command: Claim) -> timedelta:
    if command.heartbeat_interval is not None:
        return 3 * check_interval(command.heartbeat_interval)
    return command.lease or job.spec.lease


def _until(job: Job, expires_at: datetime) -> datetime:
    """No lease outlives the job's deadline."""
    return expires_at if job.deadline_at is None else min(expires_at, job.deadline_at)


def _check_claimable(draft: Draft, command: Claim) -> None:
    job, now, resource = draft.job, draft.now, draft.resource
    spec = job.spec
    if draft.state is not QUEUED:
        if job.lease is not None and draft.state == job.state:
            raise Conflict(f"Job owned by {job.lease.owner}.")
        raise Conflict(f"Job is {draft.state}; only a queued job can be claimed.")
    if job.ready_at > now:
        raise Conflict(f"Job is not ready before {job.ready_at:%Y-%m-%d %H:%M:%S} UTC.")
    if job.deadline_at is not None and job.deadline_at <= now:
        raise Conflict("Job has passed its deadline.")
    if spec.region and command.region and spec.region != command.region:
        raise Conflict(f"Job belongs to region {spec.region}, not {command.region}.")
    if spec.executor != command.executor:
        raise Conflict(
            f"Job is bound to executor {spec.executor} and claimable only on its behalf."
            if spec.executor
            else f"Job is not bound to executor {command.executor}."
        )
    if command.plain and (lacking := holdfast_worker_reason(spec)) is not None:
        raise Conflict(f"Job needs a holdfast worker: {lacking}.")
    if resource is not None and resource.holder not in (None, job.job_id):
        raise Conflict(REFUSED_FOR_HOLDER.format(lock=resource.key, holder=resource.holder))


ENDED_BY_OWNER = "The owner of this token has reported its end, and that has counted: nothing is left to do."
"""The advice for an owner that goes on after its own report, such as with a heartbeat that was under way."""


def require_lease(job: Job, token: int) -> Lease:
    """Return the lease under this token, or raise `Fenced`. Every act of an owner begins with this.

    A lease past its time still holds until another commit ends it: the commit decides the race.
    """
    if job.lease is None:
        words = f"Token {token} holds nothing: the job is {job.state}, attempt {job.attempt}"
        newest = token == job.fencing_token
        because = job.reason if newest else None
        counted = ENDED_BY_OWNER if newest and job.owner_ended_at is not None else None
        raise Fenced(f"{words} ({because.rstrip('.')})." if because else f"{words}.", advice=counted)
    if token != job.fencing_token:
        raise Fenced(f"Token {token} is stale: {job.lease.owner} holds token {job.fencing_token}.")
    return job.lease


def heartbeat(job: Job, command: Heartbeat, now: datetime) -> Change:
    """T7 on the first heartbeat, then renewal. Renewals have no event, so `version` stays."""
    lease = require_lease(job, command.token)
    if job.deadline_at is not None and job.deadline_at <= now:
        raise Fenced("The job has passed its deadline; the lease is not renewed.")
    end, limit = job.timeout_at, job.spec.timeout
    if limit is not None and end is not None and end <= now:
        raise Fenced(f"{timeout_failure(limit).message} The lease is not renewed.")
    ttl = check_lease(command.lease or lease.ttl)
    until = _until(job, now + ttl)
    if lease.timed and limit is not None:
        until = min(until, end or now + limit)
    renewed = replace(lease, expires_at=until, ttl=ttl, heartbeat_at=now, suspected=False)
    after = replace(
        job,
        lease=renewed,
        heartbeats=job.heartbeats + 1,
        progress=command.progress or job.progress,
        checkpoint=job.checkpoint if command.checkpoint is None else command.checkpoint,
    )
    return _renew(job, after, now, command.actor, command.token)


def publish_or_refuse(job: Job, command: Publish | RefusePublish, now: datetime) -> Change:
    """Publish the owner's events, or record that they were refused."""
    return publish(job, command, now) if isinstance(command, Publish) else refuse_publish(job, command, now)


def publish(job: Job, command: Publish, now: datetime) -> Change:
    """Append the worker's events. Sequences rise strictly over the whole attempt. An owner that has
    ended the job itself may publish for a while after. Events beyond the attempt's quota are counted,
    not stored."""
    if not _ended_recently(job, command.token, now):
        require_lease(job, command.token)
    if not 1 <= len(command.events) <= EVENTS_PER_PUBLISH_MAX:
        raise Invalid(f"From 1 to {EVENTS_PER_PUBLISH_MAX:,} events are taken in one commit.")
    check_published(command.events)
    first = command.events[0].sequence or 0
    if first <= job.published:
        raise Invalid(
            f"Sequence {first} comes after {job.published}: sequences must rise strictly in an attempt."
        )
    last = command.events[-1].last_sequence
    kept = apply_quota(command.events, job.published_bytes, full=_dropped(job) > 0)
    after = replace(
        job,
        published=last,
        published_bytes=kept.size,
        flaws=_flaws(job, command.events, kept.dropped),
    )
    change = _renew(job, after, now, command.actor, command.token)
    events = tuple(
        replace(
            event,
            job_id=job.job_id,
            attempt=job.attempt,
            fencing_token=command.token,
            received_at=now,
            occurred_at=_occurred_at(event, now),
            actor=command.actor,
            correlation_id=event.correlation_id or job.correlation_id,
            trace_id=event.trace_id or job.trace_id,
        )
        for event in kept.events
    )
    return replace(change, published=events, facts=_quota_fact(job, after, now, command.actor))


def _occurred_at(event: Event, now: datetime) -> datetime:
    """When the event happened by the worker's clock; now, if that is far ahead. It is not refused: a job
    must not be lost because of a wrong clock, of its worker or of the store."""
    return now if event.occurred_at - now > CLOCK_AHEAD_MAX else event.occurred_at


def _dropped(job: Job) -> int:
    return job.flaws.dropped_bytes if job.flaws is not None else 0


def _quota_fact(before: Job, after: Job, now: datetime, actor: str) -> tuple[Event, ...]:
    """The fact that the attempt exceeded its quota, the first time it does."""
    if not _dropped(after) or _dropped(before):
        return ()
    key = (before.fencing_token, "quota")
    return (make_fact(before, EventType.PUBLISH_REFUSED, now, *key, actor=actor, reason=QUOTA_EXCEEDED),)


def _ended_recently(job: Job, token: int, now: datetime) -> bool:
    """Whether this owner ended the job itself a short time ago. An owner that lost the job did not."""
    ended_at = job.owner_ended_at
    return ended_at is not None and token == job.fencing_token and now - ended_at <= OUTPUT_LATE_MAX


def _flaws(job: Job, events: Sequence[Event], dropped: int) -> Flaws | None:
    """The flaws of the attempt's events, with these events and the bytes dropped from them. A worker that
    knows the quota drops the rest itself, and reports how much."""
    before = job.flaws or _FLAWLESS
    missed, exit_code, last = before.missed, before.exit_code, job.published
    for event in events:
        missed += (event.sequence or 0) - last - 1
        last = event.last_sequence
        if event.event_type == WorkerEventType.PROCESS_END:
            exit_code = _number(event, "exit_code") or None
        elif event.event_type == WorkerEventType.PROCESS_ERROR:
            dropped += max(0, _number(event, "dropped_bytes"))
    dropped = min(before.dropped_bytes + dropped, NUMBER_MAX)
    after = replace(before, missed=missed, exit_code=exit_code, dropped_bytes=dropped)
    return None if after == _FLAWLESS else after


def _number(event: Event, name: str) -> int:
    """A number among the attributes; 0 if it is not a number, or larger than a record can store."""
    value = event.attributes.get(name)
    return value if isinstance(value, int) and abs(value) <= NUMBER_MAX else 0


_FLAWLESS = Flaws()


def refuse_publish(job: Job, command: RefusePublish, now: datetime) -> Change:
    """Count a refused publish, and keep its reason; the first of an attempt is also a fact. Publishes of
    callers that lost the job, or never had it, are not counted."""
    owned = job.lease is not None or job.owner_ended_at is not None
    if command.token != job.fencing_token or not owned:
        return unchanged(job)
    before, reason = job.flaws or _FLAWLESS, clip(command.reason)
    change = Change(job, replace(job, flaws=replace(before, refused=before.refused + 1, reason=reason)))
    if before.refused:
        return change
    event = make_fact(job, EventType.PUBLISH_REFUSED, now, command.token, actor=command.actor, reason=reason)
    return replace(change, facts=(event,))


def _renew(before: Job, after: Job, now: datetime, actor: str, token: int) -> Change:
    """The change of a heartbeat or publish: with T7 when it is the first, else without an event."""
    if before.state is not ASSIGNED:
        return Change(before, after)
    draft = Draft(after, now=now, op_id=f"start:{token}", actor=actor)
    draft.before = before
    draft.move(State.RUNNING, started_at=now)
    return draft.change()


def aggregate(job: Job, command: Aggregate, now: datetime) -> Change:
    """T8, with T7 before it if the attempt has not started."""
    require_lease(job, command.token)
    if job.state is State.AGGREGATING:
        return unchanged(job)
    draft = Draft(job, now=now, op_id=command.op_id, actor=command.actor)
    if job.state is State.ASSIGNED:
        draft.move(State.RUNNING, started_at=now)
    draft.move(State.AGGREGATING)
    return draft.change()
