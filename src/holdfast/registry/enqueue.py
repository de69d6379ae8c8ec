"""enqueue: create jobs, once per request."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from msgspec import Struct

from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.job import Job, ResourceLock
from holdfast.core.lifecycle import Change, Enqueue, Refusal, decide
from holdfast.core.limits import byte_batches, check_actor
from holdfast.ports import ById, Decision, EnqueuedJobs, JobRequest, Joinable, Store, Work
from holdfast.registry.commit_queue import CommitQueue
from holdfast.registry.job_requests import enqueue_command, enqueue_commands


async def enqueue(commits: CommitQueue, request: JobRequest, *, actor: str, connection: object = None) -> Job:
    """Create one job, as `enqueue_many` does."""
    check_actor(actor)
    submit = commits.submit if connection is None else _within(commits.store, connection)
    command = enqueue_command(request, commits.ids, actor=actor)
    size = memoryview(request.spec.payload).nbytes
    [[decision]] = await submit(_work(request, command), size_bytes=size)
    if isinstance(decision, Refusal):
        raise decision.error
    return decision.after


async def enqueue_many(
    commits: CommitQueue, requests: Sequence[JobRequest], *, actor: str, connection: object = None
) -> EnqueuedJobs:
    """Create the jobs, all checked before any is created. A repeated request returns the job it created.

    With a database `connection` they are part of its transaction: they exist if and only if its owner
    commits.
    """
    check_actor(actor)
    submit = commits.submit if connection is None else _within(commits.store, connection)
    commands = enqueue_commands(requests, commits.ids, actor=actor)
    works = [_work(request, command) for request, command in zip(requests, commands, strict=True)]
    decisions: list[list[Decision]] = []
    sizes = [memoryview(request.spec.payload).nbytes for request in requests]
    for start, end, size in byte_batches(sizes):
        try:
            decisions += await submit(*works[start:end], size_bytes=size)
        except Unavailable as error:
            if start:  # what was sent before has landed
                error.applied = "unknown"
            raise
    return _jobs(decisions)


def _work(request: JobRequest, command: Enqueue) -> Work:
    fresh = request.job_id is None and request.request_id is None
    return Work(ById(command.job_id, command.spec.lock, fresh), _Creation(command), command)


class _Creation(Struct, frozen=True, gc=False):
    """The decision on one command. A `partial` would be looked at by every garbage collection."""

    command: Enqueue

    def __call__(
        self, job: Job | None, now: datetime, resource: ResourceLock | None = None, floor: int = 0
    ) -> Decision:
        return decide(self.command, job, now, resource, floor)


def _within(store: Store, connection: object) -> Callable[..., Awaitable[list[list[Decision]]]]:
    if not isinstance(store, Joinable):
        raise Invalid(
            "Only a postgresql:// store can make jobs inside a transaction of yours.",
            advice="With another store, enqueue when you have committed (Django: transaction.on_commit).",
        )

    async def submit(*works: Work, size_bytes: int) -> list[list[Decision]]:
        return await store.transact_within(connection, works)

    return submit


def _jobs(decisions: list[list[Decision]]) -> EnqueuedJobs:
    changes = [decision for [decision] in decisions if isinstance(decision, Change)]
    jobs = EnqueuedJobs([change.after for change in changes])
    if any(change.before is not None for change in changes):
        made = {change.after.job_id for change in changes if change.before is None}
        jobs.existed = frozenset(job.job_id for job in jobs) - made
    if len(jobs) == len(decisions):
        return jobs
    error = next(decision.error for [decision] in decisions if isinstance(decision, Refusal))
    if jobs:
        error.message = f"{error.message} The {len(jobs)} others were made."
        error.args = (error.message,)
    raise error
