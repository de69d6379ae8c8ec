"""Queries for jobs, pages and counts. Always on the primary: a replica may be behind."""

import re
from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.core.access import Key
from holdfast.core.job import Job, ResourceLock
from holdfast.core.process_spec import claim_kinds
from holdfast.core.short_ids import SHORT_ID_MATCHES_MAX, SHORT_ID_ROWS_MAX, TIMED_RANGES, may_be_end
from holdfast.core.state import State
from holdfast.core.workers import WorkerInfo
from holdfast.ports import Census, JobFilter, JobPage
from holdfast.stores import filters
from holdfast.stores.census import DUE_ITEMS
from holdfast.stores.filters import (
    PageBuilder,
    in_page_order,
    is_rare,
    is_selective,
    page_end,
    page_start,
    queue_patterns,
    record_bytes,
    regions,
    written_name,
)
from holdfast.stores.postgres.commit_context import CommitContext, QueryConnection
from holdfast.stores.postgres.rows import job_of, key_of, worker_of
from holdfast.stores.postgres.statements import Row, statement

LIST_ITEMS_MIN, LIST_ITEMS_MAX = 128, 1024
"""How many jobs of a page one statement returns: enough for few trips, though not all may match, and few
enough that the server has little to add up before it sends the first."""

BESIDE_MAX = 10_000
"""How many ids from a text on are looked at for those that begin with it: not every collation of a database
has them next to each other."""


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
        page = PageBuilder(which, limit)
        if which.short_id is not None:
            for row in in_page_order(await self._rows_by_short_id(which.short_id), start, newest=newest):
                seq, job = job_of(row)
                if not page.take(str(seq), job, record_bytes(*row[13:16])):
                    return page.cut()
            return page.end(None)
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
        items = max(LIST_ITEMS_MIN, min(limit + 1, LIST_ITEMS_MAX))  # one more than are shown
        while True:
            size = filters.LIST_BYTES_MAX
            rows = await self._fetch(name, start, end, *asked, items, size, written_name(which))
            for row in rows:
                start, job = job_of(row)
                bytes_read = record_bytes(*row[13:16])
                size -= bytes_read
                if not page.take(str(start), job, bytes_read):
                    return page.cut()
            if len(rows) < items and size > 0:
                return page.end(None if until is None else str(until))

    async def _rows_by_short_id(self, text: str) -> Sequence[Row]:
        """Return the jobs whose ids fit."""
        found = await self._fetch("select_ids_from", text, BESIDE_MAX, SHORT_ID_MATCHES_MAX)
        ids = {row[0] for row in found}
        for first, end in TIMED_RANGES if may_be_end(text) else ():
            limits = (SHORT_ID_ROWS_MAX, SHORT_ID_MATCHES_MAX)
            ids.update(row[0] for row in await self._fetch("select_ids_by_end", text, first, end, *limits))
        return await self._fetch("get_jobs", sorted(ids))

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

    async def count_ready(self, queue: str, ahead_of: Job | None, *, delayed: bool, limit: int) -> int:
        now = self._context.clock.now() if self._context.clock else None
        name, place = "count_delayed" if delayed else "count_ready", tuple[object, ...]()
        if ahead_of is not None:
            name, place = "count_ahead", (ahead_of.spec.priority, ahead_of.ready_at, ahead_of.job_id)
        [(found,)] = await self._fetch(name, queue, now, limit, *place)
        return int(found)

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

    async def now(self) -> datetime:
        [(now,)] = await self._connection.fetch("SELECT clock_timestamp()")
        moment: datetime = now
        return moment

    async def locks(self, key: str) -> ResourceLock:
        rows = await self._fetch("select_resources", [key])
        return ResourceLock(*rows[0]) if rows else ResourceLock(key)

    async def list_keys(self) -> list[Key]:
        return [key_of(row) for row in await self._fetch("select_api_keys")]

    async def list_workers(self) -> list[WorkerInfo]:
        return [worker_of(row) for row in await self._fetch("select_workers")]


def _like(pattern: str) -> str:
    """Return the pattern of a queue's name for LIKE."""
    return re.sub(r"([%_\\])", r"\\\1", pattern).replace("*", "%")
