"""Sizes: about how much memory things take, so that no answer takes more than it may."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from holdfast.core.errors import Exhausted, HoldfastError
from holdfast.core.event import Event
from holdfast.core.job import Job, job_bytes
from holdfast.server.admission import without_data
from holdfast.server.limits import ANSWER_BYTES_MAX, CHANGED_BYTES_MAX

EVENT_BYTES = 550

A = TypeVar("A", Job, Job | HoldfastError)


def event_bytes(event: Event) -> int:
    said = len(msgspec.json.encode(event.attributes)) if event.attributes else 0
    return EVENT_BYTES + len(event.data or b"") + said


def fitting(answers: Iterable[A]) -> Iterator[A]:
    """The answers to a call that has changed many jobs: those beyond the limit come without their data.
    The jobs are changed already, so that the call cannot be refused any more."""
    size = 0
    for one in answers:
        if isinstance(one, Job) and size <= CHANGED_BYTES_MAX:
            size += _data_bytes(one)
        yield without_data(one) if isinstance(one, Job) and size > CHANGED_BYTES_MAX else one


def _data_bytes(job: Job) -> int:
    size = memoryview(job.spec.payload).nbytes
    for value in (job.result, job.checkpoint):
        size += len(msgspec.json.encode(value)) if value is not None else 0
    return size


def check_size(jobs: Iterable[Job]) -> None:
    """Raise `Exhausted` when these are too much for one answer."""
    if sum(map(job_bytes, jobs)) > ANSWER_BYTES_MAX:
        raise Exhausted("These jobs are too large for one answer: ask for fewer at once.")
