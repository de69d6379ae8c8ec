"""enqueue: make jobs, once per request."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, Refusal, decide
from holdfast.core.limits import BATCH_BYTES_MAX, BATCH_ITEMS_MAX, check_actor
from holdfast.ports import Decision, Joinable, One, Request, Store, Work
from holdfast.registry.line import Line
from holdfast.registry.requests import command_of


async def enqueue(line: Line, request: Request, *, actor: str, connection: object = None) -> Job:
    """Make one job, as `enqueue_many` does."""
    [job] = await enqueue_many(line, [request], actor=actor, connection=connection)
    return job


async def enqueue_many(
    line: Line, requests: Sequence[Request], *, actor: str, connection: object = None
) -> list[Job]:
    """Make the jobs, all checked before any is made. A repeated request answers the job it made.

    With a database `connection` they are part of the transaction it is in: they exist if and only if
    its owner commits.
    """
    check_actor(actor)
    submit = line.submit if connection is None else _within(line.store, connection)
    works = []
    for request in requests:
        command = command_of(request, line.ids, actor=actor)
        fresh = request.job_id is None and request.request_id is None
        works.append(Work(One(command.job_id, command.spec.lock, fresh), partial(decide, command)))
    answers: list[list[Decision]] = []
    for start, end, size in _chunks(requests):
        try:
            answers += await submit(*works[start:end], size_bytes=size)
        except Unavailable as error:
            if start:  # what was sent before has landed
                error.applied = "unknown"
            raise
    return _jobs(answers)


def _chunks(requests: Sequence[Request]) -> Iterator[tuple[int, int, int]]:
    """Where each commit begins and ends, and its bytes: none has too many jobs, or too many bytes for its
    time."""
    start = size = 0
    for n, request in enumerate(requests):
        more = memoryview(request.spec.payload).nbytes
        if n - start == BATCH_ITEMS_MAX or (size + more > BATCH_BYTES_MAX and n > start):
            yield start, n, size
            start, size = n, 0
        size += more
    if requests:
        yield start, len(requests), size


def _within(store: Store, connection: object) -> Callable[..., Awaitable[list[list[Decision]]]]:
    if not isinstance(store, Joinable):
        raise Invalid("Only a postgresql:// store can make jobs inside a transaction of yours.")

    async def submit(*works: Work, size_bytes: int) -> list[list[Decision]]:
        return await store.transact_within(connection, works)

    return submit


def _jobs(answers: list[list[Decision]]) -> list[Job]:
    jobs = [decision.after for [decision] in answers if isinstance(decision, Change)]
    if len(jobs) == len(answers):
        return jobs
    error = next(decision.error for [decision] in answers if isinstance(decision, Refusal))
    if jobs:
        error.message = f"{error.message} The {len(jobs)} others were made."
        error.args = (error.message,)
    raise error
