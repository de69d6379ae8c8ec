"""The store's clock in a file: it follows the wall clock, and no step of that touches a lease."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores.sqlite import clock as store_clock
from holdfast.stores.sqlite import store as store_module
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.system import SystemClock, SystemIds

ACTOR = "user:ana"
START = datetime(2026, 3, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
YEARS = 20 * 365 * 86_400


class Machine:
    """A machine whose wall clock can be set, and which can be booted again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds, self.offset, self.boots = 1000.0, 0.0, 1
        monkeypatch.setattr(SystemClock, "now", lambda _: self.wall())
        monkeypatch.setattr(store_clock, "boot_seconds", lambda: self.seconds)
        monkeypatch.setattr(store_clock, "asleep_seconds", lambda: 0.0)
        monkeypatch.setattr(store_clock, "boot_id", lambda: f"boot-{self.boots}")

    def wall(self) -> datetime:
        return START + timedelta(seconds=self.seconds + self.offset)

    def set(self, seconds: float) -> None:
        self.offset = seconds

    def boot(self) -> None:
        self.boots += 1
        self.offset += self.seconds - 10
        self.seconds = 10.0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@asynccontextmanager
async def open_file(path: Path) -> AsyncIterator[LocalRegistry]:
    """A registry of its own on the file."""
    store = await SqliteStore.open(path, ids=SystemIds())
    try:
        yield LocalRegistry(store, SystemIds())
    finally:
        await store.close()


@pytest.mark.parametrize("seconds", [3600, -3600, 600, -600])
async def test_the_store_follows_a_wall_clock_that_was_set_and_leases_keep_their_length(
    tmp_path: Path, machine: Machine, seconds: int
) -> None:
    async with open_file(tmp_path / "jobs.db") as registry:
        other = await SqliteStore.open(tmp_path / "jobs.db", ids=SystemIds())
        beside = LocalRegistry(other, SystemIds())
        for job_id, spec in {
            "held": Spec(),
            "ready": Spec(queue="other"),
            "later": Spec(queue="other", delay=LEASE),
        }.items():
            await registry.enqueue(JobRequest(spec=spec, job_id=job_id), actor=ACTOR)
        await registry.acquire("held", owner="w-1", lease=LEASE)
        before = machine.wall()
        machine.set(seconds)
        assert await registry.expire() == 0
        assert abs(await registry.now() - before) < LEASE  # it may be set back in a moment
        machine.seconds += 2 * store_clock.STEADY_SECONDS

        assert await registry.expire() == 0

        assert abs(await registry.now() - machine.wall()) < timedelta(milliseconds=1)
        assert abs(await beside.now() - machine.wall()) < timedelta(milliseconds=1)
        ready = await beside.claim(["other"], owner="w-2", limit=5)
        assert [grant.job.job_id for grant in ready] == ["ready"]
        machine.seconds += 19
        assert await beside.expire() == 0
        machine.seconds += 2
        assert await beside.expire() == 1
        assert [g.job.job_id for g in await beside.claim(["other"], owner="w-2")] == ["later"]
        await other.close()


async def test_a_wall_clock_that_is_set_back_at_once_is_not_followed(
    tmp_path: Path, machine: Machine
) -> None:
    async with open_file(tmp_path / "jobs.db") as registry:
        for offset in (3600, 0, 3600, 0):
            machine.set(offset)
            await registry.expire()
            machine.seconds += store_clock.STEADY_SECONDS - 1
            await registry.expire()

        assert await registry.now() == machine.wall()


async def test_a_store_that_saw_a_clock_ahead_finds_back_at_the_next_boot(
    tmp_path: Path, machine: Machine
) -> None:
    date = START + timedelta(days=4 * 365)

    async def ahead(registry: LocalRegistry) -> None:
        for job_id, spec in {"old": Spec(), "held": Spec(), "delayed": Spec(delay=LEASE)}.items():
            await registry.enqueue(JobRequest(spec=spec, job_id=job_id), actor=ACTOR)
        await registry.acquire("held", owner="w-1", lease=LEASE)
        await registry.enqueue(JobRequest(spec=Spec(run_at=date), job_id="dated"), actor=ACTOR)

    async def right(registry: LocalRegistry) -> None:
        assert await registry.now() == machine.wall()
        await registry.enqueue(JobRequest(spec=Spec(), job_id="new"), actor=ACTOR)
        assert (await registry.status("new")).created_at == machine.wall()
        ready = await registry.claim(["default"], owner="w-2", limit=5)
        assert [grant.job.job_id for grant in ready] == ["old", "new"]
        assert (await registry.status("dated")).ready_at == date
        machine.seconds += 31
        assert await registry.expire() == 1
        assert (await registry.status("held")).state is State.QUEUED

    async def later(registry: LocalRegistry) -> None:
        """What is right stays right: a wait that began after is not taken for one of before."""
        await registry.enqueue(JobRequest(spec=Spec(delay=LEASE), job_id="waits"), actor=ACTOR)
        ready_at = (await registry.status("waits")).ready_at
        machine.boot()
        again = await SqliteStore.open(tmp_path / "jobs.db", ids=SystemIds())
        [job] = await again.get(["waits"])
        assert job is not None
        assert job.ready_at == ready_at
        await again.close()

    machine.set(YEARS)
    async with open_file(tmp_path / "jobs.db") as registry:
        await ahead(registry)
    machine.boot()
    machine.offset -= YEARS
    for use in (right, later):
        async with open_file(tmp_path / "jobs.db") as registry:
            await use(registry)


async def test_a_step_that_was_rolled_back_is_not_taken_for_done(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_file(tmp_path / "jobs.db") as registry:
        await registry.enqueue(JobRequest(spec=Spec(), job_id="held"), actor=ACTOR)
        await registry.acquire("held", owner="w-1", lease=LEASE)
        machine.set(3600)
        await registry.expire()
        machine.seconds += 10
        with monkeypatch.context() as broken:
            broken.setattr("holdfast.stores.sqlite.store.SqliteCommit.run", lambda self: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await registry._store.transact([])
        assert (await registry.now()) < machine.wall() - timedelta(minutes=59)

        assert await registry.expire() == 0

        assert await registry.now() == machine.wall()
        lease = (await registry.status("held")).lease
        assert lease is not None
        assert lease.expires_at - machine.wall() == LEASE - timedelta(seconds=10)


async def test_doctor_tells_of_the_last_step(tmp_path: Path, machine: Machine) -> None:
    async with open_file(tmp_path / "jobs.db") as registry:
        machine.set(-600)
        await registry.expire()
        machine.seconds += 10
        await registry.expire()

        found = [f for f in await registry._store.doctor() if f.topic == "clock"]

        assert [finding.level for finding in found] == ["good", "note"]
        assert found[1].words.startswith("Its clock was set 10 min back, to 2026-03-01 ")


@pytest.mark.parametrize("seconds", [7200, -7200])
async def test_a_step_is_followed_once_though_somebody_asks_for_the_time_meanwhile(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    written, asked = threading.Event(), threading.Event()

    def pause(name: str) -> None:
        if name == "sqlite.written" and not written.is_set():
            written.set()
            asked.wait(10)

    async with open_file(tmp_path / "jobs.db") as registry:
        for job_id in ("held", "other"):
            await registry.enqueue(JobRequest(spec=Spec(), job_id=job_id), actor=ACTOR)
        await registry.acquire("held", owner="w-1", lease=timedelta(hours=1))
        machine.seconds += 60
        machine.set(seconds)
        await registry.expire()
        machine.seconds += 2 * store_clock.STEADY_SECONDS
        monkeypatch.setattr(store_module, "failpoint", pause)
        following = asyncio.create_task(registry.acquire("other", owner="w-1"))
        await asyncio.to_thread(written.wait, 10)
        await registry.now()  # of the time before: nothing is committed yet
        asked.set()
        await following

        assert await registry.expire() == 0

        lease = (await registry.status("held")).lease
        assert lease is not None
        assert lease.moved == timedelta(seconds=seconds)
        assert await registry.now() == machine.wall()


async def test_what_was_last_heard_of_at_the_time_that_a_clock_is_set_back_to_is_carried_over(
    tmp_path: Path, machine: Machine
) -> None:
    async with open_file(tmp_path / "jobs.db") as registry:
        later = JobRequest(spec=Spec(delay=timedelta(hours=1)), job_id="later")
        await registry.enqueue(later, actor=ACTOR)
        machine.seconds += 600 - 2 * store_clock.STEADY_SECONDS
        machine.set(-600)
        await registry.expire()
        machine.seconds += 2 * store_clock.STEADY_SECONDS

        await registry.expire()

        waits = (await registry.status("later")).ready_at - await registry.now()
        assert waits == timedelta(minutes=50)
