"""Which jobs a listing shows, for stores that look at each job."""

from holdfast.core.job import Job
from holdfast.ports import Filter


def matches(job: Job, which: Filter) -> bool:
    return (
        (which.queue is None or job.spec.queue == which.queue)
        and (which.kind is None or job.spec.kind == which.kind)
        and (not which.states or job.state in which.states)
        and (which.owner is None or job.owner == which.owner)
        and all(job.spec.labels.get(key) == value for key, value in which.labels.items())
    )
