"""What one commit writes, as the columns that `commit_4` (migration 4) takes."""

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from holdfast.core import segment
from holdfast.core.catalogue import EventClass
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.process_spec import claim_kind
from holdfast.core.state import State
from holdfast.stores.batch import Group
from holdfast.stores.filters import RARE_STATES
from holdfast.stores.new_jobs import events_alike, runs, spec_texts
from holdfast.stores.postgres.rows import origin_text
from holdfast.stores.postgres.state_rows import (
    ChangedGroup,
    ChangedJob,
    Columns,
    StateRows,
    one_or_all,
)
from holdfast.stores.records import batch_text, fact_text

LaneKey: TypeAlias = tuple[str, int, str, str, str, bool]
"""Queue, priority, kind, executor and region ('' for none), and whether its jobs need a lock: what a lane is
made of."""

_type = attrgetter("event_type")


class LanesMissing(Exception):
    """Jobs need lanes that this process does not know yet. Nothing was written."""

    def __init__(self, keys: set[LaneKey]) -> None:
        self.keys = keys


def lane_key(job: Job) -> LaneKey:
    spec = job.spec
    lane = (spec.queue, spec.priority, claim_kind(spec), spec.executor or "", spec.region or "")
    return (*lane, spec.lock is not None)


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
        return bool(self.jobs or self.groups or self.facts or self.counts or self.claimed or self.locks
                    or self.new_locks or self.alarm_at or self.put)  # fmt: skip

    def parameters(self, seqs: dict[str, int], lanes: dict[LaneKey, int]) -> list[object]:
        """Return the columns in the order of the function's parameters. Raise `LanesMissing` when a lane of
        the jobs is not among `lanes`."""
        new = runs(job.after for job in self.jobs if job.before is None)
        put, taken = _ready_columns(_runs_of(self.put, new), self.taken, seqs, lanes)
        places = _Events(self, seqs)
        rows = StateRows(self.jobs, new, self.groups)
        shared = rows.shared_detail(places.segments)
        jobs = _job_columns(new)
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
        self.segments += _segments(writes.events, seqs, place)
        place += len(writes.events)
        texts = [one.text for one in self.segments]
        if writes.unnumbered:
            assert len(texts) == 1  # see `PostgresCommit._number_created`
            texts = [without_keys(texts[0], len(writes.jobs))]
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


def _segments(events: Sequence[Event], seqs: dict[str, int], place: int) -> list[segment.Segment]:
    """Return the segments of these events. Those of new jobs are mostly alike, and written as one of them."""
    if len(events) > 1 and events_alike(events):
        keys, ops = [seqs[one.job_id or ""] for one in events], [one.op_id or "" for one in events]
        return segment.encode_alike(events[:1], keys, ops, place=place)
    return segment.encode(events, lambda job_id: seqs[job_id or ""], place=place)


def without_keys(text: str, jobs: int) -> str:
    """Return what follows the keys of the jobs, which are 1, 2, 3 …, in the text of their segment."""
    keys = "1" if jobs == 1 else f"[{','.join(map(str, range(1, jobs + 1)))}]"
    start = f'{{"n":{jobs},"job":{keys}'
    assert text.startswith(start)
    return text[len(start) :]


class _Rows:
    """The rows of jobs, in runs of jobs with the same values: each value is made once for a run."""

    def __init__(self, runs: Sequence[Sequence[Job]]) -> None:
        self._first = [run[0] for run in runs]
        self._sizes = [len(run) for run in runs]
        self._jobs = sum(self._sizes)

    def column(self, value: Callable[[Job], Any]) -> list[Any]:
        """Return this value of all rows, as it is sent: a single one when all agree."""
        return self.spread(list(map(value, self._first)))

    def spread(self, values: list[Any]) -> list[Any]:
        """As `column`, of one value for each run."""
        values = one_or_all(values)
        if len(values) < 2 or len(self._sizes) == self._jobs:
            return values
        return [one for one, size in zip(values, self._sizes, strict=True) for _ in range(size)]


def _job_columns(new: list[list[Job]]) -> list[object]:
    """Return the columns of new jobs. Ids and specs are joined texts: the driver would check and encode every
    element of an array, at 0.2 us each."""
    if not new:
        return ["", *([] for _ in range(8)), "", []]
    rows = _Rows(new)
    return [
        ",".join([job.job_id for run in new for job in run]),
        rows.column(attrgetter("spec.queue")),
        rows.column(lambda job: claim_kind(job.spec)),
        rows.column(attrgetter("spec.priority")),
        rows.column(attrgetter("spec.region")),
        rows.column(attrgetter("spec.executor")),
        rows.column(attrgetter("spec.lock")),
        rows.column(attrgetter("created_at")),
        rows.column(attrgetter("correlation_id")),
        "\x1e".join(one_or_all([text for run in new for text in spec_texts(run)])),
        rows.column(origin_text),
    ]


def _runs_of(put: Sequence[Job], new: list[list[Job]]) -> list[list[Job]]:
    """Return the jobs that go into the queue: the new ones in their runs, if there are no others."""
    queued = [run for run in new if run[0].state is State.QUEUED]
    return queued if sum(map(len, queued)) == len(put) else [[job] for job in put]


def _ready_columns(
    put: list[list[Job]], taken: Sequence[Job], seqs: dict[str, int], lanes: dict[LaneKey, int]
) -> tuple[Columns, Columns]:
    put_keys, taken_keys = [lane_key(run[0]) for run in put], list(map(lane_key, taken))
    if missing := {*put_keys, *taken_keys} - lanes.keys():
        raise LanesMissing(missing)
    rows = _Rows(put)
    return [
        [seqs[job.job_id] for run in put for job in run],
        rows.spread([lanes[key] for key in put_keys]),
        rows.column(attrgetter("ready_at")),
        rows.column(attrgetter("due_at")),
        rows.column(attrgetter("spec.lock")),
    ], [
        [seqs[job.job_id] for job in taken],
        one_or_all([lanes[key] for key in taken_keys]),
        one_or_all([job.ready_at for job in taken]),
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
