"""What the SQLite file itself promises: durable settings, several processes, people with SQL."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from holdfast.core.errors import Conflict, Fenced
from holdfast.core.lifecycle import Success
from holdfast.core.lifecycle.termination import RESTORED_TOKEN_STEP
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.backup import backup, restore
from holdfast.sdk.open import open_registry
from holdfast.stores.sqlite import clock as store_clock
from holdfast.stores.sqlite.clock import AnchoredClock
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.system import SystemIds
from holdfast.testing.world import open_world, output
from tests.conftest import sqlite_store

ENQUEUE = """
import asyncio, sys
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.sdk.open import open_registry
async def main():
    registry = await open_registry(sys.argv[1])
    await registry.enqueue(JobRequest(spec=Spec(), job_id=sys.argv[2]), actor="user:ana")
    await registry.close()
asyncio.run(main())
"""


async def test_every_connection_is_durable(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "jobs.db", ids=SystemIds())
    for connection in (store._write_connection, store._read_connection, store._poll_connection):
        assert connection.pragma("synchronous") == 2
        assert connection.pragma("journal_mode") == "wal"
    await store.close()


async def test_another_processs_commit_wakes_who_waits(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"

    registry = await open_registry(url)
    mark = registry.change_mark()
    waiting = asyncio.create_task(registry.changes(since=mark, timeout=60))
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", ENQUEUE, url, "there")

    await asyncio.wait_for(waiting, 20)

    assert (await registry.status("there")).state is State.QUEUED
    assert await child.wait() == 0
    await registry.close()


async def test_people_can_read_the_event_log_with_sql(tmp_path: Path) -> None:
    async with open_world(sqlite_store, tmp_path) as world:
        await world.enqueue("job-1")
        grant = await world.claim()
        await world.registry.publish(grant, [output(n, world=world) for n in (1, 2)])
        await world.registry.complete(grant, Success())

        connection = apsw.Connection(str(tmp_path / "jobs.db"))
        cursor = connection.execute("SELECT * FROM job_event_log ORDER BY log_id, event_id")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
        connection.close()

        assert names == [
            "log_id",
            "event_id",
            "event_type",
            "occurred_at",
            "job_id",
            "task_id",
            "execution_id",
            "trace_id",
            "span_id",
            "attributes",
            "received_at",
        ]
        assert [row["event_id"] for row in rows] == [
            "job-1/1",
            "job-1/2",
            "job-1/3",
            "job-1/1.1.1",
            "job-1/1.1.2",
            "job-1/4",
        ]
        assert rows[0]["occurred_at"] == "2026-01-01T00:00:00.000Z"
        assert rows[1]["execution_id"] == "job-1#1"


async def test_a_backup_is_whole_while_others_write(tmp_path: Path) -> None:
    url, copy = f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path / "copy.db"

    registry = await open_registry(url)

    async def write() -> None:
        for _ in range(20):
            await registry.enqueue_many([JobRequest(spec=Spec())] * 50, actor="user:ana")

    writing = asyncio.create_task(write())
    await backup(url, copy)
    await writing
    await registry.close()
    copied = await open_registry(f"sqlite:///{copy}")
    verification = await copied.verify()
    assert verification.equal
    assert verification.jobs <= 1000
    await copied.close()


async def test_a_restore_shuts_out_every_owner_the_backup_does_not_know(tmp_path: Path) -> None:
    """I33: tokens go up by 2^40, leased jobs are queued again, old cursors are refused."""
    url, copy = f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path / "copy.db"
    fresh = f"sqlite:///{tmp_path / 'fresh.db'}"

    registry = await open_registry(url)
    for job_id in ("leased", "queued", "done"):
        spec = Spec(lock="disk" if job_id == "leased" else None)
        await registry.enqueue(JobRequest(spec=spec, job_id=job_id), actor="user:ana")
    done = await registry.acquire("done", owner="w-1")
    await registry.complete(done, Success())
    zombie = await registry.acquire("leased", owner="w-1")
    await backup(url, copy)
    later = await registry.acquire("queued", owner="w-1")
    cursor = (await registry.events()).cursor
    await registry.close()

    restored = await restore(copy, fresh)

    assert (restored.jobs, restored.requeued) == (3, 1)
    registry = await open_registry(fresh)
    for stale in (zombie, later):
        with pytest.raises(Fenced):
            await registry.complete(stale, Success())
    with pytest.raises(Conflict, match="restored from a backup"):
        await registry.events(after=cursor)
    assert (await registry.status("done")).version == 4
    again = await registry.acquire("leased", owner="w-2")
    assert again.fencing_token > RESTORED_TOKEN_STEP
    assert (await registry.locks("disk")).token == again.fencing_token
    assert (await registry.verify()).equal
    await registry.close()


async def test_a_restore_never_overwrites_unasked(tmp_path: Path) -> None:
    url, copy = f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path / "copy.db"

    await (await open_registry(url)).close()
    await backup(url, copy)
    with pytest.raises(Conflict, match="exists already"):
        await restore(copy, url)
    with pytest.raises(Conflict, match="exists already"):
        await backup(url, copy)
    assert (await restore(copy, url, force=True)).jobs == 0


async def test_sleep_of_the_machine_gives_every_lease_its_time_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot, asleep = 1000.0, 0.0
    monkeypatch.setattr(store_clock, "boot_seconds", lambda: boot)
    monkeypatch.setattr(store_clock, "asleep_seconds", lambda: asleep)

    store = await SqliteStore.open(tmp_path / "jobs.db", ids=SystemIds())
    registry = LocalRegistry(store, SystemIds())
    await registry.enqueue(JobRequest(spec=Spec(), job_id="job-1"), actor="user:ana")
    grant = await registry.acquire("job-1", owner="w-1", lease=timedelta(seconds=60))
    boot, asleep = boot + 3600 + 30, 3600.0

    assert await registry.expire() == 0
    boot += 31
    assert await registry.expire() == 1
    with pytest.raises(Fenced):
        await registry.heartbeat(grant)
    await registry.close()


async def test_a_step_of_the_wall_clock_touches_no_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqliteStore.open(tmp_path / "jobs.db", ids=SystemIds())
    assert isinstance(store._clock, AnchoredClock)
    before = await store.now()
    monkeypatch.setattr("holdfast.system.time.time_ns", lambda: 0)

    other = await SqliteStore.open(tmp_path / "jobs.db", ids=SystemIds())

    assert timedelta() <= await other.now() - before < timedelta(seconds=10)
    await other.close()
    await store.close()


async def test_a_wake_up_that_was_rolled_back_is_made_up_for_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot, asleep = 1000.0, 0.0
    monkeypatch.setattr(store_clock, "boot_seconds", lambda: boot)
    monkeypatch.setattr(store_clock, "asleep_seconds", lambda: asleep)

    store = await SqliteStore.open(tmp_path / "jobs.db", ids=SystemIds())
    registry = LocalRegistry(store, SystemIds())
    await registry.enqueue(JobRequest(spec=Spec(), job_id="job-1"), actor="user:ana")
    await registry.acquire("job-1", owner="w-1", lease=timedelta(seconds=60))
    boot, asleep = boot + 3600, 3600.0
    with monkeypatch.context() as broken:
        broken.setattr("holdfast.stores.sqlite.store.SqliteCommit.run", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await store.transact([])

    assert await registry.expire() == 0
    await registry.close()
