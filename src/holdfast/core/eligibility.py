"""Which jobs a claim may have: the rule for stores that read whole jobs. SQL stores have it in their
queries; the store contract keeps both equal."""

from datetime import datetime
from typing import Protocol

from holdfast.core.job import Job
from holdfast.core.process_spec import claim_kind
from holdfast.core.state import State


class ClaimFilter(Protocol):
    """What a claim asks for. Empty `kinds` and no `region` match every job."""

    @property
    def queues(self) -> tuple[str, ...]: ...
    @property
    def kinds(self) -> tuple[str, ...]: ...
    @property
    def region(self) -> str | None: ...
    @property
    def executor(self) -> str | None: ...


def claimable(job: Job, wanted: ClaimFilter, now: datetime) -> bool:
    """Return whether a claim may have this job, apart from its lock."""
    spec = job.spec
    return (
        job.state is State.QUEUED
        and spec.queue in wanted.queues
        and job.ready_at <= now
        and (job.deadline_at is None or job.deadline_at > now)
        and (not wanted.kinds or claim_kind(spec) in wanted.kinds)
        and (not spec.region or not wanted.region or spec.region == wanted.region)
        and spec.executor == wanted.executor
    )
