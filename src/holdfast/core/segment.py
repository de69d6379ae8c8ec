"""The segment: the events of one type in one commit, as one JSON object that SQL can take apart again.

A segment holds `n` events. Each of its fields is one value for all of them or, in a JSON array, one value for
each; a field that is absent is null for all. `job` is the store's key of a job, instants are microseconds
since 1970 in UTC, and `op_start` is the beginning that all op_ids share.

The events of a commit have places from 0 on, through all of its segments. `at` is the place of a segment's
first event (0 when absent), or an array of the places that are left when events were removed.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec

from holdfast.core.catalogue import EventClass
from holdfast.core.event import Event
from holdfast.core.state import State

SEGMENT_EVENTS_MAX = 10_000
"""The most events of one segment: more of one type are several."""

PLACES_MAX = 1 << 20
"""The most events of one commit."""

JobKey: TypeAlias = int | str | None
"""What identifies a job in a store: its number, or its id."""


def log_id(commit: int, place: int) -> int:
    """Return the number of an event in the log of all jobs: first by commit, then by place."""
    return commit * PLACES_MAX + place


def commit_of(log_id: int) -> tuple[int, int]:
    """Return the commit and the place of the event with this number."""
    return divmod(log_id, PLACES_MAX)


class Segment(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The encoded events of one type in one commit: for all of them their type and class, the time of the
    first, its place in the commit, their number, and the keys of their jobs (one for each event, or one for
    all)."""

    event_type: str
    event_class: EventClass
    occurred_at: datetime
    place: int
    events: int
    jobs: list[JobKey]
    text: str


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@lru_cache(maxsize=4096)
def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


@lru_cache(maxsize=4096)
def _moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


_CONVERTED: dict[str, tuple[Callable[[Any], object], Callable[[Any], object]]] = {
    "event_class": (str, EventClass),
    "occurred_at": (_microseconds, _moment),
    "received_at": (_microseconds, _moment),
    "expires_at": (_microseconds, _moment),
    "from_state": (str, State),
    "to_state": (str, State),
    "data": (lambda data: data, lambda text: msgspec.convert(text, bytes)),
}
"""How a field's values are written and read, where that is not as they are."""

_OWN = ("job_id", "log_id")
_FIELDS = tuple(name for name in Event.__struct_fields__ if name not in _OWN)
_COMMON = (
    "event_type",
    "event_class",
    "occurred_at",
    "offset",
    "transition_no",
    "from_state",
    "to_state",
    "attempt",
    "fencing_token",
    "op_id",
    "actor",
    "reason",
    "attributes",
    "correlation_id",
    "trace_id",
)
_RARE = tuple(name for name in _FIELDS if name not in _COMMON)
_GETTERS = {name: attrgetter(name) for name in _FIELDS}
_rare_values = attrgetter(*_RARE)
_DEFAULTS = dict(
    zip(Event.__struct_fields__[-len(Event.__struct_defaults__) :], Event.__struct_defaults__, strict=True)
)
_DEFAULTS["attributes"] = {}
_RARE_DEFAULTS = tuple(_DEFAULTS[name] for name in _RARE)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def encode_alike(
    events: Sequence[Event], jobs: Sequence[JobKey], op_ids: Sequence[str], *, place: int = 0
) -> list[Segment]:
    """Return the segments of the events of jobs that differ in nothing but their keys and op_ids. Each job
    has all of these events, and they are those of any one of the jobs."""
    segments = []
    for event in events:
        for start in range(0, len(jobs), SEGMENT_EVENTS_MAX):
            some = list(jobs[start : start + SEGMENT_EVENTS_MAX])
            ops = list(op_ids[start : start + SEGMENT_EVENTS_MAX])
            fields: dict[str, Any] = {"n": len(some), "job": some if len(some) > 1 else some[0]}
            fields |= _columns([event], place) | _column("op_id", ops)
            segments.append(_finished(fields, event, place, some))
            place += len(some)
    return segments


def encode(events: Sequence[Event], key: Callable[[str | None], JobKey], *, place: int = 0) -> list[Segment]:
    """Return the segments of these events. `key` gives the key of a job. No event comes before an earlier
    one of its job, neither in a segment nor in the list of segments."""
    if len(events) == 1:
        return [encode_one(events[0], key(events[0].job_id), place=place)]
    segments = []
    for alike in _grouped(events):
        one = alike[0]
        segments.append(
            encode_one(one, key(one.job_id), place=place) if len(alike) == 1 else _segment(alike, place, key)
        )
        place += len(alike)
    return segments


def _grouped(events: Sequence[Event]) -> list[list[Event]]:
    """Group the events by type, so that no event comes before an earlier one of its job."""
    groups: list[list[Event]] = []
    newest: dict[str, int] = {}
    reached: dict[str | None, int] = {}
    for event in events:
        n = newest.get(event.event_type, -1)
        if n < reached.get(event.job_id, 0) or len(groups[n]) == SEGMENT_EVENTS_MAX:
            n = newest[event.event_type] = len(groups)
            groups.append([])
        reached[event.job_id] = n
        groups[n].append(event)
    return groups


class _Single(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The fields of a segment of one event, in their order."""

    n: int
    job: JobKey
    at: int = 0
    event_type: str | None = None
    event_class: str | None = None
    occurred_at: int | None = None
    offset: int | None = None
    transition_no: int | None = None
    from_state: str | None = None
    to_state: str | None = None
    attempt: int | None = None
    fencing_token: int | None = None
    op_id: str | None = None
    actor: str | None = None
    reason: str | None = None
    attributes: dict[str, object] = {}
    correlation_id: str | None = None
    trace_id: str | None = None


assert _Single.__struct_fields__[3:] == _COMMON  # `encode_one` passes them by position
_common_values = attrgetter(*_COMMON[3:])


def encode_one(event: Event, job: JobKey, *, place: int = 0) -> Segment:
    """Return the segment of one event: the same text as for many, without looking for what they share."""
    if _rare_values(event) != _RARE_DEFAULTS:
        return _segment([event], place, lambda job_id: job)
    event_type, event_class, occurred_at = event.event_type, event.event_class, event.occurred_at
    single = _Single(
        1, job, place, event_type, event_class, _microseconds(occurred_at), *_common_values(event)
    )
    return Segment(
        event_type=event_type,
        event_class=event_class,
        occurred_at=occurred_at,
        place=place,
        events=1,
        jobs=[job],
        text=_encode(single).decode(),
    )


def _segment(events: list[Event], place: int, key: Callable[[str | None], JobKey]) -> Segment:
    jobs = [key(event.job_id) for event in events]
    if jobs.count(jobs[0]) == len(jobs):
        jobs = jobs[:1]
    fields: dict[str, Any] = {"n": len(events), "job": jobs[0] if len(jobs) == 1 else jobs}
    return _finished(fields | _columns(events, place), events[0], place, jobs)


def _columns(events: list[Event], place: int) -> dict[str, Any]:
    """Return all fields but the number of events and their jobs."""
    fields: dict[str, Any] = {"at": place} if place else {}
    names: Iterable[str] = _COMMON
    if any(_rare_values(event) != _RARE_DEFAULTS for event in events):
        names = _FIELDS
    for name in names:
        fields |= _column(name, list(map(_GETTERS[name], events)))
    return fields


def _finished(fields: dict[str, Any], first: Event, place: int, jobs: list[JobKey]) -> Segment:
    if isinstance(op_ids := fields.get("op_id"), list) and None not in op_ids:
        fields["op_start"] = start = _common_start(min(op_ids), max(op_ids))
        fields["op_id"] = [op_id[len(start) :] for op_id in op_ids]
    text = _encode(fields).decode()
    return Segment(
        event_type=first.event_type,
        event_class=first.event_class,
        occurred_at=first.occurred_at,
        place=place,
        events=fields["n"],
        jobs=jobs,
        text=text,
    )


def _column(name: str, values: list[Any]) -> dict[str, Any]:
    """Return the field as it is written; nothing when all events have its default."""
    first = values[0]
    write = _CONVERTED[name][0] if name in _CONVERTED else None
    if values.count(first) == len(values):
        if first is None or first == _DEFAULTS.get(name):
            return {}
        return {name: first if write is None else write(first)}
    if write is not None:
        values = [None if value is None else write(value) for value in values]
    return {name: values}


def _common_start(first: str, last: str) -> str:
    """Return the beginning that two texts share."""
    for n, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return first[:n]
    return first


def decode(text: str | bytes, job_ids: Mapping[JobKey, str | None]) -> Iterator[tuple[int, Event]]:
    """Yield the events of the jobs in `job_ids`, which maps keys to ids, each with its place. Raise
    `msgspec.DecodeError`, `KeyError`, `TypeError` or `ValueError` when this is no segment."""
    fields = _decode(text)
    size, keys = fields["n"], _keys(fields)
    places = _places(fields)
    chosen = [n for n in range(size) if keys[n] in job_ids]
    if chosen:
        columns = [_values(fields, name, chosen) for name in _FIELDS]
        for n, values in zip(chosen, zip(*columns, strict=True), strict=True):
            # job_id is the fourth field of an event.
            kept: tuple[Any, ...] = (*values[:3], job_ids[keys[n]], *values[3:])
            yield places[n], Event(*kept)


def keys(text: str | bytes) -> list[JobKey]:
    """Return the key of each event's job."""
    return _keys(_decode(text))


def without(text: str | bytes, removed: Container[JobKey]) -> str | None:
    """Return the segment without the events of these jobs; None when nothing is left of it. All other
    events keep their places."""
    fields = _decode(text)
    size, keys, places = fields["n"], _keys(fields), _places(fields)
    kept = [n for n in range(size) if keys[n] not in removed]
    if not kept:
        return None
    left = {name: value for name, value in fields.items() if name != "at"}
    for name, value in left.items():
        if isinstance(value, list):
            values = _one_each(fields, name)
            left[name] = [values[n] for n in kept]
    left |= {"n": len(kept), "at": [places[n] for n in kept]}
    return _encode(left).decode()


def _keys(fields: dict[str, Any]) -> list[JobKey]:
    jobs = fields["job"]
    return _one_each(fields, "job") if isinstance(jobs, list) else [jobs] * fields["n"]


def _places(fields: dict[str, Any]) -> Sequence[int]:
    at = fields.get("at", 0)
    return _one_each(fields, "at") if isinstance(at, list) else range(at, at + fields["n"])


def _one_each(fields: dict[str, Any], name: str) -> list[Any]:
    """Return the values of a field that has one for each event."""
    values: list[Any] = fields[name]
    if len(values) != fields["n"]:
        raise ValueError(f"{name} has {len(values)} values for {fields['n']} events")
    return values


def _values(fields: dict[str, Any], name: str, chosen: list[int]) -> list[Any]:
    """Return the values of a field for the chosen events."""
    value = fields.get(name)
    read = _CONVERTED[name][1] if name in _CONVERTED else None
    if isinstance(value, list):
        value = _one_each(fields, name)
        values = [value[n] for n in chosen]
        if name == "op_id" and (start := fields.get("op_start")):
            values = [start + op_id for op_id in values]
        if read is not None:
            values = [None if item is None else read(item) for item in values]
        return [_DEFAULTS.get(name) if item is None else item for item in values]
    if value is None:
        value = _DEFAULTS.get(name)
    elif read is not None:
        value = read(value)
    return [value] * len(chosen)
