"""Sizes: about how much memory jobs and events take, and the limits on them in a response."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from holdfast.core.errors import Exhausted, HoldfastError
from holdfast.core.event import Event
from holdfast.core.job import Job, job_bytes
from holdfast.server.admission import without_data
from holdfast.server.limits import CHANGED_BYTES_MAX, RESPONSE_BYTES_MAX

EVENT_BYTES = 550

A = TypeVar("A", Job, Job | HoldfastError)


def event_bytes(event: Event) -> int:
    attributes = len(msgspec.json.encode(event.attributes)) if event.attributes else 0
    return EVENT_BYTES + len(event.data or b"") + attributes


def without_excess_data(results: Iterable[A]) -> Iterator[A]:
    """Return the results of a call that has changed many jobs; the jobs beyond the limit without their
    data. They are changed already, so that the call can no longer be refused."""
    size = 0
    for one in results:
        if isinstance(one, Job) and size <= CHANGED_BYTES_MAX:
            size += _data_bytes(one)
        yield without_data(one) if isinstance(one, Job) and size > CHANGED_BYTES_MAX else one


def _data_bytes(job: Job) -> int:
    size = memoryview(job.spec.payload).nbytes
    for value in (job.result, job.checkpoint):
        size += len(msgspec.json.encode(value)) if value is not None else 0
    return size


def check_size(jobs: Iterable[Job]) -> None:
    """Raise `Exhausted` when these jobs are too large for one response."""
    if sum(map(job_bytes, jobs)) > RESPONSE_BYTES_MAX:
        raise Exhausted("These jobs are too large for one response: ask for fewer at once.")
