"""The copy of a job that was leased out here is used only while it is the job."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import Conflict, Fenced, Unavailable
from holdfast.core.event import Event
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.failpoint import arm
from holdfast.ports import Grant, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores.leased_jobs import PAYLOAD_BYTES_MAX
from holdfast.stores.sqlite import clock as store_clock
from holdfast.stores.sqlite.commit import SqliteCommit
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.stores.sqlite.timestamps import from_microseconds, to_microseconds
from holdfast.stores.sqlite.wakeup import LogWatch, notify_other_processes
from holdfast.system import SystemIds


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each read for a commit has found."""
    found: list[int] = []
    load = SqliteCommit._load

    def noted(self: SqliteCommit, sql: str, parameters: object) -> object:
        jobs = load(self, sql, parameters)  # type: ignore[arg-type]
        found.append(len(jobs))
        return jobs

    monkeypatch.setattr(SqliteCommit, "_load", noted)
    return found


@asynccontextmanager
async def two_registries(folder: Path) -> AsyncIterator[tuple[LocalRegistry, LocalRegistry]]:
    """Two processes' worth of registries on one file."""
    stores = [await SqliteStore.open(folder / "jobs.db", ids=SystemIds()) for _ in range(2)]
    ours, theirs = (LocalRegistry(store, SystemIds()) for store in stores)
    try:
        yield ours, theirs
        assert (await ours.verify()).equal
    finally:
        await ours.close()
        await theirs.close()


def said(now: datetime) -> Event:
    return Event(
        event_type=WorkerEventType.OUTPUT,
        event_class=EventClass.WORKER,
        occurred_at=now,
        sequence=1,
        stream="stdout",
        data=b"hello",
    )


async def leased(registry: LocalRegistry) -> Grant:
    await registry.enqueue(JobRequest(spec=Spec(), job_id="job"), actor="user:ana")
    [grant] = await registry.claim(["default"], owner="w")
    return grant


async def test_what_we_leased_out_is_not_read_again(tmp_path: Path, read: list[int]) -> None:
    async with two_registries(tmp_path) as (ours, _theirs):
        grant = await leased(ours)
        read.clear()
        await ours.heartbeat(grant)
        assert (await ours.complete(grant, Success())).state is State.SUCCEEDED
        assert read == []


async def test_it_is_read_again_once_anybody_else_has_committed(tmp_path: Path, read: list[int]) -> None:
    async with two_registries(tmp_path) as (ours, theirs):
        grant = await leased(ours)
        await theirs.enqueue(JobRequest(spec=Spec()), actor="user:ana")
        read.clear()
        assert (await ours.complete(grant, Success())).state is State.SUCCEEDED
        assert read == [1]


@pytest.mark.parametrize("records", [False, True])
async def test_who_was_cancelled_by_another_process_is_refused(tmp_path: Path, records: bool) -> None:
    async with two_registries(tmp_path) as (ours, theirs):
        grant = await leased(ours)
        await theirs.cancel("job", actor="user:ana", hard=True)
        if records:  # a commit of this process that reads no job
            noted = Event("noted", EventClass.EXTERNAL, grant.job.created_at, "job", given_id="note")
            await ours.record([noted])
        with pytest.raises((Fenced, Conflict)):
            await ours.complete(grant, Success())
        assert (await theirs.status("job")).state is State.CANCELLED


async def test_what_was_not_committed_is_not_remembered(tmp_path: Path) -> None:
    def fail(name: str) -> None:
        if name == "sqlite.written":
            raise Unavailable("The disk is gone.")

    async with two_registries(tmp_path) as (ours, _theirs):
        grant = await leased(ours)
        arm(fail)
        try:
            with pytest.raises(Unavailable):
                await ours.complete(grant, Success(result="lost"))
        finally:
            arm(None)
        assert (await ours.status("job")).state is State.ASSIGNED
        done = await ours.complete(grant, Success(result="kept"))
        assert done.result == "kept"


@pytest.mark.parametrize("verb", ["publish", "cancel"])
async def test_the_time_that_the_machine_has_slept_is_not_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    boot, asleep = 1000.0, 0.0
    monkeypatch.setattr(store_clock, "boot_seconds", lambda: boot)
    monkeypatch.setattr(store_clock, "asleep_seconds", lambda: asleep)

    async with two_registries(tmp_path) as (ours, _theirs):
        grant = await leased(ours)
        boot, asleep = boot + 3600 + 10, 3600.0
        if verb == "publish":
            await ours.publish(grant, [said(await ours.now())])
        else:
            await ours.cancel("job", actor="user:ana")
        assert await ours.expire() == 0
        await ours.heartbeat(grant)


async def test_what_its_owner_does_to_the_job_it_was_given_is_not_stored(tmp_path: Path) -> None:
    async with two_registries(tmp_path) as (ours, _theirs):
        first = await leased(ours)
        await ours.heartbeat(first, checkpoint={"row": 1})
        await ours.release(first)
        [grant] = await ours.claim(["default"], owner="w")
        assert isinstance(grant.job.checkpoint, dict)
        grant.job.checkpoint["row"] = 2
        await ours.heartbeat(grant)
        assert (await ours.status("job")).checkpoint == {"row": 1}


async def test_large_jobs_are_not_kept(tmp_path: Path, read: list[int]) -> None:
    payload = msgspec.Raw(b'"' + PAYLOAD_BYTES_MAX * b"x" + b'"')

    async with two_registries(tmp_path) as (ours, _theirs):
        await ours.enqueue(JobRequest(spec=Spec(payload=payload)), actor="user:ana")
        [grant] = await ours.claim(["default"], owner="w")
        read.clear()
        await ours.complete(grant, Success())
        assert read == [1]


def test_an_hour_that_comes_twice_is_two_hours() -> None:
    twice = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    for moment in (twice, twice.replace(fold=1)):
        assert from_microseconds(to_microseconds(moment)) == moment.astimezone(UTC)


async def test_a_commit_rings_when_it_can_be_seen(tmp_path: Path) -> None:
    """Not only when it is written, which is before that."""
    log = tmp_path / "jobs.db-wal"
    log.write_bytes(b"")

    watch = LogWatch(tmp_path / "jobs.db")
    with watch:
        assert not await watch.wait(0.01)
        notify_other_processes(bytes(log))
        assert await watch.wait(30)
    watch.close()
    notify_other_processes(bytes(tmp_path / "nothing-wal"))


async def test_the_bell_is_rung_after_every_commit_that_wrote(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "jobs.db", ids=SystemIds())
    registry, log = LocalRegistry(store, SystemIds()), tmp_path / "jobs.db-wal"
    long_ago: list[str] = []

    def age(name: str) -> None:
        if name == "sqlite.committed":
            os.utime(log, (0, 0))
            long_ago.append(name)

    arm(age)
    try:
        await registry.enqueue(JobRequest(spec=Spec()), actor="user:ana")
    finally:
        arm(None)
    assert len(long_ago) == 1
    assert log.stat().st_mtime > 0
    await registry.close()
