"""Resumption: which jobs can be resumed, and when an earlier resume already does the work."""

from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.errors import Conflict
from holdfast.core.job import Job
from holdfast.core.state import UNSUCCESSFUL, State


class EarlierResume(Struct, frozen=True, kw_only=True):
    """A job that resumes another (None when it was pruned), and the version of the other at that time."""

    job: Job | None
    version: int | None


def current_resume(original: Job, earlier: Sequence[EarlierResume]) -> Job | None:
    """Return the job that already does, or has done, what a new resume would: one that has not ended, or
    one that succeeded while the original did not change since. None if there is no such job."""
    for one in reversed(earlier):
        job = one.job
        if job is None:
            continue
        if not job.ended or (job.state is State.SUCCEEDED and one.version == original.version):
            return job
    return None


def check_resumable(job: Job) -> Job:
    """Return the job, or raise `Conflict` unless it has ended and is known to lack outputs."""
    if job.resumable:
        return job
    if job.unvalidated:
        words = "it is not known yet what it lacks. Validate first: validate --force"
    elif job.state in UNSUCCESSFUL and job.spec.promised_outputs:
        words = "not resumable. All that it promised is there."
    else:
        words = "not resumable. Only a job that has ended and lacks outputs it promised is resumed."
    raise Conflict(f"Job {job.job_id} is {job.state}: {words}", job_id=job.job_id, version=job.version)
