"""Queries for events: of a job, and of all jobs in the order of their numbers.

Registry events are in segments. Batches of the workers' events and facts have rows of their own; so have the
registry events from before migration 4.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.core import segment
from holdfast.core.errors import Conflict, Corrupt
from holdfast.core.event import Event
from holdfast.ports import EventPage, HistoryPage
from holdfast.stores import filters
from holdfast.stores.filters import (
    EVENT_BYTES,
    HISTORY_BYTES_MAX,
    PUBLISHED_ROWS,
    HistoryBuilder,
    cursor_number,
    invalid_cursor,
)
from holdfast.stores.postgres.commit_context import CommitContext, QueryConnection
from holdfast.stores.postgres.rows import events_of
from holdfast.stores.postgres.statements import Row, statement
from holdfast.stores.records import DAMAGED

NUMBERED_PLACE = 1 << 59
"""The place of all events since migration 4: they are in the order of their numbers. Those from before have
lower places, and come first."""

COMMITS_READ = 16
"""How many commits of a job are read at once."""

_GIVEN_ID = 16

Item: TypeAlias = tuple[int, bool, list[Event]]
"""What has one number in the log: the number, whether it is a fact, the event or the events of a batch."""


class PostgresEventLog:
    """The queries for events of a store, on one connection."""

    def __init__(self, connection: QueryConnection, context: CommitContext) -> None:
        self._connection = connection
        self._context = context

    async def _fetch(self, name: str, *parameters: object) -> Sequence[Row]:
        return await self._connection.fetch(statement(name, self._context.schema), *parameters)

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        chains: dict[str, list[Event]] = {job_id: [] for job_id in job_ids}
        logged = await self._fetch("select_logged", job_ids)
        known: dict[segment.JobKey, str | None] = {seq: job_id for seq, job_id, _ in logged}
        commits = sorted({commit for *_, log in logged for commit in log})
        for event in await self._segment_events(commits, known):
            chains[event.job_id or ""].append(event)
        for chain in chains.values():
            chain.sort(key=_offset)
        old = [job_id for _, job_id, _ in logged if not (chain := chains[job_id]) or _offset(chain[0]) > 1]
        before: dict[str, list[Event]] = {}
        for row in await self._fetch("select_old_histories", old) if old else ():
            [event] = events_of(row)
            before.setdefault(event.job_id or "", []).append(event)
        return [before.get(job_id, []) + chains[job_id] for job_id in job_ids]

    async def _segment_events(
        self, commits: Sequence[int], job_ids: dict[segment.JobKey, str | None]
    ) -> list[Event]:
        """Return the events of these jobs in these commits, by number."""
        rows = await self._fetch("select_segments", commits) if commits else ()
        return [event for row in rows for event in decoded(row, job_ids)]

    async def facts(self, job_ids: Sequence[str], event_type: str) -> list[list[Event]]:
        found: dict[str | None, list[Event]] = {job_id: [] for job_id in job_ids}
        for row in await self._fetch("select_facts", list(job_ids), event_type):
            [event] = events_of(row)
            found[event.job_id].append(event)
        return [found[job_id] for job_id in job_ids]

    async def history(self, job_id: str, after: str | None, limit: int) -> HistoryPage:
        """A cursor has the last offset, and how many commits of the job precede it."""
        offset, done = (0, 0) if after is None else _history_cursor(after)
        page = _HistoryPage(limit, done)
        if not done:
            for row in await self._fetch("select_old_history", job_id, offset, limit + 1, HISTORY_BYTES_MAX):
                [event] = events_of(row)
                if not page.take(event, EVENT_BYTES + len((row[-1] or "").encode())):
                    return page.cut()
            if page.is_full:  # more may follow
                return page.cut()
        [(seq, _, log)] = await self._fetch("select_logged", [job_id]) or [(0, "", [])]
        for start in range(done, len(log), COMMITS_READ):
            commits = log[start : start + COMMITS_READ]
            for event in await self._segment_events(commits, {seq: job_id}):
                page.done = log.index(segment.commit_of(event.log_id or 0)[0], start)
                if _offset(event) > offset and not page.take(event, len(msgspec.json.encode(event))):
                    return page.cut()
        return page.end()

    async def published(self, job_id: str, token: int, *, first: int) -> list[int]:
        rows = await self._fetch("select_published", job_id, token, first, PUBLISHED_ROWS)
        found = [event.sequence or 0 for row in rows for event in events_of(row)]
        return [sequence for sequence in found if sequence >= first]

    async def published_before(self, job_id: str, before: tuple[int, int], *, limit: int) -> list[Event]:
        parameters = (job_id, *before, limit, filters.EVENT_PAGE_BYTES)
        rows = await self._fetch("select_published_before", *parameters)
        return [event for row in rows for event in reversed(events_of(row))]

    async def logs(self, job_id: str, *, after: str | None, limit: int, output: bool) -> EventPage:
        """Facts have a number of their own in the cursor: one may be recorded, and read, while the job it
        is about is still being made by a transaction that drew its log numbers earlier."""
        mark, *start = self._start(after, 3)  # three numbers, where a cursor of `events` has two
        found = await self._fetch("select_logs", job_id, *start, output, limit, filters.EVENT_PAGE_BYTES)
        [log, seq], rows = found[0][:2], [row[2:] for row in found if row[2] is not None]
        items = _items(rows)
        end = rows[-1][0] if _is_cut(rows, limit) else None
        commits = [commit for commit in log or () if commit >= segment.commit_of(start[0])[0]]
        commits = [commit for commit in commits if end is None or segment.log_id(commit, 0) <= end]
        if len(commits) > limit:
            end = min(end or segment.log_id(commits[limit], 0), segment.log_id(commits[limit], 0) - 1)
        events = await self._segment_events(commits[:limit], {seq: job_id})
        items += [(event.log_id or 0, False, [event]) for event in events if (event.log_id or 0) > start[0]]
        page = _page(items, end, limit)
        for number, is_fact, _ in page:
            start[is_fact] = number
        return EventPage(_events(page), self._cursor(mark, *start))

    async def events(self, *, after: str | None, limit: int) -> EventPage:
        """Read up to where every commit is complete. A statement of its own says where that is: what it
        counts as complete, the next one sees."""
        place, log_id = self._start(after, 2)
        [(last,)] = await self._fetch("feed_end")
        size = filters.EVENT_PAGE_BYTES
        if place < NUMBERED_PLACE:
            rows = await self._fetch("select_old_events", place, log_id, limit, size)
            if rows:
                items = _items(row[:-1] for row in rows)
                return EventPage(_events(items), self._cursor(rows[-1][-1], rows[-1][0]))
            log_id = 0
        rows = await self._fetch("select_feed_rows", log_id, segment.log_id(last + 1, 0) - 1, limit, size)
        items = _items(row[:-1] for row in rows)
        end = rows[-1][0] if _is_cut([row[:-1] for row in rows], limit) else None
        commit, at = segment.commit_of(log_id)
        found = await self._fetch("select_feed_segments", commit, last, limit, size, at + 1)
        events, last_read = await self._feed_events(found)
        if len(found) == limit or len(events) >= limit or sum(len(row[2]) for row in found) >= size:
            end = last_read if end is None else min(end, last_read)
        items += [(event.log_id or 0, False, [event]) for event in events if (event.log_id or 0) > log_id]
        page = _page(items, end, limit)
        if page:
            log_id = page[-1][0]
        elif end is not None:  # all that was read has been pruned
            log_id = max(log_id, end)
        return EventPage(_events(page), self._cursor(NUMBERED_PLACE, log_id))

    async def _feed_events(self, rows: Sequence[Row]) -> tuple[list[Event], int]:
        """Return the events of these segments, and the number up to which they were read."""
        if not rows:
            return [], 0
        seqs = list({seq for row in rows for seq in checked_keys(row)})
        known: dict[segment.JobKey, str | None] = dict(await self._fetch("select_job_ids", seqs))
        events = [event for row in rows for event in decoded(row, known)]
        last = rows[-1]
        return events, segment.log_id(last[0], last[1] + last[3] - 1)

    async def tail(self) -> str:
        [(last,)] = await self._fetch("feed_end")
        return self._cursor(NUMBERED_PLACE, segment.log_id(last + 1, 0) - 1)

    def _cursor(self, *places: int) -> str:
        return ".".join(map(str, (self._context.epoch, *places)))

    def _start(self, cursor: str | None, places: int) -> list[int]:
        if cursor is None:
            return [0] * places
        epoch, *found = map(cursor_number, cursor.split("."))
        if len(found) != places:
            raise invalid_cursor(cursor)
        if epoch != self._context.epoch:
            raise Conflict("The store was restored from a backup since; start again without a cursor.")
        return found


class _HistoryPage:
    """A page of a job's history; `done` is how many commits of the job precede the last event."""

    def __init__(self, limit: int, done: int) -> None:
        self._limit = limit
        self._page = HistoryBuilder(limit)
        self._taken = 0
        self._last = ""
        self.done = done

    def take(self, event: Event, size: int) -> bool:
        taken = self._page.take(event.offset, event, size)
        if taken:
            self._taken += 1
            self._last = f"{event.offset}.{self.done}"
        return taken

    @property
    def is_full(self) -> bool:
        return self._taken > self._limit

    def cut(self) -> HistoryPage:
        return HistoryPage(self._page.end().events, self._last)

    def end(self) -> HistoryPage:
        return self._page.end()


def _history_cursor(cursor: str) -> tuple[int, int]:
    offset, _, done = cursor.partition(".")
    return cursor_number(offset), cursor_number(done or "0")


def decoded(row: Row, job_ids: dict[segment.JobKey, str | None]) -> list[Event]:
    """Return the events of these jobs in a segment, each with its number."""
    commit, place, text = row[:3]
    try:
        return [
            replace(event, log_id=segment.log_id(commit, at)) for at, event in segment.decode(text, job_ids)
        ]
    except DAMAGED as error:
        raise Corrupt(f"Segment {place} of commit {commit} cannot be read: {error}") from error


def checked_keys(row: Row) -> list[segment.JobKey]:
    try:
        return segment.keys(row[2])
    except DAMAGED as error:
        raise Corrupt(f"Segment {row[1]} of commit {row[0]} cannot be read: {error}") from error


def _items(rows: Iterable[Row]) -> list[Item]:
    return [(row[0], row[_GIVEN_ID] is not None, events_of(row)) for row in rows]


def _is_cut(rows: Sequence[Row], limit: int) -> bool:
    """Whether more rows may follow these."""
    size = sum(len((row[-1] or "").encode()) for row in rows)
    return len(rows) >= limit or size >= filters.EVENT_PAGE_BYTES


def _page(items: list[Item], end: int | None, limit: int) -> list[Item]:
    """Return the first items by number, up to the number `end` and `limit` of them. A batch is never cut."""
    return [item for item in sorted(items, key=lambda item: item[0]) if end is None or item[0] <= end][:limit]


def _events(items: Iterable[Item]) -> tuple[Event, ...]:
    return tuple(event for *_, events in items for event in events)


def _offset(event: Event) -> int:
    return event.offset or 0
