"""Queries for jobs, pages, counts and logs. Always on the primary: a replica may be behind."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from holdfast.core.access import Key
from holdfast.core.errors import Conflict
from holdfast.core.event import Event
from holdfast.core.job import Job, ResourceLock
from holdfast.core.process_spec import claim_kinds
from holdfast.core.state import State
from holdfast.ports import Census, EventPage, HistoryPage, JobFilter, JobPage
from holdfast.stores import filters
from holdfast.stores.census import DUE_ITEMS
from holdfast.stores.filters import (
    EVENT_BYTES,
    HISTORY_BYTES_MAX,
    PUBLISHED_ROWS,
    HistoryBuilder,
    PageBuilder,
    cursor_number,
    invalid_cursor,
    is_rare,
    is_selective,
    page_end,
    page_start,
    queue_patterns,
    record_bytes,
    regions,
)
from holdfast.stores.postgres.commit_context import CommitContext, QueryConnection
from holdfast.stores.postgres.rows import events_of, job_of, key_of
from holdfast.stores.postgres.statements import Row, statement

LIST_ITEMS_MIN, LIST_ITEMS_MAX = 128, 1024
"""How many jobs of a page one statement returns: enough for few trips, though not all may match, and few
enough that the server has little to add up before it sends the first."""
_GIVEN_ID = 16


class PostgresQueries:
    """The queries of a store, on one connection."""

    def __init__(self, connection: QueryConnection, context: CommitContext) -> None:
        self._connection = connection
        self._context = context

    async def _fetch(self, name: str, *parameters: object) -> Sequence[Row]:
        return await self._connection.fetch(statement(name, self._context.schema), *parameters)

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        rows = await self._fetch("get_jobs", job_ids)
        found = {job.job_id: job for _, job in map(job_of, rows)}
        return [found.get(job_id) for job_id in job_ids]

    async def list_jobs(self, which: JobFilter, *, after: str | None, limit: int, newest: bool) -> JobPage:
        start = page_start(after, newest=newest)
        patterns = queue_patterns(which)
        likes = None if patterns is None else list(map(_like, patterns))
        if is_selective(which) and not await self._fetch(
            "select_any", which.queue, likes, which.states or None
        ):
            return JobPage((), None)
        until = await self._until(which, start, newest=newest)
        end = page_start(None, newest=not newest) if until is None else until
        name = ("list_rare_jobs" if is_rare(which) else "list_jobs") + ("_newest" * newest)
        asked = (
            which.queue,
            likes,
            regions(which),
            claim_kinds([which.kind]) if which.kind is not None else None,
            sorted(set(which.states)) or None,
            which.owner,
            msgspec.json.encode(which.labels).decode() if which.labels else None,
        )
        page = PageBuilder(which, limit)
        items = max(LIST_ITEMS_MIN, min(limit + 1, LIST_ITEMS_MAX))  # one more than are shown
        while True:
            size = filters.LIST_BYTES_MAX
            rows = await self._fetch(name, start, end, *asked, items, size)
            for row in rows:
                start, job = job_of(row)
                bytes_read = record_bytes(row[-2], row[-1])
                size -= bytes_read
                if not page.take(str(start), job, bytes_read):
                    return page.cut()
            if len(rows) < items and size > 0:
                return page.end(None if until is None else str(until))

    async def _until(self, which: JobFilter, start: int, *, newest: bool) -> int | None:
        """Return the last enqueue sequence to read for this page; None when that is the last there is."""
        order = "_newest" * newest
        if not is_rare(which):
            [(first, last)] = await self._fetch(f"select_list_bounds{order}", start)
            return None if first is None else page_end(first, last, newest=newest)
        rows = await self._fetch(f"select_rare_bound{order}", start, which.states, filters.LIST_ROWS_MAX)
        return next((row[0] + (1 if newest else -1) for row in rows), None)

    async def counts(self, queue: str | None) -> dict[State, int]:
        return {State(state): jobs for state, jobs in await self._fetch("select_counts", queue)}

    async def census(self, limit: int, retries: int) -> Census:
        queues: dict[str, dict[State, int]] = {}
        for queue, state, jobs in await self._fetch("select_census"):
            queues.setdefault(queue, {})[State(state)] = jobs
        ready: dict[str, datetime] = dict(await self._fetch("select_first_ready", limit))
        [(owners, suspected, due)] = await self._fetch("select_owners", DUE_ITEMS)
        return Census(
            queues=queues,
            ready=ready,
            owners=owners,
            suspected=suspected,
            due_at=due,
            retries=retries,
        )

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        chains: dict[str | None, list[Event]] = {job_id: [] for job_id in job_ids}
        for row in await self._fetch("select_histories", job_ids):
            [event] = events_of(row)
            chains[event.job_id].append(event)
        return [chains[job_id] for job_id in job_ids]

    async def history(self, job_id: str, after: str | None, limit: int) -> HistoryPage:
        start, page = cursor_number(after) if after is not None else 0, HistoryBuilder(limit)
        rows = await self._fetch("select_history", job_id, start, limit + 1, HISTORY_BYTES_MAX)
        for row in rows:
            [event] = events_of(row)
            body = len((row[-1] or "").encode())
            if not page.take(event.offset, event, EVENT_BYTES + body):
                return page.cut()
        return page.end()

    async def published(self, job_id: str, token: int, *, first: int) -> list[int]:
        rows = await self._fetch("select_published", job_id, token, first, PUBLISHED_ROWS)
        found = [event.sequence or 0 for row in rows for event in events_of(row)]
        return [sequence for sequence in found if sequence >= first]

    async def logs(self, job_id: str, *, after: str | None, limit: int, output: bool) -> EventPage:
        """Facts have a number of their own in the cursor: one may be recorded, and read, while the job it
        is about is still being made by a transaction that drew its log numbers earlier."""
        mark, *start = self._start(after, 3)  # three numbers, where a cursor of `events` has two
        rows = await self._fetch("select_logs", job_id, *start, output, limit, filters.EVENT_PAGE_BYTES)
        for row in rows:
            start[row[_GIVEN_ID] is not None] = row[0]
        return EventPage(_events(rows), self._cursor(mark, *start))

    async def events(self, *, after: str | None, limit: int) -> EventPage:
        """Read what was committed by transactions older than the oldest one still running: it is
        complete."""
        place, log_id = self._start(after, 2)
        rows = await self._fetch("select_events", place, log_id, limit, filters.EVENT_PAGE_BYTES)
        if rows:
            log_id, place = rows[-1][0], rows[-1][-1]
        return EventPage(_events(row[:-1] for row in rows), self._cursor(place, log_id))

    async def tail(self) -> str:
        [(below,)] = await self._fetch("select_tail")
        return self._cursor(below, 0)

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

    async def now(self) -> datetime:
        [(now,)] = await self._connection.fetch("SELECT clock_timestamp()")
        moment: datetime = now
        return moment

    async def locks(self, key: str) -> ResourceLock:
        rows = await self._fetch("select_resources", [key])
        return ResourceLock(*rows[0]) if rows else ResourceLock(key)

    async def list_keys(self) -> list[Key]:
        return [key_of(row) for row in await self._fetch("select_api_keys")]


def _like(pattern: str) -> str:
    """Return the pattern of a queue's name for LIKE."""
    return re.sub(r"([%_\\])", r"\\\1", pattern).replace("*", "%")


def _events(rows: Iterable[Row]) -> tuple[Event, ...]:
    """Return the events of the rows. A batch is never cut."""
    return tuple(event for row in rows for event in events_of(row))
