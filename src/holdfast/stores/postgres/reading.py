"""Reading: jobs, pages, counts and logs. Always on the primary: a replica may be behind."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from holdfast.core.access import Key
from holdfast.core.command import claim_kinds
from holdfast.core.errors import Conflict
from holdfast.core.event import Event
from holdfast.core.job import Job, Resource
from holdfast.core.state import State
from holdfast.ports import Census, Filter, Page, Slice
from holdfast.stores.census import DUE_ITEMS
from holdfast.stores.filters import SLICE_BYTES, beginning, position
from holdfast.stores.postgres.place import Place, Speaks
from holdfast.stores.postgres.rows import events_of, job_of, key_of
from holdfast.stores.postgres.statements import Row, statement

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
        sql = statement("list_jobs_newest" if newest else "list_jobs", self._place.schema)
        if which.states == (State.DEAD_LETTERED,):
            # Said in so many words, so that the index of dead letters serves, however many jobs there are.
            sql = sql.replace("WHERE seq", "WHERE state = 'dead_lettered' AND seq", 1)
        rows = await self._connection.fetch(
            sql,
            beginning(after, newest=newest),
            which.queue,
            claim_kinds([which.kind]) if which.kind is not None else None,
            which.states or None,
            which.owner,
            msgspec.json.encode(which.labels).decode() if which.labels else None,
            limit + 1,
        )
        found = [job_of(row) for row in rows[:limit]]
        more = str(found[-1][0]) if len(rows) > limit else None
        return Page(tuple(job for _, job in found), more)

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

    async def log(self, job_id: str, *, after: str | None, limit: int, output: bool) -> Slice:
        """Facts have a place of their own in the cursor: one may be told, and read, while the job it is
        about is still being made by a transaction that drew its numbers before."""
        mark, *start = self._start(after, 3)  # the mark is no feed's
        rows = await self._ask("select_log", job_id, *start, output, limit)
        events, last = _fitting(rows)
        for row in rows[: rows.index(last) + 1] if last else ():
            start[row[_GIVEN_ID] is not None] = row[0]
        return Slice(events, self._cursor(mark, *start))

    async def feed(self, *, after: str | None, limit: int) -> Slice:
        """Everything committed below the oldest transaction still under way: none of it can change."""
        place, log_id = self._start(after, 2)
        rows = await self._ask("select_feed", place, log_id, limit)
        events, last = _fitting(row[:-1] for row in rows)
        if last:
            log_id = last[0]
            place = next(row[-1] for row in rows if row[0] == log_id)
        return Slice(events, self._cursor(place, log_id))

    async def tail(self) -> str:
        [(below,)] = await self._ask("select_tail")
        return self._cursor(below, 0)

    def _cursor(self, *places: int) -> str:
        return ".".join(map(str, (self._place.epoch, *places)))

    def _start(self, cursor: str | None, places: int) -> list[int]:
        if cursor is None:
            return [0] * places
        epoch, *found = map(position, cursor.split("."))
        if epoch != self._place.epoch:
            raise Conflict(
                "The store was restored from a backup since; start again without a cursor."
            )
        if len(found) != places:
            position(cursor)
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


def _fitting(rows: Iterable[Row]) -> tuple[tuple[Event, ...], Row | None]:
    """The events of the rows, as far as they fit into memory at once, and the last row among them. A
    batch is never cut."""
    events: list[Event] = []
    last: Row | None = None
    size = 0
    for row in rows:
        events += events_of(row)
        last = row
        size += len(row[-1] or "")
        if size > SLICE_BYTES:
            break
    return tuple(events), last
