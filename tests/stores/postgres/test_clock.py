"""A server whose clock is set, and whose leases go on: a real PostgreSQL under a faked wall clock."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count

import pytest

from holdfast.core.clock_step import ClockStepSummary
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores.postgres.clock_steps import steps_of
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.statements import Row
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemClock, SystemIds
from tests.stores.postgres.open_stores import ACTOR, connected
from verify.faked_clock import SettableServer

LEASE = timedelta(seconds=30)
clock = SystemClock()
STEPS = (3600, -3600, 600, -600)
_schemas = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[SettableServer]:
    found = SettableServer()
    with found:
        yield found


@pytest.fixture
def url(server: SettableServer) -> Iterator[str]:
    server.clock.set(0)
    yield server.url(schema=f"clock_{next(_schemas)}")
    server.clock.set(0)


@asynccontextmanager
async def registries(url: str, wanted: int = 2) -> AsyncIterator[list[LocalRegistry]]:
    """As many processes as wanted: each knows the server's time from before anything happens to it."""
    ids = SystemIds()
    stores = [await PostgresStore.open(url, ids=ids) for _ in range(wanted)]
    try:
        yield [LocalRegistry(store, ids) for store in stores]
    finally:
        for store in stores:
            await store.close()


async def leased(registry: LocalRegistry, job_id: str, lease: timedelta = LEASE) -> Grant:
    await registry.enqueue(JobRequest(spec=Spec(), job_id=job_id), actor=ACTOR)
    grant = await registry.acquire(job_id, owner="w-1", lease=lease)
    await registry.heartbeat(grant)
    return grant


async def rest(registry: LocalRegistry, job_id: str) -> timedelta:
    """How much is left of the lease."""
    lease = (await registry.status(job_id)).lease
    assert lease is not None
    return lease.expires_at - await registry.now()


async def seen(url: str) -> ClockStepSummary:
    async with connected(url.partition("?")[0]) as person:
        schema = url.partition("schema=")[2]
        sql = f"SELECT value FROM {schema}.meta WHERE name = 'clock'"
        return steps_of(await person.fetchval(sql) or "")


@pytest.mark.parametrize("seconds", STEPS)
async def test_a_step_of_the_servers_clock_neither_cuts_nor_stretches_a_lease(
    server: SettableServer, url: str, seconds: int
) -> None:
    async with registries(url) as (owner, other):
        grant = await leased(owner, "held")
        server.clock.set(seconds)

        assert await other.expire() == 0
        assert await other.claim(["default"], owner="w-2") == []
        assert timedelta() < await rest(other, "held") <= LEASE
        await owner.heartbeat(grant)
        assert timedelta() < await rest(owner, "held") <= LEASE
        assert (await owner.complete(grant, Success())).state is State.SUCCEEDED
        assert round((await seen(url)).total.total_seconds()) == seconds
        assert (await owner.verify()).equal


@pytest.mark.parametrize("seconds", [-3600, -600])
async def test_a_lease_whose_owner_is_gone_ends_though_the_clock_went_back(
    server: SettableServer, url: str, seconds: int
) -> None:
    async with registries(url) as (owner, other):
        await leased(owner, "left", timedelta(seconds=1))
        server.clock.set(seconds)

        while not await other.expire():
            await clock.sleep(0.1)  # for an hour, if the lease was stretched: the test gives up

        assert (await other.status("left")).state is State.QUEUED


@pytest.mark.parametrize("seconds", STEPS)
async def test_waits_keep_their_length_dates_stay_and_what_is_ready_stays_so(
    server: SettableServer, url: str, seconds: int
) -> None:
    minute, step = timedelta(minutes=1), timedelta(seconds=seconds)

    async with registries(url) as (client, other):
        tomorrow = await client.now() + timedelta(days=1)
        specs = {
            "ready": Spec(),
            "delayed": Spec(delay=minute),
            "dated": Spec(run_at=tomorrow),
            "mortal": Spec(ttl=minute, queue="elsewhere"),
        }
        for job_id, spec in specs.items():
            await client.enqueue(JobRequest(spec=spec, job_id=job_id), actor=ACTOR)
        server.clock.set(seconds)

        assert await other.expire() == 0
        ready = await other.claim(["default"], owner="w-2", limit=5)
        jobs = {job.job_id: job for job in (await other.list_jobs()).jobs}
        now = await other.now()
        assert [grant.job.job_id for grant in ready] == ["ready"]
        assert timedelta() < jobs["delayed"].ready_at - now <= minute
        assert jobs["dated"].ready_at == tomorrow
        mortal = jobs["mortal"].deadline_at
        assert mortal is not None
        assert timedelta() < mortal - now <= minute
        assert abs(now - (tomorrow - timedelta(days=1)) - step) < minute


@pytest.mark.parametrize("seconds", [3600, -3600])
async def test_what_was_decided_before_a_step_is_not_written_after_it(
    server: SettableServer, url: str, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is over, for everybody else, when the statement of a slow writer arrives."""
    write, tries = Session.write, count(1)

    async with registries(url) as (writer, other):

        async def write_late(self: Session, sql: str, *parameters: object) -> Sequence[Row]:
            if next(tries) == 1:
                server.clock.set(seconds)
                assert await other.expire() == 0
                assert round((await seen(url)).total.total_seconds()) == seconds
            return await write(self, sql, *parameters)

        monkeypatch.setattr(Session, "write", write_late)
        minute = timedelta(minutes=1)
        delayed = JobRequest(spec=Spec(delay=minute), job_id="delayed")
        ready_at = (await writer.enqueue(delayed, actor=ACTOR)).ready_at

        assert timedelta() < ready_at - await other.now() <= minute
        assert next(tries) == 3  # refused once, and decided again


async def test_of_all_who_notice_a_step_one_deals_with_it(server: SettableServer, url: str) -> None:
    async with registries(url, 4) as (owner, *others):
        await leased(owner, "held")
        server.clock.set(3600)

        await asyncio.gather(*(one.expire() for one in (owner, *others)))

        lease = (await owner.status("held")).lease
        assert lease is not None
        assert lease.moved is not None
        assert round(lease.moved.total_seconds()) == 3600
        assert round((await seen(url)).total.total_seconds()) == 3600
        assert (await seen(url)).jobs == 1


@pytest.mark.parametrize("seconds", [3600, -3600])
async def test_who_came_after_the_step_is_not_carried_over_again(
    server: SettableServer, url: str, seconds: int
) -> None:
    """A process that never heard the old time takes the new one for what it is. One that was silent finds
    the step later, and moves what was measured before: not what the newcomer has done since."""

    async with registries(url, 1) as (silent,):
        await leased(silent, "held")
        server.clock.set(seconds)
        async with registries(url, 1) as (newcomer,):
            grant = await leased(newcomer, "new")
            await newcomer.enqueue(JobRequest(spec=Spec(), job_id="next"), actor=ACTOR)

            await silent.enqueue(JobRequest(spec=Spec(), job_id="last"), actor=ACTOR)
            assert await silent.expire() == 0

            for job_id in ("held", "new"):
                assert timedelta() < await rest(silent, job_id) <= LEASE
            await newcomer.heartbeat(grant)
            ready = await newcomer.claim(["default"], owner="w-2", limit=5)
            assert {grant.job.job_id for grant in ready} == {"next", "last"}
            assert round((await seen(url)).total.total_seconds()) == seconds


async def test_a_clock_that_is_set_right_again_finds_back(server: SettableServer, url: str) -> None:
    async with registries(url) as (owner, other):
        began = await owner.now()
        grant = await leased(owner, "held")
        for seconds in (20 * 365 * 86_400, 0):
            server.clock.set(seconds)
            assert await other.expire() == 0
            await owner.heartbeat(grant)
        await other.enqueue(JobRequest(spec=Spec(), job_id="new"), actor=ACTOR)

        assert await other.now() - began < timedelta(minutes=10)
        assert timedelta() < await rest(other, "held") <= LEASE
        ready = await owner.claim(["default"], owner="w-2")
        assert [grant.job.job_id for grant in ready] == ["new"]


async def test_a_clock_that_goes_ahead_back_and_ahead_again_ends_no_lease(
    server: SettableServer, url: str
) -> None:
    """What was told while it was ahead for the first time does not show that it was not set the second."""

    async with registries(url) as (owner, other):
        grant = await leased(owner, "held")
        server.clock.set(1800)
        await owner.heartbeat(grant)
        for n in range(4):
            await owner.complete(await leased(owner, f"done-{n}"), Success())
            await clock.sleep(0.5)
        await owner.heartbeat(grant)
        server.clock.set(-5)
        await owner.heartbeat(grant)
        await clock.sleep(1.5)
        await owner.heartbeat(grant)
        server.clock.set(1805)

        assert await other.expire() == 0
        assert timedelta() < await rest(other, "held") <= LEASE
        await owner.heartbeat(grant)
        assert round((await seen(url)).total.total_seconds()) == 1805


async def test_a_server_that_comes_back_with_another_clock_is_like_a_step(
    server: SettableServer, url: str
) -> None:
    async with registries(url) as (owner, other):
        grant = await leased(owner, "held", timedelta(seconds=300))
        await asyncio.to_thread(server.stop)
        server.clock.set(7200)
        await asyncio.to_thread(server.start)

        assert await other.expire() == 0
        await owner.heartbeat(grant)
        assert timedelta() < await rest(other, "held") <= timedelta(seconds=300)


@pytest.mark.parametrize("years", [0.001, 20])
async def test_a_clock_that_was_set_back_while_nobody_was_there_holds_up_nothing(
    server: SettableServer, url: str, years: float
) -> None:
    """The store was told later times than the clock tells now: so it was set back, by that much at least."""
    minute = timedelta(minutes=1)
    specs = {"ready": Spec(), "delayed": Spec(delay=minute)}

    server.clock.set(years * 365 * 86_400)
    async with registries(url, 1) as (client,):
        await leased(client, "left", timedelta(seconds=1))
        for job_id, spec in specs.items():
            await client.enqueue(JobRequest(spec=spec, job_id=job_id), actor=ACTOR)
        tomorrow = await client.now() + timedelta(days=1)
        dated = JobRequest(spec=Spec(run_at=tomorrow), job_id="dated")
        await client.enqueue(dated, actor=ACTOR)
    server.clock.set(0)

    async with registries(url) as (worker, other):
        ready = await worker.claim(["default"], owner="w-2", limit=1, lease=LEASE)
        assert [grant.job.job_id for grant in ready] == ["ready"]
        while not await worker.expire():
            await clock.sleep(0.1)  # for years, if the lease was stretched: the test gives up
        assert (await other.status("left")).state is State.QUEUED
        wait = (await other.status("delayed")).ready_at - await other.now()
        assert timedelta() < wait <= minute
        assert (await other.status("dated")).ready_at == tomorrow
        [finding] = [found for found in await other.doctor() if "was set" in found.words]
        assert finding.topic == "clock"
        told = await seen(url)
        async with registries(url, 1) as (late,):
            assert await late.expire() == 0
            assert await seen(url) == told
        assert timedelta() < await rest(other, "ready") <= LEASE
        assert (await other.verify()).equal


async def test_a_lease_alone_shows_that_the_clock_was_set_back(server: SettableServer, url: str) -> None:
    """It was renewed since the last event; or carried over to a time that the clock had before."""

    async with registries(url, 1) as (owner,):
        grant = await leased(owner, "held", timedelta(seconds=1))
        server.clock.set(3600)
        await owner.heartbeat(grant)
    server.clock.set(0)

    async with registries(url, 1) as (other,):
        while not await other.expire():
            await clock.sleep(0.1)


async def test_who_was_there_before_the_step_agrees_with_who_came_first_after_it(
    server: SettableServer, url: str
) -> None:
    """The newcomer knows of the step since the last time that was told, the other one knows the rest."""

    async with registries(url, 1) as (silent,):
        held = await leased(silent, "held")
        await clock.sleep(3)
        await silent.now()
        server.clock.set(-3600)
        async with registries(url, 1) as (newcomer,):
            new = await leased(newcomer, "new")
            assert -3599 < (await seen(url)).total.total_seconds() < -3590

            assert await silent.expire() == 0

            assert round((await seen(url)).total.total_seconds()) == -3600
            for job_id, grant in (("held", held), ("new", new)):
                assert timedelta() < await rest(silent, job_id) <= LEASE
                await newcomer.heartbeat(grant)
            lease = (await newcomer.status("new")).lease
            assert lease is not None
            assert lease.moved is None


async def test_the_doctor_finds_times_ahead_of_the_clock(server: SettableServer, url: str) -> None:
    async with registries(url, 1) as (silent,):
        await leased(silent, "held")
        found = [f for f in await silent.doctor() if f.topic == "clock"]
        assert [f.level for f in found] == ["good"]
    server.clock.set(-3600)

    async with registries(url, 1) as (doctor,):
        found = [f for f in await doctor.doctor() if f.topic == "clock"]

        [warning] = [f for f in found if f.level == "warning"]
        assert "ahead of the server's clock" in warning.words
        assert warning.advice is not None


async def test_slow_drift_is_no_step(server: SettableServer, url: str) -> None:
    async with registries(url, 1) as (owner,):
        grant = await leased(owner, "held")
        for n in range(1, 20):  # 7.6 s in all, and never more than drift at once
            server.clock.set(0.4 * n)
            await owner.heartbeat(grant)

        assert await seen(url) == ClockStepSummary()
