"""The copy of a job that was leased out here is used only while it is the job."""

import asyncio
import os
from collections.abc import Callable, Coroutine
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
from holdfast.ports import Grant, Request
from holdfast.registry.local import LocalRegistry
from holdfast.stores.held import PAYLOAD_BYTES_MAX
from holdfast.stores.sqlite import clock as store_clock
from holdfast.stores.sqlite.committing import Commit
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.stores.sqlite.values import moment_of, stamp
from holdfast.stores.sqlite.wakeup import Watch, ring
from holdfast.system import SystemIds

Body = Callable[[LocalRegistry, LocalRegistry], Coroutine[None, None, None]]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each read for a commit has found."""
    found: list[int] = []
    load = Commit._load

    def noted(self: Commit, sql: str, parameters: object) -> object:
        jobs = load(self, sql, parameters)  # type: ignore[arg-type]
        found.append(len(jobs))
        return jobs

    monkeypatch.setattr(Commit, "_load", noted)
    return found


def played(folder: Path, body: Body) -> None:
    async def main() -> None:
        stores = [await SqliteStore.open(folder / "jobs.db", ids=SystemIds()) for _ in range(2)]
        ours, theirs = (LocalRegistry(store, SystemIds()) for store in stores)
        await body(ours, theirs)
        assert (await ours.verify()).equal
        await ours.close()
        await theirs.close()

    asyncio.run(main())


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
    await registry.enqueue(Request(spec=Spec(), job_id="job"), actor="user:ana")
    [grant] = await registry.claim(["default"], owner="w")
    return grant


def test_what_we_leased_out_is_not_read_again(tmp_path: Path, read: list[int]) -> None:
    async def body(ours: LocalRegistry, theirs: LocalRegistry) -> None:
        grant = await leased(ours)
        read.clear()
        await ours.heartbeat(grant)
        assert (await ours.complete(grant, Success())).state is State.SUCCEEDED
        assert read == []

    played(tmp_path, body)


def test_it_is_read_again_once_anybody_else_has_committed(tmp_path: Path, read: list[int]) -> None:
    async def body(ours: LocalRegistry, theirs: LocalRegistry) -> None:
        grant = await leased(ours)
        await theirs.enqueue(Request(spec=Spec()), actor="user:ana")
        read.clear()
        assert (await ours.complete(grant, Success())).state is State.SUCCEEDED
        assert read == [1]

    played(tmp_path, body)


def test_who_was_cancelled_by_another_process_is_refused(tmp_path: Path) -> None:
    async def body(ours: LocalRegistry, theirs: LocalRegistry) -> None:
        grant = await leased(ours)
        await theirs.cancel("job", actor="user:ana", hard=True)
        with pytest.raises((Fenced, Conflict)):
            await ours.complete(grant, Success())
        assert (await theirs.get("job")).state is State.CANCELLED

    played(tmp_path, body)


def test_what_was_not_committed_is_not_remembered(tmp_path: Path) -> None:
    def fail(name: str) -> None:
        if name == "sqlite.written":
            raise Unavailable("The disk is gone.")

    async def body(ours: LocalRegistry, theirs: LocalRegistry) -> None:
        grant = await leased(ours)
        arm(fail)
        try:
            with pytest.raises(Unavailable):
                await ours.complete(grant, Success(result="lost"))
        finally:
            arm(None)
        assert (await ours.get("job")).state is State.ASSIGNED
        done = await ours.complete(grant, Success(result="kept"))
        assert done.result == "kept"

    played(tmp_path, body)


@pytest.mark.parametrize("verb", ["publish", "cancel"])
def test_the_time_that_the_machine_has_slept_is_not_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    boot, asleep = 1000.0, 0.0
    monkeypatch.setattr(store_clock, "boot_seconds", lambda: boot)
    monkeypatch.setattr(store_clock, "asleep_seconds", lambda: asleep)

    async def body(ours: LocalRegistry, theirs: LocalRegistry) -> None:
        nonlocal boot, asleep
        grant = await leased(ours)
        boot, asleep = boot + 3600 + 10, 3600.0
        if verb == "publish":
            await ours.publish(grant, [said(await ours.now())])
        else:
            await ours.cancel("job", actor="user:ana")
        assert await ours.expire() == 0
        await ours.heartbeat(grant)

    played(tmp_path, body)


def test_what_its_owner_does_to_the_job_it_was_given_is_not_stored(tmp_path: Path) -> None:
    async def body(ours: LocalRegistry, theirs: LocalRegistry) -> None:
        first = await leased(ours)
        await ours.heartbeat(first, checkpoint={"row": 1})
        await ours.release(first)
        [grant] = await ours.claim(["default"], owner="w")
        assert isinstance(grant.job.checkpoint, dict)
        grant.job.checkpoint["row"] = 2
        await ours.heartbeat(grant)
        assert (await ours.get("job")).checkpoint == {"row": 1}

    played(tmp_path, body)


def test_large_jobs_are_not_kept(tmp_path: Path, read: list[int]) -> None:
    payload = msgspec.Raw(b'"' + PAYLOAD_BYTES_MAX * b"x" + b'"')

    async def body(ours: LocalRegistry, theirs: LocalRegistry) -> None:
        await ours.enqueue(Request(spec=Spec(payload=payload)), actor="user:ana")
        [grant] = await ours.claim(["default"], owner="w")
        read.clear()
        await ours.complete(grant, Success())
        assert read == [1]

    played(tmp_path, body)


def test_an_hour_that_comes_twice_is_two_hours() -> None:
    twice = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    for moment in (twice, twice.replace(fold=1)):
        assert moment_of(stamp(moment)) == moment.astimezone(UTC)


def test_a_commit_rings_when_it_can_be_seen(tmp_path: Path) -> None:
    """Not only when it is written, which is before that."""
    log = tmp_path / "jobs.db-wal"
    log.write_bytes(b"")

    async def main() -> None:
        watch = Watch(tmp_path / "jobs.db")
        with watch:
            assert not await watch.wait(0.01)
            ring(bytes(log))
            assert await watch.wait(30)
        watch.close()
        ring(bytes(tmp_path / "nothing-wal"))

    asyncio.run(main())


def test_the_bell_is_rung_after_every_commit_that_wrote(tmp_path: Path) -> None:
    async def main() -> None:
        store = await SqliteStore.open(tmp_path / "jobs.db", ids=SystemIds())
        registry, log = LocalRegistry(store, SystemIds()), tmp_path / "jobs.db-wal"
        long_ago: list[str] = []

        def age(name: str) -> None:
            if name == "sqlite.committed":
                os.utime(log, (0, 0))
                long_ago.append(name)

        arm(age)
        try:
            await registry.enqueue(Request(spec=Spec()), actor="user:ana")
        finally:
            arm(None)
        assert len(long_ago) == 1
        assert log.stat().st_mtime > 0
        await registry.close()

    asyncio.run(main())
