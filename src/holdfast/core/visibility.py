"""Visibility: which jobs a caller may know of. The one rule, for stores, servers and every protocol."""

from holdfast.core.access import ANYONE, Principal, Scope
from holdfast.core.job import Job
from holdfast.core.state import State


def submitter(who: Principal) -> str:
    """Who is kept as having asked for a job: with a key nobody but its holder could pass for."""
    return who.actor if who.key_id is None else f"key:{who.name}"


def owns(who: Principal, job: Job) -> bool:
    """Whether they asked for this job themselves, and still may."""
    mine = job.submitted_by == submitter(who) and Scope.SUBMIT in who.scopes
    return mine and who.reaches(job.spec.queue, job.spec.region)


def sees(who: Principal, job: Job) -> bool:
    """Whether they may know of this job. Workers know of what is unfinished in their queues."""
    queue, region = job.spec.queue, job.spec.region
    return (
        who is ANYONE
        or who.may(Scope.OBSERVE, queue, region)
        or (_unfinished(job) and who.may(Scope.WORK, queue, region))
        or owns(who, job)
    )


def sees_all(who: Principal) -> bool:
    """Whether there is no job that they may not know of."""
    return who is ANYONE or (who.everywhere and who.has(Scope.OBSERVE))


def _unfinished(job: Job) -> bool:
    """Also a partial success, which may still become whole, and what was made to make one so; and a job
    that ended without success while somebody has to look for its outputs, or may make them."""
    partial = job.state is State.PARTIAL_SUCCESS or job.spec.resumed_from is not None
    return not job.ended or partial or job.unverified or job.resumable
