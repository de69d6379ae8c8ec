"""What one commit writes, as the columns that `commit_4` (migration 4) takes."""

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby, repeat
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from holdfast.core import segment
from holdfast.core.catalogue import EventClass
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.process_spec import claim_kind
from holdfast.stores.batch import Group
from holdfast.stores.filters import RARE_STATES
from holdfast.stores.postgres.rows import detail_text, origin_text
from holdfast.stores.records import batch_text, fact_text, spec_text

LaneKey: TypeAlias = tuple[str, int, str, str, str, bool]
"""Queue, priority, kind, executor and region ('' for none), and whether its jobs need a lock: what a lane is
made of."""

Columns: TypeAlias = list[list[Any]]

_XID_SIGN = 1 << 31
_type = attrgetter("event_type")


class LanesMissing(Exception):
    """Jobs need lanes that this process does not know yet. Nothing was written."""

    def __init__(self, keys: set[LaneKey]) -> None:
        self.keys = keys


def lane_key(job: Job) -> LaneKey:
    spec = job.spec
    lane = (spec.queue, spec.priority, claim_kind(spec), spec.executor or "", spec.region or "")
    return (*lane, spec.lock is not None)


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


class Writes(Struct, kw_only=True):
    """The rows of one commit.

    `jobs` are the new ones, then the changed ones that are in no group. `put` and `taken` go into
    the queue and leave it; `timed` need an alarm at `alarm_at`. `unnumbered`: the jobs get their numbers in
    the statement, and 1, 2, 3 … stand for them here.
    """

    jobs: Sequence[ChangedJob] = ()
    groups: Sequence[ChangedGroup] = ()
    alike: Sequence[tuple[tuple[Event, ...], list[Group]]] = ()
    put: Sequence[Job] = ()
    taken: Sequence[Job] = ()
    alarm_at: datetime | None = None
    timed: Sequence[int] = ()
    events: Sequence[Event] = ()
    published: Sequence[tuple[Event, ...]] = ()
    facts: Sequence[Event] = ()
    counts: Sequence[tuple[str, str, int]] = ()
    claimed: Sequence[tuple[str, int]] = ()
    appending: bool = False
    new_locks: Sequence[dict[str, object]] = ()
    locks: Sequence[dict[str, object]] = ()
    unnumbered: bool = False

    @property
    def anything(self) -> bool:
        return bool(self.jobs or self.groups or self.facts or self.counts or self.claimed or self.locks or self.new_locks
                    or self.alarm_at or self.put)  # fmt: skip

    def parameters(self, seqs: dict[str, int], lanes: dict[LaneKey, int]) -> list[object]:
        """Return the columns in the order of the function's parameters. Raise `LanesMissing` when a lane of
        the jobs is not among `lanes`."""
        put, taken = _ready_columns(self.put, self.taken, seqs, lanes)
        places = _Events(self, seqs)
        rows = _StateRows(self)
        shared = rows.shared_detail(places.segments)
        jobs = self._job_columns()
        state = rows.columns(shared)
        if self.unnumbered:
            state[0], put[0] = [], []
        counts = [list(column) for column in zip(*self.counts, strict=True)] or [[], [], []]
        ops = [op_id for op_id, _ in self.claimed]
        return [
            *jobs,
            *state,
            *put,
            *taken,
            *places.columns,
            shared,
            *counts,
            ops[:1] if ops.count(ops[0] if ops else "") == len(ops) else ops,
            [seq for _, seq in self.claimed],
            self.alarm_at,
            list(self.timed),
            self._rest(places),
        ]

    def new_job(self, lanes: dict[LaneKey, int]) -> list[object] | None:
        """Return the parameters of `write_new_job`, if that is all there is to write."""
        if not self.unnumbered or len(self.jobs) != 1:
            return None
        job = self.jobs[0].after
        spec, key = job.spec, lane_key(job)
        fresh = (job.attempt, job.version, job.transition_no, job.failures, job.crashes, job.fencing_token)
        if fresh != (1, 1, 1, 0, 0, 0) or job.updated_at != job.created_at or spec.lock:
            return None
        if key not in lanes:
            raise LanesMissing({key})
        [events] = segment.encode(self.events, lambda _: 1)
        return [
            job.job_id,
            spec.queue,
            key[2],
            spec.priority,
            spec.region,
            spec.executor,
            job.created_at,
            job.correlation_id,
            spec_text(job),
            origin_text(job),
            job.ready_at,
            job.due_at,
            detail_text(job),
            lanes[key],
            _without_keys(events.text, 1),
        ]

    def _job_columns(self) -> Columns:
        new = [job.after for job in self.jobs if job.before is None]
        if not new:
            return [[] for _ in range(11)]
        specs = [job.spec for job in new]
        return [
            [job.job_id for job in new],
            _column([spec.queue for spec in specs]),
            _column([claim_kind(spec) for spec in specs]),
            _column([spec.priority for spec in specs]),
            _column([spec.region for spec in specs]),
            _column([spec.executor for spec in specs]),
            _column([spec.lock for spec in specs]),
            _column([job.created_at for job in new]),
            _column([job.correlation_id for job in new]),
            _column([spec_text(job) for job in new]),
            _column([origin_text(job) for job in new]),
        ]

    def _rest(self, places: "_Events") -> str | None:
        rest: dict[str, object] = {
            "facts": places.facts,
            "output": places.output,
            "new_locks": self.new_locks,
            "locks": self.locks,
            "not_rare": [
                {"state": job.before.state, "seq": job.seq}
                for job in self.jobs
                if job.before and job.before.state in RARE_STATES and job.after.state is not job.before.state
            ],
            "rare": [
                {"state": job.after.state, "seq": job.seq}
                for job in self.jobs
                if job.after.state in RARE_STATES
                and (job.before is None or job.after.state is not job.before.state)
            ],
        }
        rest = {name: value for name, value in rest.items() if value}
        if self.appending and self.claimed:
            rest["appending"] = True
        return msgspec.json.encode(rest).decode() if rest else None


class _StateRows:
    """The rows of `state` of a commit: new jobs first, then the others in the order of their numbers, in which all
    commits lock them. What the jobs of a group have in common is here once."""

    def __init__(self, writes: Writes) -> None:
        self._values: list[tuple[Any, ...]] = []
        self._touched = False
        new: list[_StateRow] = []
        changed: list[_StateRow] = []
        for job in writes.jobs:
            part = self._add(job.before, job.after)
            row = (job.seq, job.row_version, job.after.ready_at, part)
            (new if job.before is None else changed).append(row)
        for one in writes.groups:
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
        self._rows = new + changed

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
            _column(versions) if any(versions) else [],
            state,
            attempt,
            version,
            transition_no,
            failures,
            crashes,
            token,
            owner,
            _column([ready_at for _, _, ready_at, _ in self._rows]),
            due_at,
            updated_at,
            ended_at,
            [None] if shared is not None else detail,
        ]


_StateRow: TypeAlias = tuple[int, int | None, datetime, int]
"""A job's number, the version of its row when it was read, when it is ready, and the place of its other values."""

_state_values = attrgetter(
    "state", "attempt", "version", "transition_no", "failures", "crashes", "fencing_token", "owner", "updated_at",
    "ended_at",
)  # fmt: skip


class _Events:
    """The events of a commit, and their places: registry events, the workers' batches, facts."""

    def __init__(self, writes: Writes, seqs: dict[str, int]) -> None:
        self.segments: list[segment.Segment] = []
        place = 0
        for events, groups in writes.alike:
            jobs = [seqs[job.job_id] for group in groups for job in group.after]
            ops = [op_id for group in groups for op_id in group.op_ids]
            self.segments += segment.encode_alike(events, jobs, ops, place=place)
            place += len(events) * len(jobs)
        self.segments += segment.encode(writes.events, lambda job_id: seqs[job_id or ""], place=place)
        place += len(writes.events)
        texts = [one.text for one in self.segments]
        if writes.unnumbered:
            assert len(texts) == 1  # see `PostgresCommit._number_created`
            texts = [_without_keys(texts[0], len(writes.jobs))]
        self.columns: Columns = [
            [one.event_type for one in self.segments],
            [one.place for one in self.segments],
            [one.events for one in self.segments],
            [one.occurred_at for one in self.segments],
            texts,
        ]
        # A row has events of one type, so that people can ask by type.
        alike = [tuple(run) for events in writes.published for _, run in groupby(events, _type)]
        self.output = [
            _output_row(place + n, seqs[events[0].job_id or ""], events) for n, events in enumerate(alike)
        ]
        place += len(self.output)
        self.facts = [_fact_row(place + n, fact) for n, fact in enumerate(writes.facts)]


def _without_keys(text: str, jobs: int) -> str:
    """Return what follows the keys of the jobs, which are 1, 2, 3 …, in the text of their segment."""
    keys = "1" if jobs == 1 else f"[{','.join(map(str, range(1, jobs + 1)))}]"
    start = f'{{"n":{jobs},"job":{keys}'
    assert text.startswith(start)
    return text[len(start) :]


def _ready_columns(
    put: Sequence[Job], taken: Sequence[Job], seqs: dict[str, int], lanes: dict[LaneKey, int]
) -> tuple[Columns, Columns]:
    put_keys, taken_keys = [list(map(lane_key, jobs)) for jobs in (put, taken)]
    if missing := {*put_keys, *taken_keys} - lanes.keys():
        raise LanesMissing(missing)
    return [
        [seqs[job.job_id] for job in put],
        _column([lanes[key] for key in put_keys]),
        _column([job.ready_at for job in put]),
        _column([job.due_at for job in put]),
        _column([job.spec.lock for job in put]),
    ], [
        [seqs[job.job_id] for job in taken],
        _column([lanes[key] for key in taken_keys]),
        _column([job.ready_at for job in taken]),
    ]


def _output_row(place: int, seq: int, events: tuple[Event, ...]) -> dict[str, object]:
    first, last = events[0], events[-1]
    return {
        "at": place,
        "job": seq,
        "event_type": first.event_type,
        "attempt": first.attempt,
        "fencing_token": first.fencing_token,
        "sequence": first.sequence,
        "end_sequence": last.last_sequence,
        "actor": first.actor,
        "occurred_at": first.occurred_at,
        "received_at": first.received_at,
        "body": batch_text(events),
    }


def _fact_row(place: int, event: Event) -> dict[str, object]:
    return {
        "at": place,
        "event_type": event.event_type,
        "event_class": EventClass(event.event_class),
        "attempt": event.attempt,
        "fencing_token": event.fencing_token,
        "op_id": event.op_id,
        "actor": event.actor,
        "occurred_at": event.occurred_at,
        "received_at": event.received_at,
        "given_id": event.given_id,
        "about": event.job_id,
        "body": fact_text(event),
    }


def _spread(values: tuple[Any, ...], parts: list[int]) -> list[Any]:
    """Return the value of each row, or a single one when all agree."""
    if values.count(values[0]) == len(values):
        return [values[0]]
    return [values[part] for part in parts]


def _column(values: list[Any]) -> list[Any]:
    """Return the values as they are sent: a single one when all agree."""
    return values[:1] if values.count(values[0] if values else None) == len(values) else values


def _signed(row_version: int) -> int:
    """Return a transaction id as the signed number that PostgreSQL compares with one."""
    return row_version - 2 * _XID_SIGN if row_version >= _XID_SIGN else row_version
