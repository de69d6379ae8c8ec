"""Resumption: which jobs resume another, and when to resume it again is to ask for the same."""

from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.errors import Conflict
from holdfast.core.job import Job
from holdfast.core.state import UNSUCCESSFUL, State


class Earlier(Struct, frozen=True, kw_only=True):
    """A job that resumes another (None when it was forgotten), and the version that one had then."""

    job: Job | None
    version: int | None


def standing(original: Job, earlier: Sequence[Earlier]) -> Job | None:
    """The job that makes already, or has made, what resuming the original now would make: one that has
    not ended, or one that succeeded while nothing new was found of the original."""
    for one in reversed(earlier):
        job = one.job
        if job is None:
            continue
        if not job.ended or (job.state is State.SUCCEEDED and one.version == original.version):
            return job
    return None


def check_resumable(job: Job) -> Job:
    """Return the job, or raise `Conflict` unless it has ended and is known to lack something."""
    if job.resumable:
        return job
    if job.unverified:
        words = "nobody has seen yet what it lacks. Look first: validate --force"
    elif job.state in UNSUCCESSFUL and job.spec.promised_outputs:
        words = "not resumable. All that it promised is there."
    else:
        words = "not resumable. Only a job that has ended and lacks outputs it promised is resumed."
    raise Conflict(
        f"Job {job.job_id} is {job.state}: {words}", job_id=job.job_id, version=job.version
    )
