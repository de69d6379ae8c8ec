"""Queries for jobs, pages, counts and logs, on a connection that never writes."""

from collections.abc import Generator, Sequence
from contextlib import closing
from datetime import datetime
from heapq import merge
from operator import itemgetter

import apsw
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
from holdfast.stores.records import key_from, worker_from
from holdfast.stores.sqlite.commit import json_list
from holdfast.stores.sqlite.job_rows import PAYLOAD, JobRow, job_of
from holdfast.stores.sqlite.log_queries import (
    events,
    facts,
    histories,
    history,
    logs,
    published,
    published_before,
    tail,
)
from holdfast.stores.sqlite.statements import Value, statement
from holdfast.stores.sqlite.timestamps import (
    from_microseconds,
    from_microseconds_or_none,
    to_microseconds,
)

__all__ = [
    "census",
    "count_ready",
    "counts",
    "events",
    "facts",
    "get",
    "histories",
    "history",
    "list_jobs",
    "list_keys",
    "list_workers",
    "locks",
    "logs",
    "published",
    "published_before",
    "tail",
]


def get(connection: apsw.Connection, job_ids: Sequence[str]) -> list[Job | None]:
    rows = connection.execute(statement("select_jobs_by_id"), (json_list(job_ids),))
    found = {job.job_id: job for _, job in map(job_of, rows)}
    return [found.get(job_id) for job_id in job_ids]


def list_jobs(
    connection: apsw.Connection, which: JobFilter, after: str | None, limit: int, *, newest: bool
) -> JobPage:
    parameters = _asked(which)
    parameters["after"] = page_start(after, newest=newest)
    if is_selective(which) and not _any(connection, parameters):
        return JobPage((), None)
    order = "_newest" if newest else ""
    page = PageBuilder(which, limit)
    if which.short_id is not None:
        for row in _rows_by_short_id(connection, which.short_id, after, newest=newest):
            seq, job = job_of(row)
            if not page.take(str(seq), job, _row_bytes(row)):
                return page.cut()
        return page.end(None)
    until = _until(connection, which, parameters, newest=newest)
    parameters["until"] = page_start(None, newest=not newest) if until is None else until
    with closing(_rows(connection, which, parameters, order)) as rows:
        for row in rows:
            seq, job = job_of(row)
            if not page.take(str(seq), job, _row_bytes(row)):
                return page.cut()
    return page.end(None if until is None else str(until))


def _row_bytes(row: JobRow) -> int:
    """Return the size of a row: of its numbers and names, its spec, payload and detail."""
    return 200 + record_bytes(*(text for text in (row[PAYLOAD], *row[-2:]) if text is not None))


def _asked(which: JobFilter) -> dict[str, Value]:
    patterns, near = queue_patterns(which), regions(which)
    return {
        "queue": which.queue,
        "queues": json_list(patterns) if patterns is not None else None,
        "regions": json_list(near) if near is not None else None,
        "kinds": json_list(claim_kinds([which.kind])) if which.kind is not None else None,
        "name": written_name(which),
        "states": json_list(which.states) if which.states else None,
        "owner": which.owner,
        "labels": msgspec.json.encode(which.labels).decode() if which.labels else None,
    }


def _any(connection: apsw.Connection, parameters: dict[str, Value]) -> bool:
    """Whether there is any job in these queues and states, by their counts."""
    return connection.execute(statement("select_any"), parameters).fetchone() is not None


def _until(
    connection: apsw.Connection, which: JobFilter, parameters: dict[str, Value], *, newest: bool
) -> int | None:
    """Return the last enqueue sequence to read for this page; None when that is the last there is."""
    order = "_newest" if newest else ""
    if not is_rare(which):
        [(first, last)] = connection.execute(statement(f"select_list_bounds{order}"), parameters)
        return None if first is None else page_end(first, last, newest=newest)
    found: list[int] = []
    for state in which.states:
        asked = {**parameters, "state": state, "rows": filters.LIST_ROWS_MAX}
        found += [seq for (seq,) in connection.execute(statement(f"select_rare_bound{order}"), asked)]
    if not found:
        return None
    return max(found) + 1 if newest else min(found) - 1


def _rows(
    connection: apsw.Connection, which: JobFilter, parameters: dict[str, Value], order: str
) -> Generator[JobRow]:
    """Yield the jobs in order, read one by one; those of rare states by the index, state by state."""
    if not is_rare(which):
        yield from connection.execute(statement(f"list_jobs{order}"), parameters)
        return
    sql = statement(f"list_rare_jobs{order}")
    found = (connection.execute(sql, {**parameters, "state": s}) for s in set(which.states))
    yield from merge(*found, key=itemgetter(0), reverse=bool(order))


def _rows_by_short_id(
    connection: apsw.Connection, text: str, after: str | None, *, newest: bool
) -> list[JobRow]:
    """Return the jobs whose ids fit, in order, from where the page begins."""
    asked: dict[str, Value] = {"text": text, "limit": SHORT_ID_MATCHES_MAX, "rows": SHORT_ID_ROWS_MAX}
    found = {job_id for (job_id,) in connection.execute(statement("select_ids_from"), asked)}
    for first, end in TIMED_RANGES if may_be_end(text) else ():
        asked |= {"first": first, "end": end}
        found.update(job_id for (job_id,) in connection.execute(statement("select_ids_by_end"), asked))
    rows = connection.execute(statement("select_jobs_by_id"), (json_list(sorted(found)),))
    return in_page_order(rows, page_start(after, newest=newest), newest=newest)


def counts(connection: apsw.Connection, queue: str | None) -> dict[State, int]:
    return {State(state): n for state, n in connection.execute(statement("select_counts"), (queue,))}


def count_ready(
    connection: apsw.Connection,
    queue: str,
    now: datetime,
    *,
    ahead_of: Job | None = None,
    delayed: bool = False,
    limit: int,
) -> int:
    name = "count_delayed" if delayed else "count_ready"
    asked: dict[str, Value] = {"queue": queue, "now": to_microseconds(now), "limit": limit}
    if ahead_of is not None:
        name = "count_ahead"
        asked |= {"priority": ahead_of.spec.priority, "job_id": ahead_of.job_id}
        asked["ready_at"] = to_microseconds(ahead_of.ready_at)
    [(found,)] = connection.execute(statement(name), asked)
    return int(found)


def census(connection: apsw.Connection, limit: int) -> Census:
    """Return the census; each query sees the file as of its own time. They are not one transaction: a
    failing read may end it, and the error of ending it again would hide the failure."""
    queues: dict[str, dict[State, int]] = {}
    for queue, state, jobs in connection.execute(statement("select_census")):
        queues.setdefault(queue, {})[State(state)] = jobs
    found = connection.execute(statement("select_first_ready"), (limit,))
    ready = {queue: from_microseconds(at) for queue, at in found}
    [(owners, suspected, due)] = connection.execute(statement("select_owners"), (DUE_ITEMS,))
    return Census(
        queues=queues,
        ready=ready,
        owners=owners,
        suspected=suspected,
        due_at=from_microseconds_or_none(due),
    )


def locks(connection: apsw.Connection, key: str) -> ResourceLock:
    row = connection.execute(statement("select_resources"), (json_list([key]),)).fetchone()
    return ResourceLock(*row) if row else ResourceLock(key)


def list_keys(connection: apsw.Connection) -> list[Key]:
    return [key_from(row[0]) for row in connection.execute(statement("select_api_keys"))]


def list_workers(connection: apsw.Connection) -> list[WorkerInfo]:
    return [worker_from(row[0]) for row in connection.execute(statement("select_workers"))]
