"""Reading: jobs, pages, counts and logs. Always on the primary: a replica may be behind."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from holdfast.core.access import Key
from holdfast.core.command import claim_kinds
from holdfast.core.errors import Conflict
from holdfast.core.event import Event
from holdfast.core.job import Job, Resource
from holdfast.core.state import State
from holdfast.ports import Census, Filter, HistoryPage, Page, Slice
from holdfast.stores import filters
from holdfast.stores.census import DUE_ITEMS
from holdfast.stores.filters import (
    EVENT_BYTES,
    HISTORY_BYTES_MAX,
    PUBLISHED_ROWS,
    HistoryBuilder,
    PageBuilder,
    beginning,
    ending,
    is_rare,
    is_selective,
    no_cursor,
    position,
    queue_patterns,
    record_bytes,
    regions,
)
from holdfast.stores.postgres.place import Place, Speaks
from holdfast.stores.postgres.rows import events_of, job_of, key_of
from holdfast.stores.postgres.statements import Row, statement

LIST_ITEMS_MIN, LIST_ITEMS_MAX = 128, 1024
"""Jobs of a page that one statement brings: few trips, though not all that are read may be wanted, and a
bound on how many are added up before any is sent."""
_GIVEN_ID = 16


class Reading:
    """Questions to the tables, on one connection."""

    def __init__(self, connection: Speaks, place: Place) -> None:
        self._connection = connection
        self._place = place

    async def _ask(self, name: str, *parameters: object) -> Sequence[Row]:
        return await self._connection.fetch(statement(name, self._place.schema), *parameters)

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        rows = await self._ask("get_jobs", job_ids)
        found = {job.job_id: job for _, job in map(job_of, rows)}
        return [found.get(job_id) for job_id in job_ids]

    async def list_jobs(
        self, which: Filter, *, after: str | None, limit: int, newest: bool
    ) -> Page:
        start = beginning(after, newest=newest)
        patterns = queue_patterns(which)
        likes = None if patterns is None else list(map(_like, patterns))
        if is_selective(which) and not await self._ask(
            "select_any", which.queue, likes, which.states or None
        ):
            return Page((), None)
        until = await self._until(which, start, newest=newest)
        end = beginning(None, newest=not newest) if until is None else until
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
            rows = await self._ask(name, start, end, *asked, items, size)
            for row in rows:
                start, job = job_of(row)
                bytes_read = record_bytes(row[-2], row[-1])
                size -= bytes_read
                if not page.take(str(start), job, bytes_read):
                    return page.cut()
            if len(rows) < items and size > 0:
                return page.end(None if until is None else str(until))

    async def _until(self, which: Filter, start: int, *, newest: bool) -> int | None:
        """The last number to look at for this page; None when that is the last there is."""
        order = "_newest" * newest
        if not is_rare(which):
            [(first, last)] = await self._ask(f"select_listed{order}", start)
            return None if first is None else ending(first, last, newest=newest)
        rows = await self._ask(f"select_rare{order}", start, which.states, filters.LIST_ROWS_MAX)
        return next((row[0] + (1 if newest else -1) for row in rows), None)

    async def counts(self, queue: str | None) -> dict[State, int]:
        return {State(state): jobs for state, jobs in await self._ask("select_counts", queue)}

    async def census(self, limit: int, retries: int) -> Census:
        queues: dict[str, dict[State, int]] = {}
        for queue, state, jobs in await self._ask("select_census"):
            queues.setdefault(queue, {})[State(state)] = jobs
        ready: dict[str, datetime] = dict(await self._ask("select_first_ready", limit))
        [(owners, suspected, due)] = await self._ask("select_owners", DUE_ITEMS)
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
        for row in await self._ask("select_histories", job_ids):
            [event] = events_of(row)
            chains[event.job_id].append(event)
        return [chains[job_id] for job_id in job_ids]

    async def history(self, job_id: str, after: str | None, limit: int) -> HistoryPage:
        start, page = position(after) if after is not None else 0, HistoryBuilder(limit)
        rows = await self._ask("select_history", job_id, start, limit + 1, HISTORY_BYTES_MAX)
        for row in rows:
            [event] = events_of(row)
            body = len((row[-1] or "").encode())
            if not page.take(event.offset, event, EVENT_BYTES + body):
                return page.cut()
        return page.end()

    async def published(self, job_id: str, token: int, *, first: int) -> list[int]:
        rows = await self._ask("select_published", job_id, token, first, PUBLISHED_ROWS)
        found = [event.sequence or 0 for row in rows for event in events_of(row)]
        return [sequence for sequence in found if sequence >= first]

    async def log(self, job_id: str, *, after: str | None, limit: int, output: bool) -> Slice:
        """Facts have a place of their own in the cursor: one may be told, and read, while the job it is
        about is still being made by a transaction that drew its numbers before."""
        mark, *start = self._start(after, 3)  # the mark is no feed's
        rows = await self._ask("select_log", job_id, *start, output, limit, filters.SLICE_BYTES)
        for row in rows:
            start[row[_GIVEN_ID] is not None] = row[0]
        return Slice(_events(rows), self._cursor(mark, *start))

    async def feed(self, *, after: str | None, limit: int) -> Slice:
        """Everything committed below the oldest transaction still under way: none of it can change."""
        place, log_id = self._start(after, 2)
        rows = await self._ask("select_feed", place, log_id, limit, filters.SLICE_BYTES)
        if rows:
            log_id, place = rows[-1][0], rows[-1][-1]
        return Slice(_events(row[:-1] for row in rows), self._cursor(place, log_id))

    async def tail(self) -> str:
        [(below,)] = await self._ask("select_tail")
        return self._cursor(below, 0)

    def _cursor(self, *places: int) -> str:
        return ".".join(map(str, (self._place.epoch, *places)))

    def _start(self, cursor: str | None, places: int) -> list[int]:
        if cursor is None:
            return [0] * places
        epoch, *found = map(position, cursor.split("."))
        if len(found) != places:
            raise no_cursor(cursor)
        if epoch != self._place.epoch:
            raise Conflict(
                "The store was restored from a backup since; start again without a cursor."
            )
        return found

    async def now(self) -> datetime:
        [(now,)] = await self._connection.fetch("SELECT clock_timestamp()")
        moment: datetime = now
        return moment

    async def resource(self, key: str) -> Resource:
        rows = await self._ask("select_resources", [key])
        return Resource(*rows[0]) if rows else Resource(key)

    async def keys(self) -> list[Key]:
        return [key_of(row) for row in await self._ask("select_api_keys")]


def _like(pattern: str) -> str:
    """The pattern of a queue's name as LIKE has it."""
    return re.sub(r"([%_\\])", r"\\\1", pattern).replace("*", "%")


def _events(rows: Iterable[Row]) -> tuple[Event, ...]:
    """The events of the rows. A batch is never cut."""
    return tuple(event for row in rows for event in events_of(row))
