"""The log in SQL: one row per event, and questions that do not read all of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import msgspec
import pytest

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Completion, JobRequest
from holdfast.testing.world import World, open_world, output
from tests.conftest import sqlite_store

BATCH = 20


@asynccontextmanager
async def filled(folder: Path, jobs: int) -> AsyncIterator[World]:
    """A store in which so many jobs have ended, each with output and a fact, and one was cancelled."""
    folder.mkdir(exist_ok=True)
    async with open_world(sqlite_store, folder) as world:
        registry = world.registry
        for start in range(0, jobs, BATCH):
            asked = [JobRequest(spec=Spec(), job_id=f"job-{n}") for n in range(start, start + BATCH)]
            await registry.enqueue_many(asked, actor="user:ana")
            grants = await registry.claim(["default"], owner="w", limit=BATCH)
            for grant in grants[:3]:
                await registry.publish(grant, [output(n, world=world) for n in (1, 2)])
            await registry.complete_many([Completion(grant, Success()) for grant in grants])
            await registry.record([noted(f"note-{start}", "job-7", world)])
            world.clock.advance(60)
        await world.enqueue("stopped")
        await registry.cancel("stopped", actor="user:ana", hard=True)
        yield world


def noted(event_id: str, job_id: str, world: World) -> Event:
    return Event(
        event_type="noted",
        event_class=EventClass.EXTERNAL,
        occurred_at=world.clock.now(),
        given_id=event_id,
        job_id=job_id,
    )


def work_of(path: Path, sql: str) -> tuple[int, int]:
    """Return how many rows a question has, and how many hundreds of steps SQLite takes for them."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    connection.set_progress_handler(count, 100)
    rows = connection.execute(f"SELECT * FROM job_event_log WHERE {sql}").fetchall()
    connection.close()
    return len(rows), steps


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("job_id = 'job-21' ORDER BY log_id", 6),
        ("event_id = 'job-21/3' AND job_id = 'job-21'", 1),
        ("event_id = 'job-21/1.1.2' AND job_id = 'job-21'", 1),
        ("event_type = 'job_cancelled'", 1),
        ("event_type = 'job_queued' AND occurred_at < '2026-01-01T00:01'", BATCH),
        ("event_type = 'output' AND occurred_at < '2026-01-01T00:01'", 6),
        ("event_type = 'noted' AND occurred_at < '2026-01-01T00:01'", 1),
        ("occurred_at < '2026-01-01T00:01'", BATCH * 4 + 6 + 1),
    ],
)
async def test_a_question_does_not_read_the_whole_log(tmp_path: Path, sql: str, rows: int) -> None:
    steps = []
    for jobs in (40, 800):
        async with filled(tmp_path / str(jobs), jobs):
            found, taken = work_of(tmp_path / str(jobs) / "jobs.db", sql)
            assert found == rows
            steps.append(taken)

    assert steps[1] <= steps[0] * 1.2 + 3, steps


def plan(path: Path, sql: str) -> list[str]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    rows = list(connection.execute(f"EXPLAIN QUERY PLAN SELECT * FROM job_event_log WHERE {sql}"))
    connection.close()
    return [row[-1] for row in rows]


async def test_sql_starts_from_the_job_or_from_the_segment(tmp_path: Path) -> None:
    async with filled(tmp_path, BATCH):
        by_job = plan(tmp_path / "jobs.db", "job_id = 'job-7'")
        by_type = plan(tmp_path / "jobs.db", "event_type = 'job_failed' AND occurred_at > '2026'")
        by_time = plan(tmp_path / "jobs.db", "occurred_at > '2026'")
        whole = plan(tmp_path / "jobs.db", "true")

        assert "SEARCH job USING INDEX sqlite_autoindex_job_1 (job_id=?)" in by_job
        assert "SEARCH segment USING INTEGER PRIMARY KEY (rowid=?)" in by_job
        assert "SEARCH segment USING INDEX segment_type (event_type=? AND <expr>>?)" in by_type
        assert "SEARCH event USING INDEX event_type (event_type=? AND <expr>>?)" in by_type
        assert "SEARCH segment USING INDEX segment_type (ANY(event_type) AND <expr>>?)" in by_time
        assert "SEARCH event USING INDEX event_time (<expr>>?)" in by_time
        assert "SCAN segment" in whole
        for lines in (by_job, by_type, by_time):
            assert not {"SCAN segment", "SCAN job", "SCAN state"} & set(lines)


async def test_sql_shows_every_event_as_the_registry_does(tmp_path: Path) -> None:
    async with filled(tmp_path, 2 * BATCH) as world:
        grant = (await world.enqueue("mixed"), await world.claim())[1]
        shown = Event(
            event_type=WorkerEventType.CUSTOM,
            event_class=EventClass.WORKER,
            occurred_at=world.clock.now(),
            sequence=2,
            task_id="task-1",
            trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
            attributes={"loss": 1.5},
        )
        await world.registry.publish(grant, [output(1, world=world), shown, output(3, world=world)])
        await world.registry.release(grant, reason="later")
        feed = (await world.store.events(after=None, limit=10_000)).events

        connection = apsw.Connection(str(tmp_path / "jobs.db"))
        rows = connection.execute(
            "SELECT event_id, event_type, job_id, task_id, trace_id FROM job_event_log"
        ).fetchall()
        attributes = connection.execute(
            "SELECT attributes ->> '$.attributes.loss', execution_id FROM job_event_log"
            " WHERE event_id = 'mixed/1.1.2'"
        ).fetchall()
        released = connection.execute(
            "SELECT log_id, attributes FROM job_event_log WHERE event_id = 'mixed/3'"
        ).fetchall()
        connection.close()

        assert sorted(rows) == sorted(
            (e.event_id, str(e.event_type), e.job_id, e.task_id, e.trace_id) for e in feed
        )
        assert attributes == [(1.5, "mixed#1")]
        [event] = [event for event in feed if event.event_id == "mixed/3"]
        assert released[0][0] == event.log_id
        assert msgspec.json.decode(str(released[0][1] or "{}")) == event.attributes


async def test_what_is_left_of_a_segment_keeps_its_numbers(tmp_path: Path) -> None:
    async with filled(tmp_path, BATCH) as world:
        asked = [JobRequest(spec=Spec(), job_id=f"late-{n}") for n in range(4)]
        await world.registry.enqueue_many(asked, actor="user:ana")
        for grant in (await world.registry.claim(["default"], owner="w", limit=4))[:2]:
            await world.registry.complete(grant, Success())
        before = (await world.store.events(after=None, limit=10_000)).events
        world.clock.advance(86_400 * 2)
        await world.registry.prune(older_than=world.clock.now() - world.clock.now())

        connection = apsw.Connection(str(tmp_path / "jobs.db"))
        rows = connection.execute("SELECT log_id, event_id FROM job_event_log ORDER BY log_id").fetchall()
        left = {job_id for (job_id,) in connection.execute("SELECT job_id FROM job")}
        connection.close()

        assert left == {"late-2", "late-3"}
        kept = [(e.log_id, e.event_id) for e in before if e.job_id in left]
        assert [row for row in rows if str(row[1]).startswith("late")] == kept
        assert await world.store.histories(["late-2"]) == [[e for e in before if e.job_id == "late-2"]]
