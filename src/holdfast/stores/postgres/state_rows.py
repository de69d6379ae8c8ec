"""The rows of `state` that one commit writes, as columns."""

from collections.abc import Sequence
from datetime import datetime
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

from msgspec import Struct

from holdfast.core import segment
from holdfast.core.job import Job
from holdfast.stores.batch import Group
from holdfast.stores.postgres.rows import detail_text

Columns: TypeAlias = list[list[Any]]

_XID_SIGN = 1 << 31

_StateRow: TypeAlias = tuple[int, int | None, datetime, int]
"""A job's number, the version of its row when it was read, when it is ready, and the place of its other
values."""

_state_values = attrgetter(
    "state",
    "attempt",
    "version",
    "transition_no",
    "failures",
    "crashes",
    "fencing_token",
    "owner",
    "updated_at",
    "ended_at",
)


class ChangedJob(Struct, frozen=True, gc=False):
    """A job to write: its number, how it was read (None for a new one) and the version of its row then, and
    how it is now."""

    seq: int
    before: Job | None
    row_version: int | None
    after: Job


class ChangedGroup(Struct, frozen=True, gc=False):
    """Jobs that are alike, to write: their numbers, and the versions of their rows when they were read."""

    group: Group
    seqs: list[int]
    row_versions: list[int | None]


class StateRows:
    """The rows of `state` of a commit: new jobs first, then the others in the order of their numbers, in
    which all commits lock them. What the jobs of a group have in common is here once."""

    def __init__(
        self, jobs: Sequence[ChangedJob], runs: Sequence[Sequence[Job]], groups: Sequence[ChangedGroup]
    ) -> None:
        """`runs` has the new ones among the jobs."""
        self._values: list[tuple[Any, ...]] = []
        self._touched = False  # whether jobs change without an event
        new = [job for job in jobs if job.before is None]
        parts = [part for run in runs for part in repeat(self._add(None, run[0]), len(run))]
        self._moved = bool(new) or any(
            job.before is not None and job.before.ready_at != job.after.ready_at for job in jobs
        )
        rows: list[_StateRow] = [
            (job.seq, None, job.after.ready_at, part) for job, part in zip(new, parts, strict=True)
        ]
        changed: list[_StateRow] = [
            (job.seq, job.row_version, job.after.ready_at, self._add(job.before, job.after))
            for job in jobs
            if job.before is not None
        ]
        for one in groups:
            pattern = one.group.pattern
            part = self._add(pattern.before.job, pattern.after.job)
            changed += zip(
                one.seqs,
                one.row_versions,
                [job.ready_at for job in one.group.after],
                repeat(part),
                strict=False,
            )
        changed.sort(key=itemgetter(0))
        self._rows = rows + changed

    def _add(self, before: Job | None, after: Job) -> int:
        """Add the values of a job, or of a group; return their place."""
        self._touched |= before is not None and before.version == after.version
        read = (None, None) if before is None else (before.version, before.fencing_token)
        self._values.append((*read, *_state_values(after), after.due_at, detail_text(after)))
        return len(self._values) - 1

    def shared_detail(self, segments: list[segment.Segment]) -> str | None:
        """Return the detail of all jobs, if they have the same and are those of the first segment: then it is
        written once, there."""
        if len(self._rows) < 2 or not segments or self._touched:
            return None
        first = self._values[0][-1]
        if len(first) <= 2 or any(values[-1] != first for values in self._values):
            return None
        return first if len(set(segments[0].jobs)) == len(self._rows) else None

    def columns(self, shared: str | None) -> Columns:
        if not self._rows:
            return [[] for _ in range(17)]
        versions = [None if row is None else _signed(row) for _, row, _, _ in self._rows]
        parts = [part for *_, part in self._rows]
        (
            read_version,
            read_token,
            state,
            attempt,
            version,
            transition_no,
            failures,
            crashes,
            token,
            owner,
            updated_at,
            ended_at,
            due_at,
            detail,
        ) = [_spread(column, parts) for column in zip(*self._values, strict=True)]
        return [
            [seq for seq, *_ in self._rows],
            read_version,
            read_token,
            one_or_all(versions) if any(versions) else [],
            state,
            attempt,
            version,
            transition_no,
            failures,
            crashes,
            token,
            owner,
            one_or_all([ready_at for _, _, ready_at, _ in self._rows]) if self._moved else [],
            due_at,
            updated_at,
            ended_at,
            [None] if shared is not None else detail,
        ]


def _spread(values: tuple[Any, ...], parts: list[int]) -> list[Any]:
    """Return the value of each row, or a single one when all agree."""
    if values.count(values[0]) == len(values):
        return [values[0]]
    return [values[part] for part in parts]


def one_or_all(values: list[Any]) -> list[Any]:
    """Return the values as they are sent: a single one when all agree."""
    return values[:1] if values.count(values[0] if values else None) == len(values) else values


def _signed(row_version: int) -> int:
    """Return a transaction id as the signed number that PostgreSQL compares with one."""
    return row_version - 2 * _XID_SIGN if row_version >= _XID_SIGN else row_version
