"""Lost answers: whoever was not told sends the same again, and is told what happened the first time."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from holdfast.core.errors import Unavailable
from holdfast.core.job import Job
from holdfast.failpoint import arm
from holdfast.ports import Grant, Registry
from holdfast.stores.postgres.errors import was_not_sent
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.statements import statement
from holdfast.stores.postgres.store import PostgresStore
from tests.stores.postgres.lossy_connection import (
    LEASE,
    VERBS,
    LockedStore,
    LossyConnection,
    Verb,
    acquire,
    claim,
    complete,
    heartbeat,
    open_lossy,
)
from tests.stores.postgres.running_server import fresh_url

LEASE_SLACK_SECONDS = 0.6


def told(answer: object) -> object:
    """What an answer says, without the moments and the names that two jobs differ in."""
    if isinstance(answer, list):
        return [told(grant) for grant in answer]
    job = answer.job if isinstance(answer, Grant) else answer
    if not isinstance(job, Job):
        return None  # how many facts were new is for the first answer only
    own = (answer.fencing_token, answer.attempt) if isinstance(answer, Grant) else ()
    return (job.state, job.version, job.fencing_token, job.attempt, job.owner, job.result, *own)


async def everything(registry: Registry) -> list[str]:
    """The id of every event in the store."""
    found: list[str] = []
    cursor: str | None = None
    while (page := await registry.events(after=cursor)).events:
        found += [event.event_id for event in page.events]
        cursor = page.cursor
    return found


@pytest.mark.parametrize("store", [PostgresStore, LockedStore], ids=["statement", "transaction"])
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
async def test_a_call_whose_answer_was_lost_is_answered_when_it_is_sent_again_and_done_once(
    verb: Callable[[LossyConnection, str], Awaitable[Verb]],
    store: type[PostgresStore],
    tmp_path: Path,
) -> None:
    async with open_lossy(tmp_path, store) as lossy:
        heard = await (await verb(lossy, "heard"))(lossy.registry)
        unheard = await verb(lossy, "unheard")
        lossy.proxy.swallow_commit_answer()
        before = await everything(lossy.direct)

        with pytest.raises(Unavailable) as lost:
            await unheard(lossy.registry)
        after = await everything(lossy.direct)
        again = await unheard(lossy.registry)

        assert lost.value.applied == "unknown"
        assert lossy.proxy.swallowed == 1
        assert told(again) == told(heard)
        assert len(after) > len(before)
        assert await everything(lossy.direct) == after
        verification = await lossy.direct.verify()
        assert verification.equal, verification.mismatches


def cut_at(lossy: LossyConnection, name: str) -> list[str]:
    """Cut the wire at the first passing of this failpoint; answers what is passed from then on."""
    passed: list[str] = []

    def hook(passing: str) -> None:
        if passing == name and name not in passed:
            lossy.proxy.cut()
        passed.append(passing)

    arm(hook)
    return passed


@pytest.mark.parametrize(
    ("store", "place"),
    [
        (PostgresStore, "commit_queue.batch_taken"),
        (LockedStore, "commit_queue.batch_taken"),
        (LockedStore, "postgres.begun"),
        (LockedStore, "postgres.jobs_read"),
        (LockedStore, "postgres.decided"),
    ],
)
@pytest.mark.parametrize("verb", [claim, complete], ids=lambda verb: verb.__name__)
async def test_a_call_whose_connection_is_cut_before_the_commit_is_done_once_without_its_caller_noticing(
    verb: Callable[[LossyConnection, str], Awaitable[Verb]],
    store: type[PostgresStore],
    place: str,
    tmp_path: Path,
) -> None:
    async with open_lossy(tmp_path, store) as lossy:
        heard = await (await verb(lossy, "heard"))(lossy.registry)
        disturbed = await verb(lossy, "disturbed")
        before = await everything(lossy.direct)
        passed = cut_at(lossy, place)
        try:
            answer = await disturbed(lossy.registry)
        finally:
            arm(None)

        assert place in passed
        assert told(answer) == told(heard)
        events = len(await everything(lossy.direct)) - len(before)
        assert events == 2  # two grants; or a start and an end


async def test_a_statement_that_is_cut_off_is_in_doubt_although_it_never_arrived(
    tmp_path: Path,
) -> None:
    """Only the server could say more, and it cannot be asked."""

    async with open_lossy(tmp_path, PostgresStore) as lossy:
        disturbed = await complete(lossy, "disturbed")
        before = await everything(lossy.direct)
        cut_at(lossy, "postgres.decided")
        try:
            with pytest.raises(Unavailable) as lost:
                await disturbed(lossy.registry)
        finally:
            arm(None)

        assert lost.value.applied == "unknown"
        assert await everything(lossy.direct) == before
        job = await disturbed(lossy.registry)
        assert isinstance(job, Job)
        assert len(await everything(lossy.direct)) == len(before) + 2


async def test_only_a_claim_that_gets_nothing_is_looked_for_among_the_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    fetch = Session.fetch

    async def noted(self: Session, sql: str, *parameters: object) -> object:
        said.append(sql)
        return await fetch(self, sql, *parameters)

    async with open_lossy(tmp_path, PostgresStore) as lossy:
        call = await claim(lossy, "some")
        lookup = statement("select_claimed", schema_of(await fresh_url(tmp_path)))
        monkeypatch.setattr(Session, "fetch", noted)

        await call(lossy.registry)
        assert said.count(lookup) == 0
        assert not await lossy.registry.claim(["none"], owner="worker-7")
        assert said.count(lookup) == 1


async def test_a_question_whose_answer_was_lost_behind_a_pooler_is_asked_again(
    tmp_path: Path,
) -> None:
    """There every question is a transaction, and its COMMIT writes nothing that could be in doubt."""

    async with open_lossy(tmp_path, PostgresStore) as lossy:
        made = await lossy.make("job-1")
        store = lossy.registry._store
        assert isinstance(store, PostgresStore)
        store._sessions.pooled = True
        lossy.proxy.swallow_commit_answer()

        assert await lossy.registry.status("job-1") == made
        assert lossy.proxy.swallowed == 1


@pytest.mark.parametrize("verb", [claim, acquire, heartbeat], ids=lambda verb: verb.__name__)
async def test_a_lease_that_waited_for_a_lock_is_counted_from_when_it_was_got(
    verb: Callable[[LossyConnection, str], Awaitable[Verb]], tmp_path: Path
) -> None:
    async with open_lossy(tmp_path, PostgresStore) as lossy:
        call = await verb(lossy, "waited-for")
        stranger = await asyncpg.connect(await fresh_url_without_schema(tmp_path))
        hold = stranger.transaction()
        await hold.start()
        table = f"{schema_of(await fresh_url(tmp_path))}.state"
        if verb is claim:  # it passes over locked jobs, and waits only for the whole table
            await stranger.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")
        else:
            await stranger.execute(f"SELECT FROM {table} FOR UPDATE")

        waiting = asyncio.ensure_future(call(lossy.registry))
        await asyncio.sleep(1)
        assert not waiting.done()
        freed = await lossy.direct.now()
        await hold.rollback()
        answer = await waiting
        await stranger.close()

        for job in jobs_of(answer):
            assert job.lease is not None
            left = (job.lease.expires_at - freed - LEASE).total_seconds()
            assert 0 <= left < LEASE_SLACK_SECONDS


def jobs_of(answer: object) -> list[Job]:
    if isinstance(answer, list):
        return [grant.job for grant in answer]
    job = answer.job if isinstance(answer, Grant) else answer
    assert isinstance(job, Job)
    return [job]


def schema_of(url: str) -> str:
    return url.partition("schema=")[2]


async def fresh_url_without_schema(folder: Path) -> str:
    return (await fresh_url(folder)).partition("?")[0]


def test_what_the_driver_did_not_send_was_not_done() -> None:
    """It says so when the server's goodbye came just before a COMMIT."""
    busy = asyncpg.InternalClientError("cannot switch to state 15; another operation (2) is in progress")
    assert was_not_sent(busy)
    assert not was_not_sent(asyncpg.InternalClientError("unexpected message"))
    assert not was_not_sent(ConnectionResetError())
