"""New jobs: those that are alike, in runs that share what is written or made into text once; and the one
that is all there is to write."""

from collections.abc import Iterable, Sequence
from typing import TypeGuard

import msgspec
from msgspec.structs import replace

from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change
from holdfast.core.process_spec import claim_kind
from holdfast.core.spec import COMMAND_KIND
from holdfast.core.state import State
from holdfast.ports import Decision
from holdfast.stores.records import spec_text


def runs(jobs: Iterable[Job]) -> list[list[Job]]:
    """Return the jobs in their order, in runs of those that differ only in their ids and payloads."""
    found: list[list[Job]] = []
    first: Job | None = None
    for job in jobs:
        if first is not None and _alike(first, job):
            found[-1].append(job)
        else:
            found.append([job])
            first = job if _comparable(job) else None
    return found


def _comparable(job: Job) -> bool:
    """Whether what is equal to this job is written as it is: in a result, 1 and True are equal."""
    return job.result is None and job.checkpoint is None


def _alike(first: Job, job: Job) -> bool:
    spec, other = first.spec, job.spec
    return (
        replace(first, job_id=job.job_id, spec=other) == job
        and replace(spec, payload=other.payload) == other
        and spec.retry is other.retry
        and (spec.kind != COMMAND_KIND or claim_kind(spec) == claim_kind(other))
    )


def simply_queued(decision: Decision, *, timed: bool = False) -> TypeGuard[Change]:
    """Whether the decision is one new job in the queue with its first event, and nothing else to write: no
    lock, no due time (unless `timed`), no follow-up and no fact."""
    if type(decision) is not Change or decision.before is not None:
        return False
    job = decision.after
    return (
        job.state is State.QUEUED
        and job.version == len(decision.own_events) == 1
        and job.spec.lock is None
        and (timed or job.deadline_at is None)
        and decision.resource is None
        and not (decision.facts or decision.made or decision.published)
    )


def events_alike(events: Sequence[Event]) -> bool:
    """Whether the events, each of which has an op, differ in nothing but their jobs and ops, as those of many
    new jobs do."""
    first = events[0]
    return all(
        event.op_id is not None and replace(first, job_id=event.job_id, op_id=event.op_id) == event
        for event in events
    )


def spec_texts(run: list[Job]) -> list[str]:
    """Return the specs of a run's jobs as JSON: all but the payload is encoded once."""
    if len(run) > 1:
        parts = _encode(replace(run[0].spec, payload=_MARK)).decode().split(_MARK_TEXT)
        if len(parts) == 2:
            before, after = parts
            return [f"{before}{bytes(job.spec.payload).decode()}{after}" for job in run]
    return [spec_text(job) for job in run]


_MARK_TEXT = '"\\u0000payload"'
"""Not in any text of a spec: none may contain a NUL."""
_MARK = msgspec.Raw(_MARK_TEXT.encode())
_encode = msgspec.json.Encoder().encode
