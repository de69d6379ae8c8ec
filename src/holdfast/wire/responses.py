"""Responses: what a server returns, verb by verb, in every protocol."""

from datetime import datetime

from msgspec import Struct

from holdfast.core.access import Key
from holdfast.core.errors import HoldfastError
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.core.workers import QueueInfo, WorkerInfo
from holdfast.ports import Finding, Grant


class JobResponse(Struct, frozen=True):
    """One job."""

    job: Job


class JobList(Struct, frozen=True):
    """Jobs, one for each item of the request, and the ids of those that existed before it."""

    jobs: tuple[Job, ...]
    existed: tuple[str, ...] = ()


class BatchResponse(Struct, frozen=True):
    """For each item of the request, in order: the job, an error, or None if there is no such job."""

    answers: tuple[Job | HoldfastError | None, ...]


class GrantList(Struct, frozen=True):
    """The grants of a claim."""

    grants: tuple[Grant, ...]


class GrantResponse(Struct, frozen=True):
    """The grant of one job."""

    grant: Grant


class JobCounts(Struct, frozen=True):
    """The number of jobs in each state."""

    counts: dict[State, int]


class Explanation(Struct, frozen=True):
    """Why a job is in its state."""

    text: str


class WorkerList(Struct, frozen=True):
    """Workers, the last seen first."""

    workers: tuple[WorkerInfo, ...]


class QueueList(Struct, frozen=True):
    """Queues, by name."""

    queues: tuple[QueueInfo, ...]


class StoredManifest(Struct, frozen=True):
    """The hash of a manifest, how many outputs it lists, and the id of their output store."""

    sha256: str
    entries: int
    store: str


class EventCursor(Struct, frozen=True):
    """A position among the events of all jobs."""

    cursor: str


class ChangeMark(Struct, frozen=True):
    """A mark to wait from; empty after a wait for a claim."""

    mark: str = ""


class RecordResult(Struct, frozen=True):
    """How many of the recorded events were new."""

    recorded: int


class ExpireResult(Struct, frozen=True):
    """How many jobs changed."""

    expired: int


class DoctorReport(Struct, frozen=True):
    """What the health check of the store found."""

    findings: tuple[Finding, ...]


class StoreTime(Struct, frozen=True):
    """The time of the store, which decides about leases and deadlines."""

    now: datetime


class CreatedKey(Struct, frozen=True):
    """A new key, and its text, which is returned only once."""

    key: Key
    text: str


class RevokedKey(Struct, frozen=True):
    """A revoked key."""

    key: Key


class KeyList(Struct, frozen=True):
    """Every key."""

    keys: tuple[Key, ...]
