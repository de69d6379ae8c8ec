"""A file of schema 3 becomes one of schema 4: with jobs in every state, and their old events."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import apsw
import msgspec
import pytest

from holdfast.core.errors import Fenced, Invalid
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.state import State
from holdfast.failpoint import arm
from holdfast.ports import Grant, JobFilter
from holdfast.stores.filters import RARE_STATES
from holdfast.stores.sqlite.connection import connect, migrate
from holdfast.stores.sqlite.statements import migrations
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.fakes import CountingIds, ManualClock
from holdfast.testing.world import World

HERE = Path(__file__).parent


class Before(msgspec.Struct):
    """What the code of schema 3 read from the file it had written (commit 2daa3d0)."""

    now: datetime
    jobs: list[Job]
    histories: list[list[Event]]
    logs: list[list[Event]]
    feed: list[Event]
    counts: dict[State, int]


BEFORE = msgspec.json.decode((HERE / "schema_3.json").read_bytes(), type=Before)


def encoded(jobs: Sequence[Job | None]) -> bytes:
    """The jobs with their payloads, byte for byte."""
    return msgspec.json.encode(jobs)


def old_lease(job_id: str) -> Grant:
    """The grant that the owner of a job has from before."""
    job = next(job for job in BEFORE.jobs if job.job_id == job_id)
    return Grant(job=job, fencing_token=job.fencing_token, attempt=job.attempt, lease_seconds=60)


def old_file(folder: Path) -> Path:
    """A file as the code of schema 3 has left it."""
    path = folder / "jobs.db"
    connection = apsw.Connection(str(path))
    connection.execute((HERE / "schema_3.sql").read_text(encoding="utf-8")).fetchall()
    connection.close()
    return path


@asynccontextmanager
async def migrated(folder: Path) -> AsyncIterator[World]:
    path = folder / "jobs.db"
    if not path.exists():
        old_file(folder)
    clock, ids = ManualClock(), CountingIds()
    for _ in range(1_000):
        ids.new()  # not those that the file has
    clock.advance((BEFORE.now - clock.now()).total_seconds())
    world = World(await SqliteStore.open(path, ids=ids, clock=clock), clock, ids)
    try:
        yield world
    finally:
        await world.registry.close()


def test_the_old_file_has_jobs_in_many_states() -> None:
    states = {job.state for job in BEFORE.jobs}

    assert states >= {State.QUEUED, State.ASSIGNED, State.RUNNING, State.VALIDATING, State.SUCCEEDED}
    assert states & RARE_STATES >= {State.FAILED, State.CANCELLED, State.DEAD_LETTERED}


async def test_every_record_and_every_event_is_as_before(tmp_path: Path) -> None:
    async with migrated(tmp_path) as world:
        store, ids = world.store, [job.job_id for job in BEFORE.jobs]

        assert encoded(await store.get(ids)) == encoded(BEFORE.jobs)
        assert await store.histories(ids) == BEFORE.histories
        assert [list((await store.logs(i, after=None, limit=999)).events) for i in ids] == BEFORE.logs
        assert list((await store.events(after=None, limit=999)).events) == BEFORE.feed
        assert await store.counts() == BEFORE.counts
        page = await store.list_jobs(JobFilter(), after=None, limit=99)
        assert encoded(page.jobs) == encoded(BEFORE.jobs)
        assert len(await store.list_keys()) == 1
        await world.check()


async def test_states_owners_and_labels_are_listed(tmp_path: Path) -> None:
    async with migrated(tmp_path) as world:
        for state in State:
            page = await world.store.list_jobs(JobFilter(states=(state,)), after=None, limit=99)
            assert encoded(page.jobs) == encoded([job for job in BEFORE.jobs if job.state is state])
        for which, ids in (
            (JobFilter(owner="w5"), ["running", "stopping"]),
            (JobFilter(labels={"team": "blue"}), ["queued"]),
            (JobFilter(kind="train"), ["elsewhere"]),
        ):
            page = await world.store.list_jobs(which, after=None, limit=99)
            assert [job.job_id for job in page.jobs] == ids


async def test_every_old_job_goes_on(tmp_path: Path) -> None:
    async with migrated(tmp_path) as world:
        registry = world.registry
        for job_id in ("assigned", "running", "stopping", "parent"):
            await registry.heartbeat(old_lease(job_id))
            await registry.complete(old_lease(job_id), Success())
        world.clock.advance(3_601)
        queues = ["default", "r1", "l1", "f2", "other"]
        for executor, region in ((None, None), ("gpu", "eu")):
            grants = await registry.claim(queues, owner="w9", limit=99, executor=executor, region=region)
            for grant in grants:
                await registry.complete(grant, Success())

        waiting = {job.job_id for job in (await registry.list_jobs(JobFilter(states=(State.QUEUED,)))).jobs}
        await world.check()

        assert waiting == set()


async def test_the_claims_of_before_are_repeated_and_not_granted_again(tmp_path: Path) -> None:
    async with migrated(tmp_path) as world:
        [again] = await world.registry.claim(["a1"], owner="w4", op_id="claim-assigned")
        ended = await world.registry.claim(["d1", "default"], owner="w1", op_id="claim-done")
        lost = await world.registry.claim(["l1"], owner="w3", op_id="claim-lapsed")

        assert again.job.job_id == "assigned"
        assert ended == lost == []


async def test_leases_and_deadlines_of_before_run_out(tmp_path: Path) -> None:
    async with migrated(tmp_path) as world:
        world.clock.advance(timedelta(hours=3).total_seconds())
        await world.registry.expire()

        jobs = await world.store.get(["assigned", "running", "deadline"])

        assert [job.state for job in jobs if job] == [State.QUEUED, State.QUEUED, State.DEAD_LETTERED]
        with pytest.raises(Fenced):
            await world.registry.complete(old_lease("assigned"), Success())
        await world.check()


async def test_old_jobs_are_pruned_with_all_that_is_about_them(tmp_path: Path) -> None:
    async with migrated(tmp_path) as world:
        world.clock.advance(timedelta(days=9).total_seconds())
        ended = [job.job_id for job in BEFORE.jobs if job.ended]
        pruned = await world.registry.prune(older_than=timedelta(days=1))

        assert pruned.jobs >= len(ended)
        feed = (await world.store.events(after=None, limit=999)).events
        assert not any(event.job_id in ended for event in feed)
        await world.check()


async def test_the_log_goes_on_after_the_cursors_of_before(tmp_path: Path) -> None:
    async with migrated(tmp_path) as world:
        last = BEFORE.feed[-1].log_id
        await world.enqueue("new")

        page = await world.store.events(after=f"0.{last}", limit=10)

        assert [event.event_id for event in page.events] == ["new/1"]


async def test_sql_reads_old_and_new_events(tmp_path: Path) -> None:
    async with migrated(tmp_path) as world:
        await world.enqueue("new", queue="n")
        connection = apsw.Connection(str(tmp_path / "jobs.db"))
        sql = "SELECT event_id FROM job_event_log WHERE job_id = ? ORDER BY log_id, event_id"
        rows = {job_id: [r[0] for r in connection.execute(sql, (job_id,))] for job_id in ("done", "new")}
        types = dict(connection.execute("SELECT event_id, event_type FROM job_event_log"))
        connection.close()

        old = BEFORE.logs[[job.job_id for job in BEFORE.jobs].index("done")]
        assert set(rows["done"]) == {event.event_id for event in old}
        assert len(rows["done"]) == len(old)
        assert rows["new"] == ["new/1"]
        feed = {event.event_id: str(event.event_type) for event in BEFORE.feed}
        assert types == feed | {"new/1": "job_queued"}


def test_several_processes_may_open_the_old_file_at_once(tmp_path: Path) -> None:
    path = old_file(tmp_path)
    script = (
        "import asyncio, sys\n"
        "from holdfast.sdk.open import open_registry\n"
        "async def main():\n"
        "    registry = await open_registry(sys.argv[1])\n"
        "    print((await registry.verify()).equal)\n"
        "    await registry.close()\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", script, f"sqlite:///{path}"]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]

    assert [child.communicate(timeout=60)[0].strip() for child in children] == ["True"] * 3


@pytest.mark.parametrize("name", ["begun", "schema_changed", "numbered", "committed"])
def test_a_crash_in_the_middle_leaves_the_old_file_or_the_new_one(tmp_path: Path, name: str) -> None:
    path = old_file(tmp_path)
    child = os.fork()
    if child == 0:
        arm(lambda reached: os.kill(os.getpid(), signal.SIGKILL) if reached == f"migration.{name}" else None)
        migrate(connect(path), path)
        os._exit(0)
    _, status = os.waitpid(child, 0)

    connection = apsw.Connection(str(path))
    version, whole = connection.pragma("user_version"), connection.pragma("quick_check")
    connection.close()

    assert os.WTERMSIG(status) == signal.SIGKILL
    assert whole == "ok"
    assert version == (len(migrations()) if name == "committed" else 3)

    async def look() -> None:
        async with migrated(tmp_path) as world:
            jobs = await world.store.get([job.job_id for job in BEFORE.jobs])
            assert encoded(jobs) == encoded(BEFORE.jobs)

    asyncio.run(look())


def test_code_that_knows_schema_3_refuses_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = old_file(tmp_path)
    migrate(connect(path), path)
    monkeypatch.setattr("holdfast.stores.sqlite.connection.migrations", lambda: migrations()[:3])

    with pytest.raises(Invalid, match="written by a newer holdfast"):
        migrate(connect(path), path)
