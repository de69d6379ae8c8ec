"""Lost answers: whoever was not told sends the same again, and is told what happened the first time."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest
from postgres_wire import (
    LEASE,
    VERBS,
    LockedStore,
    Verb,
    Wire,
    acquire,
    claim,
    complete,
    heartbeat,
    wired,
)

from holdfast.core.errors import Unavailable
from holdfast.core.job import Job
from holdfast.failpoint import arm
from holdfast.ports import Grant, Registry
from holdfast.stores.postgres.errors import unsent
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.statements import statement
from holdfast.stores.postgres.store import PostgresStore
from postgres_world import fresh_url

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
    while (page := await registry.feed(after=cursor)).events:
        found += [event.event_id for event in page.events]
        cursor = page.cursor
    return found


@pytest.mark.parametrize("store", [PostgresStore, LockedStore], ids=["statement", "transaction"])
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_a_call_whose_answer_was_lost_is_answered_when_it_is_sent_again_and_done_once(
    verb: Callable[[Wire, str], Awaitable[Verb]], store: type[PostgresStore], tmp_path: Path
) -> None:
    async def body() -> None:
        async with wired(tmp_path, store) as wire:
            heard = await (await verb(wire, "heard"))(wire.registry)
            unheard = await verb(wire, "unheard")
            wire.proxy.swallow_commit_answer()
            before = await everything(wire.witness)

            with pytest.raises(Unavailable) as lost:
                await unheard(wire.registry)
            after = await everything(wire.witness)
            again = await unheard(wire.registry)

            assert lost.value.applied == "unknown"
            assert wire.proxy.swallowed == 1
            assert told(again) == told(heard)
            assert len(after) > len(before)
            assert await everything(wire.witness) == after
            verification = await wire.witness.verify()
            assert verification.equal, verification.mismatches

    asyncio.run(body())


def cut_at(wire: Wire, name: str) -> list[str]:
    """Cut the wire at the first passing of this failpoint; answers what is passed from then on."""
    passed: list[str] = []

    def hook(passing: str) -> None:
        if passing == name and name not in passed:
            wire.proxy.cut()
        passed.append(passing)

    arm(hook)
    return passed


@pytest.mark.parametrize(
    ("store", "place"),
    [
        (PostgresStore, "line.batch_taken"),
        (LockedStore, "line.batch_taken"),
        (LockedStore, "postgres.begun"),
        (LockedStore, "postgres.jobs_read"),
        (LockedStore, "postgres.decided"),
    ],
)
@pytest.mark.parametrize("verb", [claim, complete], ids=lambda verb: verb.__name__)
def test_a_call_whose_connection_is_cut_before_the_commit_is_done_once_without_its_caller_noticing(
    verb: Callable[[Wire, str], Awaitable[Verb]],
    store: type[PostgresStore],
    place: str,
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with wired(tmp_path, store) as wire:
            heard = await (await verb(wire, "heard"))(wire.registry)
            disturbed = await verb(wire, "disturbed")
            before = await everything(wire.witness)
            passed = cut_at(wire, place)
            try:
                answer = await disturbed(wire.registry)
            finally:
                arm(None)

            assert place in passed
            assert told(answer) == told(heard)
            events = len(await everything(wire.witness)) - len(before)
            assert events == 2  # two grants; or a start and an end

    asyncio.run(body())


def test_a_statement_that_is_cut_off_is_in_doubt_although_it_never_arrived(tmp_path: Path) -> None:
    """Only the server could say more, and it cannot be asked."""

    async def body() -> None:
        async with wired(tmp_path, PostgresStore) as wire:
            disturbed = await complete(wire, "disturbed")
            before = await everything(wire.witness)
            cut_at(wire, "postgres.decided")
            try:
                with pytest.raises(Unavailable) as lost:
                    await disturbed(wire.registry)
            finally:
                arm(None)

            assert lost.value.applied == "unknown"
            assert await everything(wire.witness) == before
            job = await disturbed(wire.registry)
            assert isinstance(job, Job)
            assert len(await everything(wire.witness)) == len(before) + 2

    asyncio.run(body())


def test_only_a_claim_that_gets_nothing_is_looked_for_among_the_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    fetch = Session.fetch

    async def noted(self: Session, sql: str, *parameters: object) -> object:
        said.append(sql)
        return await fetch(self, sql, *parameters)

    async def body() -> None:
        async with wired(tmp_path, PostgresStore) as wire:
            call = await claim(wire, "some")
            lookup = statement("select_claimed", schema_of(await fresh_url(tmp_path)))
            monkeypatch.setattr(Session, "fetch", noted)

            await call(wire.registry)
            assert said.count(lookup) == 0
            assert not await wire.registry.claim(["none"], owner="worker-7")
            assert said.count(lookup) == 1

    asyncio.run(body())


def test_a_question_whose_answer_was_lost_behind_a_pooler_is_asked_again(tmp_path: Path) -> None:
    """There every question is a transaction, and its COMMIT writes nothing that could be in doubt."""

    async def body() -> None:
        async with wired(tmp_path, PostgresStore) as wire:
            made = await wire.make("job-1")
            store = wire.registry._store
            assert isinstance(store, PostgresStore)
            store._sessions.pooled = True
            wire.proxy.swallow_commit_answer()

            assert await wire.registry.get("job-1") == made
            assert wire.proxy.swallowed == 1

    asyncio.run(body())


@pytest.mark.parametrize("verb", [claim, acquire, heartbeat], ids=lambda verb: verb.__name__)
def test_a_lease_that_waited_for_a_lock_is_counted_from_when_it_was_got(
    verb: Callable[[Wire, str], Awaitable[Verb]], tmp_path: Path
) -> None:
    async def body() -> None:
        async with wired(tmp_path, PostgresStore) as wire:
            call = await verb(wire, "waited-for")
            stranger = await asyncpg.connect(await fresh_url_without_schema(tmp_path))
            hold = stranger.transaction()
            await hold.start()
            table = f"{schema_of(await fresh_url(tmp_path))}.job"
            if verb is claim:  # it passes over locked jobs, and waits only for the whole table
                await stranger.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")
            else:
                await stranger.execute(f"SELECT FROM {table} FOR UPDATE")

            waiting = asyncio.ensure_future(call(wire.registry))
            await asyncio.sleep(1)
            assert not waiting.done()
            freed = await wire.witness.now()
            await hold.rollback()
            answer = await waiting
            await stranger.close()

            for job in jobs_of(answer):
                assert job.lease is not None
                left = (job.lease.expires_at - freed - LEASE).total_seconds()
                assert 0 <= left < LEASE_SLACK_SECONDS

    asyncio.run(body())


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
    busy = asyncpg.InternalClientError(
        "cannot switch to state 15; another operation (2) is in progress"
    )
    assert unsent(busy)
    assert not unsent(asyncpg.InternalClientError("unexpected message"))
    assert not unsent(ConnectionResetError())
