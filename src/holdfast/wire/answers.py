"""Answers: what a server says, verb by verb, whichever protocol it is asked in."""

from datetime import datetime

from msgspec import Struct

from holdfast.core.access import Key
from holdfast.core.errors import HoldfastError
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.ports import Finding, Grant


class OfJob(Struct, frozen=True):
    """A job, as it is now."""

    job: Job


class OfJobs(Struct, frozen=True):
    """Jobs, one for each that was asked for."""

    jobs: tuple[Job, ...]


class OfEach(Struct, frozen=True):
    """For each that was asked for, in order: the job, why it was refused, or None where there is none."""

    answers: tuple[Job | HoldfastError | None, ...]


class Granted(Struct, frozen=True):
    """What a claim got."""

    grants: tuple[Grant, ...]


class Acquired(Struct, frozen=True):
    """What acquiring got."""

    grant: Grant


class Counted(Struct, frozen=True):
    """How many jobs are in each state."""

    counts: dict[State, int]


class Because(Struct, frozen=True):
    """Why a job is where it is."""

    text: str


class Kept(Struct, frozen=True):
    """What a manifest is known by, how many outputs it lists, and the id of the store they belong in."""

    sha256: str
    entries: int
    store: str


class Place(Struct, frozen=True):
    """A place in a log."""

    cursor: str


class Marked(Struct, frozen=True):
    """A mark to wait from, where one is needed."""

    mark: str = ""


class Recorded(Struct, frozen=True):
    """How many facts were new."""

    recorded: int


class Expired(Struct, frozen=True):
    """How many jobs changed."""

    expired: int


class Examined(Struct, frozen=True):
    """How the store is."""

    findings: tuple[Finding, ...]


class Time(Struct, frozen=True):
    """The store's time: the only one that decides."""

    now: datetime


class KeyMade(Struct, frozen=True):
    """A new key, and its text, which is told this once."""

    key: Key
    text: str


class KeyRevoked(Struct, frozen=True):
    """A key that counts no more."""

    key: Key


class AllKeys(Struct, frozen=True):
    """Every key."""

    keys: tuple[Key, ...]
