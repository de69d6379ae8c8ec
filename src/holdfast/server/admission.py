"""Admission: who may do what to which job. The one place that knows, for every protocol."""

import re
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from holdfast.core import visibility
from holdfast.core.access import ANYONE, Principal, Scope
from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Denied, NotFound
from holdfast.core.event import Event, as_given
from holdfast.core.job import Job
from holdfast.core.limits import ID_CHARACTERS_MAX, clip
from holdfast.core.spec import Spec
from holdfast.server.tracing import about

HIDDEN = msgspec.Raw(b"null")
JOB_ID = "job_id"
_CHANCE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
"""UUIDs that are nobody else's. Those of version 8 are made of other names, which others may know."""

submitter, owns, sees = visibility.submitter, visibility.owns, visibility.sees
"""Which jobs a caller may know of is a rule of the core: stores list by it, too."""


def demand(who: Principal, *scopes: Scope) -> None:
    """Raise `Denied` unless they have one of these scopes at all."""
    if not any(map(who.has, scopes)):
        words = " or ".join(scopes)
        raise Denied(f"This key may not do that: it lacks the scope {words}.")


def enter(who: Principal, scope: Scope, queue: str, region: str | None) -> None:
    """Raise `Denied` unless they may use this queue so."""
    demand(who, scope)
    if not who.may(scope, queue, region):
        where = f"queue {queue}" if region is None else f"queue {queue} in region {region}"
        raise Denied(f"This key does not reach {where}.")


def region_of(who: Principal, region: str | None) -> str | None:
    """The region a claim is for. Without one, jobs of every region would come: some keys must name one."""
    if region is not None or not who.regions:
        return region
    if len(who.regions) > 1:
        raise Denied(f"This key reaches some regions only: name one of {', '.join(who.regions)}.")
    return who.regions[0]


def check_name(who: Principal, name: str | None, what: str, queue: str) -> None:
    """Raise `Denied` unless they may choose this name for something of the queue. Job ids and locks are one
    space for all queues: a key that does not reach them all begins a name with a queue that it does reach,
    so that it cannot take the names of others. That queue ends at the last colon: no name is of two."""
    if name is None or owns_name(who, name) or (what == JOB_ID and _CHANCE.match(name.lower())):
        return
    raise Denied(
        f"This key does not reach every queue, and {what} {clip(name, ID_CHARACTERS_MAX)} begins with none"
        " that it reaches.",
        advice=f"Begin the name with such a queue and a colon, and use no colon after it: {queue}:NAME."
        + (" Or give a UUID of chance (version 4 or 7)." if what == JOB_ID else ""),
    )


def check_names(who: Principal, job_id: str | None, spec: Spec) -> None:
    """Raise `Denied` unless they may choose the names that a new job has."""
    check_name(who, job_id, JOB_ID, spec.queue)
    check_name(who, spec.lock, "lock", spec.queue)


def check_new(who: Principal, spec: Spec) -> None:
    """Raise `Denied` for a job of which somebody with a key says that it repeats another."""
    if who.key_id is not None and (spec.replayed_from or spec.resumed_from):
        raise Denied("A job says itself what it repeats: use Replay or Resume.")


def owns_name(who: Principal, name: str) -> bool:
    """Whether the name is one of the queues that they reach."""
    queue, colon, _ = name.rpartition(":")
    return "*" in who.queues or (bool(colon) and who.reaches(queue, None))


def overlook(who: Principal, queue: str | None) -> None:
    """Raise `Denied` unless they may know how much there is in the queue, or in all, in every region."""
    if queue is not None:
        enter(who, Scope.OBSERVE, queue, None)
    demand(who, Scope.OBSERVE)
    if who.regions:
        raise Denied(
            "This key does not reach every region: list by cursor what it reaches"
            " (holdfast.v1.RegistryService/ListJobs)."
        )
    if queue is None and not who.everywhere:
        raise Denied("This key does not reach every queue: name the one to look at.")


def overlooks(who: Principal, queue: str) -> bool:
    """Whether they may know how much there is in the queue, in every region."""
    return who.may(Scope.OBSERVE, queue, None) and not who.regions


def reads(who: Principal, job: Job) -> bool:
    """Whether they may know what is in it: payload, result, output."""
    return who is ANYONE or who.may(Scope.DATA, job.spec.queue, job.spec.region) or owns(who, job)


def read(who: Principal, job: Job) -> None:
    """Raise `Denied` unless they may know what is in it."""
    if not reads(who, job):
        raise Denied(
            f"This key may not see into a job it did not submit: it lacks the scope {Scope.DATA}.",
            job_id=job.job_id,
        )


def find(who: Principal, job: Job | None, job_id: str) -> Job:
    """The job, if they may know of it. What they may not know of is not there."""
    if job is None or not sees(who, job):
        raise NotFound(f"There is no job {job_id}.", job_id=job_id)
    return about(job)


def command(who: Principal, job: Job | None, job_id: str) -> Job:
    """The job, if they may cancel it: their own, or any with `admin`."""
    found = find(who, job, job_id)
    if not owns(who, found) and not who.may(Scope.ADMIN, found.spec.queue, found.spec.region):
        raise Denied("This key may not do that to a job it did not submit.", job_id=job_id)
    return found


def shown(who: Principal, job: Job) -> Job:
    """The job as they may see it."""
    return job if reads(who, job) else without_data(job)


def without_data(job: Job) -> Job:
    """The job without what is in it: its payload, its result and its checkpoint."""
    return replace(job, spec=_outside(job.spec), result=None, checkpoint=None)


def _outside(spec: Spec) -> Spec:
    return replace(spec, payload=HIDDEN)


def told(events: Iterable[Event], *, data: bool) -> list[Event]:
    """The events as they may be seen: without `data`, that something was said, not what."""
    given = map(as_given, events)
    return list(given) if data else [_muted(event) for event in given]


def _muted(event: Event) -> Event:
    if event.event_class in (EventClass.WORKER, EventClass.EXTERNAL):
        return replace(event, attributes={}, data=None)
    said = {name: event.attributes[name] for name in _OUTSIDE if name in event.attributes}
    return event if said == event.attributes else replace(event, attributes=said)


_OUTSIDE = ("where", "replayed_as", "resumed_as")
"""What the registry writes about a job that is not what is in it: who looks for its outputs needs it."""
