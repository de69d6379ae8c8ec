"""Races: many clients at once on one PostgreSQL store, over the same jobs and in opposite orders."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import asyncpg
import pytest

from holdfast.core.job import Progress
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.failpoint import arm
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_local
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.store import PostgresStore
from tests.stores.postgres.open_stores import OwnSchema, deadlocks, job_request, waiting_for_a_lock
from tests.stores.postgres.running_server import MAJOR, fresh_url
from verify.postgres_order_runs import opposite_orders
from verify.postgres_race_runs import PostgresProcesses, chaos, races
from verify.postgres_server import PostgresServer

PROCESSES, ROUNDS = 8, 25
RETRIED_MAX = 0.05
LIST_SECONDS_MAX = 1.0


@pytest.fixture(scope="module")
def crowded() -> Iterator[PostgresServer]:
    with PostgresServer(MAJOR, fast=True, settings={"max_connections": "300"}) as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["claim", "acquire"])
def test_of_64_claimers_in_8_processes_one_wins_in_every_round(crowded: PostgresServer, verb: str) -> None:
    """Scenario 7. Claims pass over what others have locked; who loses a race by id decides again."""
    found = races(crowded.url(schema=verb), verb, processes=PROCESSES, rounds=ROUNDS)

    assert found.winners == [1] * ROUNDS
    assert found.tokens == {1}
    assert verb == "acquire" or found.retried < RETRIED_MAX


@pytest.mark.long
@pytest.mark.slow
def test_32_workers_that_are_killed_stopped_and_cut_off_end_every_job_once(
    crowded: PostgresServer, tmp_path: Path
) -> None:
    """Scenario 37, with fewer jobs."""
    with PostgresProcesses(crowded).at_home() as processes:
        found = chaos(processes, tmp_path / "chaos", jobs=200, faults=8)

    assert found.lost == []
    assert found.wrong == []
    assert found.kills > 0
    assert found.crashes > 0  # the kills hit work


@pytest.mark.slow
def test_batches_over_the_same_jobs_in_opposite_orders_meet_no_error_and_no_deadlock(
    crowded: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, rings = crowded.url(schema="orders"), deadlocks(monkeypatch)

    found = asyncio.run(opposite_orders(url, rounds=5))

    assert found.errors == []
    assert found.refused > 0  # they met
    assert rings == []


async def test_a_deadlock_with_somebody_else_is_resolved_and_the_batch_is_done_again(
    tmp_path: Path,
) -> None:
    url = await fresh_url(tmp_path)
    schema = url.partition("schema=")[2]
    registry = await open_local(url)
    for name in ("first", "second"):
        await registry.enqueue(JobRequest(spec=Spec(), job_id=name), actor="user:ana")
    grants = await registry.claim(["default"], owner="worker-7", limit=2)
    stranger = await asyncpg.connect(url.partition("?")[0])
    await stranger.execute("SET deadlock_timeout = '10s'")  # so that the registry is the victim
    lock = (
        f"SELECT FROM {schema}.state WHERE seq = (SELECT seq FROM {schema}.job WHERE job_id = $1) FOR UPDATE"
    )
    async with stranger.transaction():
        await stranger.execute(lock, "second")
        batch = asyncio.gather(*map(registry.heartbeat, grants))
        await waiting_for_a_lock(stranger)  # it has the first, and waits for the second
        await stranger.execute(lock, "first")
    jobs = await batch

    assert [job.version for job in jobs] == [3, 3]
    assert retries(registry) > 0
    await stranger.close()
    await registry.close()


async def test_a_batch_that_waits_for_a_job_holds_no_later_one(tmp_path: Path) -> None:
    """Everybody locks in the order of creation, whatever is done to each job: no circle can close."""

    url = await fresh_url(tmp_path)
    registry = await open_local(url)
    for name in ("first", "second"):
        await registry.enqueue(JobRequest(spec=Spec(), job_id=name), actor="user:ana")
    grants = await registry.claim(["default"], owner="worker-7", limit=2)
    await asyncio.gather(*map(registry.heartbeat, grants))
    stranger = await asyncpg.connect(url.partition("?")[0])
    schema = url.partition("schema=")[2]
    job = f"(SELECT seq FROM {schema}.job WHERE job_id = $1)"
    lock = f"SELECT FROM {schema}.state WHERE seq = {job} FOR UPDATE NOWAIT"
    async with stranger.transaction():
        await stranger.execute(lock, "first")
        batch = asyncio.gather(registry.cancel("second", actor="user:ana"), registry.heartbeat(grants[0]))
        await waiting_for_a_lock(stranger)
        await stranger.execute(lock, "second")
    await batch
    await stranger.close()
    await registry.close()


def retries(registry: LocalRegistry) -> int:
    assert isinstance(registry._store, PostgresStore)
    return registry._store.retries


async def test_a_sign_of_life_between_the_reading_and_the_writing_of_another_is_kept(
    tmp_path: Path,
) -> None:
    """Neither raises the version of the job: only its row tells that it has changed."""

    url = await fresh_url(tmp_path)
    registry = await open_local(url)
    await registry.enqueue(JobRequest(spec=Spec(), job_id="job-1"), actor="user:ana")
    grant = await registry.acquire("job-1", owner="worker-7")
    await registry.heartbeat(grant)

    async def checkpoint() -> None:
        other = await open_local(url)
        await other.heartbeat(grant, checkpoint={"row": 7})
        await other.close()

    def hook(name: str) -> None:
        if name == "postgres.decided":
            arm(None)
            between = Thread(target=asyncio.run, args=(checkpoint(),))
            between.start()
            between.join(10)

    arm(hook)
    try:
        await registry.heartbeat(grant, progress=Progress(done=1, total=2))
    finally:
        arm(None)

    job = await registry.status("job-1")
    assert (job.checkpoint, job.progress) == ({"row": 7}, Progress(done=1, total=2))
    assert retries(registry) == 1
    await registry.close()


async def test_8_clients_that_open_an_empty_database_at_once_all_get_in(
    crowded: PostgresServer,
) -> None:
    opened = await asyncio.gather(*(open_local(crowded.url(schema="at_once")) for _ in range(8)))
    await opened[0].enqueue(JobRequest(spec=Spec(), job_id="job-1"), actor="user:ana")
    for registry in opened:
        assert (await registry.status("job-1")).version == 1
        await registry.close()


async def test_1000_jobs_are_listed_within_a_second_in_two_statements_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenario 38."""
    sent: list[str] = []
    fetch = Session.fetch

    async def counted(self: Session, sql: str, *parameters: object) -> object:
        sent.append(sql)
        return await fetch(self, sql, *parameters)

    registry = await open_local(await fresh_url(tmp_path))
    await registry.enqueue_many([JobRequest(spec=Spec())] * 1000, actor="user:ana")
    monkeypatch.setattr(Session, "fetch", counted)
    started = time.monotonic()
    page = await registry.list_jobs(limit=1000)
    took = time.monotonic() - started
    assert len(page.jobs) == 1000
    assert page.next is None
    assert len(sent) == 2  # how far to look, and the jobs
    assert took < LIST_SECONDS_MAX

    seen, cursor = [], None
    while True:
        page = await registry.list_jobs(limit=100, after=cursor)
        seen += [job.job_id for job in page.jobs]
        if (cursor := page.next) is None:
            break
    assert len(set(seen)) == len(seen) == 1000
    assert len(sent) == 2 * 11
    await registry.close()


async def test_claims_of_many_jobs_with_the_same_locks_do_not_wait_for_one_another_in_a_ring(
    own: OwnSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    rings = deadlocks(monkeypatch)

    registries = [await own.open() for _ in range(4)]
    locks = [f"lock-{n * n % 7}" for n in range(60)]
    requests = [job_request(f"job-{n}", lock=lock) for n, lock in enumerate(locks)]
    await registries[0].enqueue_many(requests, actor="user:ana")
    done = 0

    async def work(registry: LocalRegistry) -> None:
        nonlocal done
        while done < len(locks):
            grants = await registry.claim(["default"], owner="worker-7", limit=4)
            for grant in grants:
                await registry.complete(grant, Success())
            done += len(grants)
            await asyncio.sleep(0.005)

    await asyncio.gather(*map(work, registries))
    assert rings == []
