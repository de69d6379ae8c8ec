"""Visibility: which jobs a caller may see. The one rule, for stores, servers and every protocol."""

from holdfast.core.access import ANONYMOUS, Principal, Scope
from holdfast.core.job import Job
from holdfast.core.state import State

WAITS_FOR_HOLDER = "resource lock {lock}, held by job {holder} ("
REFUSED_FOR_HOLDER = "Resource {lock} is locked by job {holder}."
HOLDER_TEXTS = (WAITS_FOR_HOLDER, REFUSED_FOR_HOLDER)
"""The texts that name the holder of a lock: servers find them in a message by these templates, and hide a
holder that the caller may not see."""


def submitter(principal: Principal) -> str:
    """Return the submitter that is stored with a job. With a key, no caller without it can have this
    name."""
    return principal.actor if principal.key_id is None else f"key:{principal.name}"


def is_submitter(principal: Principal, job: Job) -> bool:
    """Return whether the caller submitted this job, and still has the right to."""
    mine = job.submitted_by == submitter(principal) and Scope.SUBMIT in principal.scopes
    return mine and principal.reaches(job.spec.queue, job.spec.region)


def can_see(principal: Principal, job: Job) -> bool:
    """Return whether the caller may see this job. Workers see the unfinished jobs in their queues."""
    queue, region = job.spec.queue, job.spec.region
    return (
        principal is ANONYMOUS
        or principal.may(Scope.OBSERVE, queue, region)
        or (_unfinished(job) and principal.may(Scope.WORK, queue, region))
        or is_submitter(principal, job)
    )


def can_read(principal: Principal, job: Job) -> bool:
    """Return whether the caller may read the data of the job: payload, result, output, traceback."""
    return (
        principal is ANONYMOUS
        or principal.may(Scope.DATA, job.spec.queue, job.spec.region)
        or is_submitter(principal, job)
    )


def can_read_all(principal: Principal) -> bool:
    """Return whether the caller may see every job, and read its data."""
    return can_see_all(principal) and principal.has(Scope.DATA)


def can_see_all(principal: Principal) -> bool:
    """Return whether the caller may see every job."""
    return principal is ANONYMOUS or (principal.everywhere and principal.has(Scope.OBSERVE))


def _unfinished(job: Job) -> bool:
    """Whether a worker may still have to do with the job: it has not ended; or it is a partial success or a
    resume, whose outputs may still be made; or it ended without success and its outputs are to be validated
    or may be made."""
    partial = job.state is State.PARTIAL_SUCCESS or job.spec.resumed_from is not None
    return not job.ended or partial or job.unvalidated or job.resumable
