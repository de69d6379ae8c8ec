"""Queries for the log, on a connection that never writes: segments, and the rows beside them."""

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from heapq import merge
from typing import NamedTuple

import apsw
import msgspec

from holdfast.core import segment
from holdfast.core.errors import Conflict
from holdfast.core.event import Event
from holdfast.core.segment import JobKey, commit_of
from holdfast.ports import EventPage, HistoryPage
from holdfast.stores import filters
from holdfast.stores.filters import EVENT_BYTES, PUBLISHED_ROWS, HistoryBuilder, cursor_number
from holdfast.stores.sqlite.event_rows import EventRow, events_of, segment_events
from holdfast.stores.sqlite.statements import Value, statement


class Entry(NamedTuple):
    """What a page of a log has or has not as a whole: an event, or a batch of a worker's. `size` is what was
    read for it."""

    log_id: int
    events: list[Event]
    size: int


def histories(connection: apsw.Connection, job_ids: Sequence[str]) -> list[list[Event]]:
    asked = _json(job_ids)
    chains: dict[str | None, list[Event]] = {job_id: [] for job_id in job_ids}
    for row in connection.execute(statement("select_old_histories"), (asked,)):
        [event] = events_of(row)
        chains[event.job_id].append(event)
    ids: dict[JobKey, str | None] = {}
    numbers: set[int] = set()
    for seq, job_id, log in connection.execute(statement("select_logs_of_jobs"), (asked,)):
        ids[seq] = job_id
        numbers.update(_numbers(log))
    for number, text in connection.execute(statement("select_segments"), (_json(sorted(numbers)),)):
        for event in segment_events(number, text, ids):
            chains[event.job_id].append(event)
    return [chains[job_id] for job_id in job_ids]


def facts(connection: apsw.Connection, job_ids: Sequence[str], event_type: str) -> list[list[Event]]:
    found: dict[str | None, list[Event]] = {job_id: [] for job_id in job_ids}
    for row in connection.execute(statement("select_facts"), (_json(job_ids), event_type)):
        [event] = events_of(row)
        found[event.job_id].append(event)
    return [found[job_id] for job_id in job_ids]


def history(connection: apsw.Connection, job_id: str, after: str | None, limit: int) -> HistoryPage:
    start, page = cursor_number(after) if after is not None else 0, HistoryBuilder(limit)
    found = connection.execute(statement("select_logs_of_jobs"), (_json([job_id]),)).fetchone()
    if found is None:
        return page.end()
    seq, _, log = found
    numbers = _numbers(log)
    # The offset says nothing about the segment: find the first one with a later event.
    first = bisect_right(numbers, start, key=partial(_last_offset, connection, seq)) if start else 0
    with ExitStack() as stack:
        old = connection.execute(statement("select_old_history"), (seq, job_id, start))
        stack.enter_context(closing(old))
        new = stack.enter_context(closing(_of_job(connection, seq, job_id, numbers[first:], 0, limit)))
        for source in (map(_entry, old), new):
            for entry in source:
                [event] = entry.events
                if (event.offset or 0) <= start:
                    continue
                if not page.take(event.offset, event, EVENT_BYTES + _body_bytes(event)):
                    return page.cut()
    return page.end()


def _last_offset(connection: apsw.Connection, seq: int, number: int) -> int:
    """Return the offset of the job's last event in this segment."""
    rows = connection.execute(statement("select_segments"), (_json([number]),))
    return max(event.offset or 0 for n, text in rows for event in segment_events(n, text, {seq: None}))


def _body_bytes(event: Event) -> int:
    """Return the size of what an event has beyond numbers and names."""
    return len(msgspec.json.encode((event.reason, event.cause, event.attributes)))


def published(connection: apsw.Connection, job_id: str, token: int, first: int) -> list[int]:
    parameters = (job_id, token, first, PUBLISHED_ROWS)
    rows = connection.execute(statement("select_published"), parameters)
    found = [event.sequence or 0 for row in rows for event in events_of(row)]
    return [sequence for sequence in found if sequence >= first]


def published_before(
    connection: apsw.Connection, job_id: str, before: tuple[int, int], limit: int
) -> list[Event]:
    found: list[Event] = []
    size = 0
    rows = connection.execute(statement("select_published_before"), (job_id, *before, limit))
    with closing(rows):
        for entry in map(_entry, rows):
            found += reversed(entry.events)
            size += entry.size
            if size > filters.EVENT_PAGE_BYTES:
                break
    return found


def logs(
    connection: apsw.Connection,
    epoch: int,
    job_id: str,
    after: str | None,
    limit: int,
    *,
    output: bool,
) -> EventPage:
    start = _position(after, epoch)
    parameters: dict[str, Value] = {
        "job_id": job_id,
        "after": start,
        "limit": limit,
        "output": int(output),
    }
    found = connection.execute(statement("select_logs_of_jobs"), (_json([job_id]),)).fetchone()
    with ExitStack() as stack:
        rows = connection.execute(statement("select_log_rows"), parameters)
        sources: list[Iterable[Entry]] = [map(_entry, rows)]
        stack.enter_context(closing(rows))
        if found is not None:
            seq, _, log = found
            mine = _of_job(connection, seq, job_id, _numbers(log), start, limit)
            sources.append(stack.enter_context(closing(mine)))
        return _page(merge(*sources, key=_log_id), epoch, start, limit)


def _of_job(
    connection: apsw.Connection, seq: int, job_id: str, numbers: list[int], start: int, limit: int
) -> Generator[Entry]:
    """Yield a job's events in these segments after this place, from as many segments as may be needed: in
    the first there may be none, in all others there is at least one."""
    asked = [number for number in numbers if number >= commit_of(start)[0]][: limit + 2]
    if not asked:
        return
    rows = connection.execute(statement("select_segments"), (_json(asked),))
    with closing(rows):
        yield from _entries(rows, lambda _: {seq: job_id}, start)


def events(connection: apsw.Connection, epoch: int, after: str | None, limit: int) -> EventPage:
    start = _position(after, epoch)
    with ExitStack() as stack:
        rows = connection.execute(statement("select_events"), (start,))
        stack.enter_context(closing(rows))
        segments = connection.execute(statement("select_segments_after"), (commit_of(start)[0],))
        stack.enter_context(closing(segments))
        entries = _entries(segments, lambda text: _job_ids(connection, text), start)
        return _page(merge(map(_entry, rows), entries, key=_log_id), epoch, start, limit)


def _job_ids(connection: apsw.Connection, text: str) -> dict[JobKey, str | None]:
    seqs = _json(list(dict.fromkeys(segment.keys(text))))
    return dict(connection.execute(statement("select_job_ids"), (seqs,)))


def _entries(
    rows: Iterable[tuple[int, str]], job_ids: Callable[[str], Mapping[JobKey, str | None]], start: int
) -> Iterator[Entry]:
    """Yield the events of segments after this place. What is read of a segment counts for the first."""
    for number, text in rows:
        size = len(text)
        for event in segment_events(number, text, job_ids(text)):
            if (place := event.log_id or 0) > start:
                yield Entry(place, [event], size)
                size = 0


def _entry(row: EventRow) -> Entry:
    return Entry(row[0], events_of(row), len(row[-1]) if isinstance(row[-1], str) else 0)


def _log_id(entry: Entry) -> int:
    return entry.log_id


def tail(connection: apsw.Connection, epoch: int) -> str:
    [(_, last)] = connection.execute(statement("select_last_numbers"))
    return f"{epoch}.{segment.log_id(last + 1, 0) - 1}"


def _position(cursor: str | None, epoch: int) -> int:
    if cursor is None:
        return 0
    before, place = map(cursor_number, cursor.partition(".")[::2])
    if before != epoch:
        raise Conflict("The store was restored from a backup since; start again without a cursor.")
    return place


def _page(entries: Iterable[Entry], epoch: int, start: int, limit: int) -> EventPage:
    """Return up to `limit` entries, which are read one by one, up to `EVENT_PAGE_BYTES`."""
    events: list[Event] = []
    size = 0
    for _, entry in zip(range(limit), entries, strict=False):
        events += entry.events
        start = entry.log_id
        size += entry.size
        if size > filters.EVENT_PAGE_BYTES:
            break
    return EventPage(tuple(events), f"{epoch}.{start}")


def _numbers(log: str) -> list[int]:
    return [int(number) for number in log.split(",")] if log else []


def _json(values: Sequence[object]) -> str:
    return msgspec.json.encode(values).decode()
