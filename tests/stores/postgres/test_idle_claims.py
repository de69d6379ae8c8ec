"""A claim in an idle lane is one statement, and misses nothing that the whole look would have found."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from holdfast.core.lifecycle import Success
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import Grant, JobRequest
from holdfast.sdk.open import open_registry
from holdfast.stores.postgres import claim_commit, notifications, scan_starts
from holdfast.stores.postgres.claim_commit import ClaimCommit
from holdfast.stores.postgres.scan_starts import BEGINNING, MARGIN, QUIET_SECONDS
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.world import World, open_world
from tests.stores.postgres.open_stores import (
    claimed,
    fresh_store_url,
    jobs_of,
    opened,
    wanted,
)
from tests.stores.postgres.running_server import fresh_url, postgres_store

POLL_SECONDS = 0.5
BEGIN, COMMIT = "BEGIN", "COMMIT"
Sent = list[tuple[str, tuple[object, ...]]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Whatever is said to the server. Every commit tells of itself, so that nobody tells of it later."""
    said: Sent = []
    fetch, transaction = Session.fetch, Session.transaction

    async def noted(self: Session, sql: str, *parameters: object) -> object:
        said.append((sql, parameters))
        return await fetch(self, sql, *parameters)

    def begun(
        self: Session, *settings: str, seconds: float | None = None
    ) -> AbstractAsyncContextManager[None]:
        said.extend([(BEGIN, ()), (COMMIT, ())])
        return transaction(self, *settings, seconds=seconds)

    monkeypatch.setattr(Session, "fetch", noted)
    monkeypatch.setattr(Session, "transaction", begun)
    monkeypatch.setattr(notifications, "QUIET_SECONDS", 0)
    return said


class IdleQueue:
    """A world whose default queue has been found empty, and what it says since."""

    def __init__(self, world: World, sent: Sent) -> None:
        self.world = world
        self.sent = sent

    async def poll(self, seconds: float = POLL_SECONDS, **more: object) -> list[Grant]:
        """What a worker gets that asks after a while."""
        self.world.clock.advance(seconds)
        self.sent.clear()
        return await self.world.registry.claim(["default"], owner="w-2", **more)  # type: ignore[arg-type]

    @property
    def statements(self) -> int:
        return len(self.sent)

    @property
    def peeks(self) -> Sent:
        return [(sql, given) for sql, given in self.sent if is_peek(sql)]


def is_peek(sql: str) -> bool:
    return "is_claimed" in sql


@pytest.fixture
async def idle(tmp_path: Path, sent: Sent) -> AsyncIterator[IdleQueue]:
    async with open_world(postgres_store, tmp_path) as world:
        idle = IdleQueue(world, sent)
        assert not await idle.poll()
        yield idle
        await world.check()


async def test_a_claim_in_an_idle_lane_is_one_statement(idle: IdleQueue) -> None:
    assert idle.statements == 5  # begin, due, ready, claimed before, commit
    for limit in (1, 5, 5):
        assert not await idle.poll(limit=limit)
        assert idle.statements == len(idle.peeks) == 1


async def test_a_claim_where_there_was_something_the_last_time_does_not_ask_first(
    idle: IdleQueue,
) -> None:
    for _ in range(3):
        await idle.world.enqueue()
    assert await idle.poll()
    assert idle.peeks
    for _ in range(2):
        assert await idle.poll()
        assert not idle.peeks
        assert idle.statements == 5  # begin, due, ready, the write, commit
    assert not await idle.poll()
    assert not idle.peeks


async def test_a_claim_that_is_sent_again_in_an_idle_lane_gets_its_own_grant(
    idle: IdleQueue,
) -> None:
    await idle.world.enqueue("job-1")
    [first] = await idle.poll(op_id="claim-1")
    for op_id in (None, "claim-2"):
        assert not await idle.poll(op_id=op_id)
    [again] = await idle.poll(op_id="claim-1")
    assert idle.peeks
    assert (again.job_id, again.fencing_token) == (first.job_id, first.fencing_token)
    await idle.world.registry.complete(again, Success())
    assert not await idle.poll(op_id="claim-1")


async def test_one_of_several_claims_that_go_together_is_met_with_its_own_grant(sent: Sent) -> None:
    url = fresh_store_url()

    async with opened(url) as store:
        await store.transact([wanted("job-1")])
        await store.transact([claimed("op-1")])
        for op_id in ("op-2", "op-3"):
            await store.transact([claimed(op_id)])
        sent.clear()
        assert await store.transact([claimed("op-4"), claimed("op-5")]) == [[], []]
        assert len(sent) == 1
        again = await store.transact([claimed("op-6"), claimed("op-1")])
        assert again[0] == []
        assert [job.job_id for job in jobs_of(again[1:])] == ["job-1"]


async def test_a_job_that_another_process_enqueues_is_claimed_by_the_next_claim(
    tmp_path: Path,
) -> None:
    url = await fresh_url(tmp_path)
    ours, theirs = await open_registry(url), await open_registry(url)
    for _ in range(5):
        for _ in range(3):
            assert not await ours.claim(["default"], owner="w-1")
        job = await theirs.enqueue(JobRequest(spec=Spec()), actor="user:ana")
        [grant] = await ours.claim(["default"], owner="w-1")
        assert grant.job_id == job.job_id
    await ours.close()
    await theirs.close()


async def locked(idle: IdleQueue) -> None:
    """It waits for a job that was claimed just before, whose lease lapses."""
    await idle.world.enqueue("job-0", lock="the-lock", retry=Retry(max_crashes=1))
    await idle.poll(0, lease=timedelta(seconds=3))
    await idle.world.enqueue("job-1", lock="the-lock")


async def delayed(idle: IdleQueue) -> None:
    await idle.world.enqueue("job-1", delay=timedelta(seconds=3))


async def leased(idle: IdleQueue) -> None:
    spec = Spec(retry=Retry(backoff=timedelta(0)))
    await idle.world.enqueue("job-1", spec=spec)
    await idle.poll(0, lease=timedelta(seconds=3))


@pytest.mark.parametrize("made", [delayed, leased, locked])
async def test_what_becomes_ready_with_time_is_claimed_in_time_and_until_then_asks_are_one_statement(
    made: Callable[[IdleQueue], Awaitable[None]], idle: IdleQueue
) -> None:
    step = 0.1

    await made(idle)
    began = idle.world.clock.now()
    await idle.poll(0)
    grants: list[Grant] = []
    statements: list[int] = []
    while not grants and len(statements) < 60:
        grants = await idle.poll(step)
        statements.append(idle.statements)
    late = (idle.world.clock.now() - began).total_seconds() - 3
    assert [grant.job_id for grant in grants] == ["job-1"]
    assert 0 <= late <= QUIET_SECONDS + step
    assert set(statements[:-2]) == {1}


async def test_a_job_that_was_due_is_closed_by_a_claim_that_gets_nothing(idle: IdleQueue) -> None:
    await idle.world.enqueue("job-1", queue="another", ttl=timedelta(seconds=3))
    assert not await idle.poll()
    assert idle.statements == 1
    assert not await idle.poll(3)
    assert (await idle.world.registry.status("job-1")).ended_at is not None
    assert not await idle.poll()
    assert idle.statements == 1


async def test_glances_that_follow_close_share_a_look_for_what_is_due(idle: IdleQueue) -> None:
    looked: list[bool] = []
    for _ in range(50):
        await idle.poll(0.01)
        [(_, given)] = idle.peeks
        looked.append(given[8] is not None)
    assert looked.count(True) == 2


OTHERS = [
    Spec(queue="another"),
    Spec(kind="another"),
    Spec(region="another"),
    Spec(executor="another"),
    Spec(delay=timedelta(hours=1)),
    Spec(lock="taken"),
]


@pytest.mark.parametrize("spec", OTHERS, ids=["queue", "kind", "region", "executor", "time", "lock"])
async def test_a_job_that_is_not_for_this_claim_leaves_its_lane_idle(spec: Spec, idle: IdleQueue) -> None:
    await idle.world.enqueue("holder", queue="locks", lock="taken")
    await idle.world.registry.acquire("holder", owner="w-1", lease=timedelta(hours=1))
    await idle.world.enqueue("job-1", spec=spec)
    for _ in range(2):
        assert not await idle.poll(kinds=["command"], region="here")
    assert idle.statements == 1
    await idle.world.enqueue("job-2", region="here")
    [grant] = await idle.poll(kinds=["command"], region="here")
    assert grant.job_id == "job-2"


async def test_an_idle_lane_beside_a_busy_one_asks_first_and_the_busy_one_does_not(
    sent: Sent, idle: IdleQueue
) -> None:
    for _ in range(4):
        await idle.world.enqueue(queue="busy")
    for _ in range(4):
        assert await idle.world.registry.claim(["busy"], owner="w-1")
        assert not idle.peeks
        assert not await idle.poll()
        assert idle.statements == 1
        sent.clear()


async def test_a_claim_that_goes_with_other_work_does_not_ask_first(sent: Sent) -> None:
    url = fresh_store_url()

    async with opened(url) as store:
        for n in range(2):
            await store.transact([claimed(f"op-{n}"), claimed(f"op-{n}-other", "other")])
        sent.clear()
        await store.transact([claimed("op-2"), claimed("op-2-other", "other")])
        [made, got] = await store.transact([wanted("job-1"), claimed("op-3")])
        assert not any(is_peek(sql) for sql, _ in sent)
        assert made
        assert [job.job_id for job in jobs_of([got])] == ["job-1"]


@pytest.fixture
def every_look_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look from the beginning is a slow one."""
    monkeypatch.setattr(scan_starts, "SLOW_SECONDS", -1)
    monkeypatch.setattr(scan_starts, "SLOW_SECONDS_PER_JOB", 0)


@pytest.mark.usefixtures("every_look_is_slow")
async def test_a_glance_begins_at_the_mark_when_dead_rows_are_in_the_way(idle: IdleQueue) -> None:
    whole: list[bool] = []
    for _ in range(4):
        mark = idle.world.clock.now() - MARGIN
        assert not await idle.poll()
        [(_, given)] = idle.peeks
        starts = {given[8]}
        whole.append(starts == {BEGINNING})
        assert starts in ({BEGINNING}, {mark})
    assert whole == [False, True, False, True]
    long = 2 * MARGIN.total_seconds()
    await idle.world.enqueue("job-1", retry=Retry(backoff=timedelta(0)))
    assert await idle.poll(long, lease=timedelta(seconds=1))  # what a glance finds is no mark
    assert not await idle.poll(0)
    assert await idle.poll(1 + long)


async def test_only_so_many_idle_lanes_are_remembered(
    sent: Sent, monkeypatch: pytest.MonkeyPatch, idle: IdleQueue
) -> None:
    monkeypatch.setattr(claim_commit, "IDLE_LANES_MAX", 3)

    store = idle.world.store
    assert isinstance(store, PostgresStore)
    for n in range(10):
        await idle.world.registry.claim([f"queue-{n}"], owner="w-1")
        assert len(store._context.idle) <= 3
    await idle.world.registry.claim(["queue-9"], owner="w-1")
    assert is_peek(sent[-1][0])


async def test_behind_a_pooler_no_claim_asks_first(idle: IdleQueue) -> None:
    store = idle.world.store
    assert isinstance(store, PostgresStore)
    store._sessions.pooled = True
    for _ in range(2):
        assert not await idle.poll()
        assert idle.statements == 5


async def test_an_idle_store_that_meets_another_server_looks_at_its_epoch_before_anything_else(
    sent: Sent, idle: IdleQueue
) -> None:
    store = idle.world.store
    assert isinstance(store, PostgresStore)
    store._sessions._timeline = "another"
    store._sessions.drop(store._sessions._idle.pop())
    assert not await idle.poll()
    said = [sql for sql, _ in idle.sent]
    epoch = next(n for n, sql in enumerate(said) if "pg_control_system" in sql)
    assert [n for n, sql in enumerate(said) if is_peek(sql)] == [len(said) - 1]
    assert epoch < len(said) - 1


async def test_who_was_not_quick_enough_looks_again_and_takes_no_locks(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fresh_store_url()

    async with opened(url) as store, opened(url) as quicker:
        await store.transact([claimed("op-1")])
        await quicker.transact([wanted("job-1")])
        seize = ClaimCommit.claim_unlocked

        async def late(self: ClaimCommit) -> bool:
            monkeypatch.setattr(ClaimCommit, "claim_unlocked", seize)
            await quicker.transact([claimed("op-2")])
            sent.clear()
            return await seize(self)

        monkeypatch.setattr(ClaimCommit, "claim_unlocked", late)
        assert await store.transact([claimed("op-3")]) == [[]]
        assert [is_peek(sql) for sql, _ in sent] == [False, True]


async def test_who_is_not_quick_enough_twice_passes_over_what_is_locked(sent: Sent) -> None:
    url = fresh_store_url()

    async with (
        opened(url) as store,
        await psycopg.AsyncConnection.connect(url.partition("?")[0]) as person,
    ):
        await store.transact([claimed("op-1")])
        await store.transact([wanted("job-1")])
        await person.execute(f"SELECT FROM {store._address.schema}.state FOR UPDATE")
        sent.clear()
        assert await store.transact([claimed("op-2")]) == [[]]
        assert [is_peek(sql) for sql, _ in sent[:4]] == [True, False, True, False]
        assert (BEGIN, ()) in sent[4:]
        await person.rollback()
        [[decision]] = await store.transact([claimed("op-3")])
        assert jobs_of([[decision]])[0].job_id == "job-1"
