"""Admission: what a principal may do to which job, and what it is shown of it, for every protocol."""

import re
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from holdfast.core import visibility
from holdfast.core.access import Principal, Scope
from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Denied, NotFound
from holdfast.core.event import Event, with_given_id
from holdfast.core.job import Job, ResourceLock
from holdfast.core.limits import ID_CHARACTERS_MAX, clip
from holdfast.core.spec import Spec
from holdfast.core.visibility import can_see_all
from holdfast.ports import Registry
from holdfast.server.call_records import record_job
from holdfast.server.calls import current_principal

HIDDEN = msgspec.Raw(b"null")
JOB_ID = "job_id"
_RANDOM_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
"""UUIDs that no other caller can have. Those of version 8 are derived from names, which others may know."""

submitter, owns, sees = visibility.submitter, visibility.is_submitter, visibility.can_see
may_read = visibility.can_read
"""Which jobs a caller may know of, and read, is a rule of the core: stores list by it, too."""


def require_scope(principal: Principal, *scopes: Scope) -> None:
    """Raise `Denied` unless the principal has one of these scopes, for any queue."""
    if not any(map(principal.has, scopes)):
        names = " or ".join(scopes)
        raise Denied(f"This key may not do that: it lacks the scope {names}.")


def check_queue(principal: Principal, scope: Scope, queue: str, region: str | None) -> None:
    """Raise `Denied` unless the principal has this scope for the queue."""
    require_scope(principal, scope)
    if not principal.may(scope, queue, region):
        where = f"queue {queue}" if region is None else f"queue {queue} in region {region}"
        raise Denied(f"This key does not reach {where}.")


def default_region(principal: Principal, region: str | None) -> str | None:
    """Return the region that a claim is for. A claim without one gets jobs of every region, so a key that
    reaches several regions, but not all, must name one."""
    if region is not None or not principal.regions:
        return region
    if len(principal.regions) > 1:
        raise Denied(f"This key reaches some regions only: name one of {', '.join(principal.regions)}.")
    return principal.regions[0]


def check_name(principal: Principal, name: str | None, what: str, queue: str) -> None:
    """Raise `Denied` unless the principal may choose this name for something of the queue. All queues share
    one namespace of job ids and one of locks: a key that does not reach every queue begins a name with a
    queue that it reaches, so that it cannot take the names of others. The queue ends at the last colon, so
    that no name belongs to two queues."""
    if name is None or may_use_name(principal, name) or (what == JOB_ID and _RANDOM_UUID.match(name.lower())):
        return
    raise Denied(
        f"This key does not reach every queue, and {what} {clip(name, ID_CHARACTERS_MAX)} does not begin"
        " with one that it reaches.",
        advice=f"Begin the name with such a queue and a colon, and use no other colon: {queue}:NAME."
        + (" Or give a random UUID (version 4 or 7)." if what == JOB_ID else ""),
    )


def check_names(principal: Principal, job_id: str | None, spec: Spec) -> None:
    """Raise `Denied` unless the principal may choose the id and the lock of a new job."""
    check_name(principal, job_id, JOB_ID, spec.queue)
    check_name(principal, spec.lock, "lock", spec.queue)


def check_not_linked(principal: Principal, spec: Spec) -> None:
    """Raise `Denied` when a caller with a key sets what a new job repeats: only the registry sets that."""
    if principal.key_id is not None and (spec.replayed_from or spec.resumed_from):
        raise Denied("replayed_from and resumed_from are set by the registry: use Replay or Resume.")


def may_use_name(principal: Principal, name: str) -> bool:
    """Whether the name begins with a queue of the principal, or the principal reaches every queue."""
    queue, colon, _ = name.rpartition(":")
    return "*" in principal.queues or (bool(colon) and principal.reaches(queue, None))


def check_may_count(principal: Principal, queue: str | None) -> None:
    """Raise `Denied` unless the principal may count the jobs of the queue, or of all, in every region."""
    if queue is not None:
        check_queue(principal, Scope.OBSERVE, queue, None)
    require_scope(principal, Scope.OBSERVE)
    check_regions(principal)
    if queue is None and not principal.everywhere:
        raise Denied("This key does not reach every queue: name one.")


def check_regions(principal: Principal) -> None:
    """Raise `Denied` unless the principal reaches every region: counts are not kept by region."""
    if principal.regions:
        raise Denied(
            "This key does not reach every region: list the jobs that it reaches, by cursor"
            " (holdfast.v1.RegistryService/ListJobs)."
        )


def may_count(principal: Principal, queue: str) -> bool:
    """Whether the principal may count the jobs of the queue, in every region."""
    return principal.may(Scope.OBSERVE, queue, None) and not principal.regions


def check_may_read(principal: Principal, job: Job) -> None:
    """Raise `Denied` unless the principal may read the data of the job."""
    if not may_read(principal, job):
        raise Denied(
            f"This key may not read the data of a job it did not submit: it lacks the scope {Scope.DATA}.",
            job_id=job.job_id,
        )


def find(principal: Principal, job: Job | None, job_id: str) -> Job:
    """Return the job if the principal may know of it; else `NotFound`, as for a job that does not exist."""
    if job is None or not sees(principal, job):
        raise NotFound(f"There is no job {job_id}.", job_id=job_id)
    return record_job(job)


def find_cancellable(principal: Principal, job: Job | None, job_id: str) -> Job:
    """Return the job if the principal may cancel it: its own, or any with `admin`."""
    found = find(principal, job, job_id)
    if not owns(principal, found) and not principal.may(Scope.ADMIN, found.spec.queue, found.spec.region):
        raise Denied("This key may not do that to a job it did not submit.", job_id=job_id)
    return found


def visible_job(principal: Principal, job: Job) -> Job:
    """Return the job, without its data if the principal may not read it."""
    return job if may_read(principal, job) else without_data(job)


def without_data(job: Job) -> Job:
    """Return the job without its payload, its result, its checkpoint and its traceback."""
    error = job.error
    if error is not None and error.traceback is not None:
        error = replace(error, traceback=None)
    spec = replace(job.spec, payload=HIDDEN)
    return replace(job, spec=spec, result=None, checkpoint=None, error=error)


def visible_events(events: Iterable[Event], *, data: bool) -> list[Event]:
    """Return the events; unless `data` may be read, with their types and times only."""
    given = map(with_given_id, events)
    return list(given) if data else [_redacted(event) for event in given]


def _redacted(event: Event) -> Event:
    if event.event_class in (EventClass.WORKER, EventClass.EXTERNAL):
        return replace(event, attributes={}, data=None)
    kept = {name: event.attributes[name] for name in _NOT_DATA if name in event.attributes}
    return event if kept == event.attributes else replace(event, attributes=kept)


_NOT_DATA = ("where", "seconds", "replayed_as", "resumed_as")
"""Attributes of registry events that hold no data of the job; a validator of its outputs needs the first."""


async def visible_lock(registry: Registry, key: str) -> ResourceLock:
    """Return the lock as the caller may see it: without a holder that is out of its reach, and without the
    number of times it was held if others chose its name."""
    resource = await registry.locks(key)
    if resource.holder is not None:
        [job] = await registry.status_many([resource.holder])
        if job is not None and sees(current_principal.get(), job):
            return resource
    if may_use_name(current_principal.get(), key):
        return replace(resource, holder=None)
    return ResourceLock(key)


async def without_hidden_holder(registry: Registry, lock: str | None, text: str) -> str:
    """Return a sentence about a job with this lock, without the holder if the caller may not know of it.
    The holder may have changed since the sentence was made: then it is left out, too."""
    before = [one.partition("{holder}")[0].format(lock=lock) for one in visibility.HOLDER_TEXTS]
    if lock is None or can_see_all(current_principal.get()) or not any(one in text for one in before):
        return text
    holder = (await visible_lock(registry, lock)).holder
    named = (one.format(lock=lock, holder=holder) for one in visibility.HOLDER_TEXTS)
    if holder is not None and any(one in text for one in named):
        return text
    return f"Lock {lock} is held by a job out of your reach; it gets its turn when that has ended."
