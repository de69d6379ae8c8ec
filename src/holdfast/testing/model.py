"""The model of a store: the pure core on a dictionary."""

from datetime import datetime

from holdfast.core.event import Event
from holdfast.core.job import Job, ResourceLock
from holdfast.core.lifecycle import Change, Command, Complete, Expire, Refusal, Release, decide
from holdfast.core.state import State
from holdfast.ports import Ready


class Model:
    """Jobs, their logs and the resource locks, each changed by `decide` alone."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.events: dict[str, list[Event]] = {}
        self.resources: dict[str, ResourceLock] = {}
        self.ends: dict[tuple[str, int], tuple[Complete | Release, Job]] = {}

    def apply(
        self, job_id: str, command: Command, now: datetime, lock: str | None = None
    ) -> Change | Refusal:
        """Decide one command and store its change."""
        job = self.jobs.get(job_id)
        key = job.spec.lock if job else lock
        resource = self.resources.get(key, ResourceLock(key)) if key else None
        decision = decide(command, job, now, resource)
        if isinstance(decision, Change):
            self.jobs[job_id] = decision.after
            self.events.setdefault(job_id, []).extend(decision.events)
            if isinstance(command, Complete | Release):
                self.ends[job_id, command.token] = command, decision.after
            if decision.resource is not None:
                self.resources[decision.resource.key] = decision.resource
            for made in decision.made:
                self.jobs[made.after.job_id] = made.after
                self.events[made.after.job_id] = list(made.events)
        return decision

    def expire(self, now: datetime) -> int:
        """Expire everything that is due, the longest overdue first; return how many jobs changed."""
        due = [job for job in self.jobs.values() if job.due_at is not None and job.due_at <= now]
        changed = 0
        for job in sorted(due, key=lambda job: (job.due_at, self._place(job))):
            decision = self.apply(job.job_id, Expire(), now)
            changed += isinstance(decision, Change) and decision.after is not decision.before
        return changed

    def ready(self, ready: Ready, now: datetime) -> list[str]:
        """Return the ids of the jobs that a claim may take, in ready order; locks are checked job by
        job."""
        found = [
            job
            for job in self.jobs.values()
            if job.state is State.QUEUED
            and job.spec.queue in ready.queues
            and job.ready_at <= now
            and (job.deadline_at is None or job.deadline_at > now)
            and (not job.spec.region or not ready.region or job.spec.region == ready.region)
            and job.spec.executor == ready.executor
        ]
        found.sort(key=lambda j: (j.spec.priority, j.ready_at, self._place(j)))
        return [job.job_id for job in found]

    def _place(self, job: Job) -> int:
        return list(self.jobs).index(job.job_id)
