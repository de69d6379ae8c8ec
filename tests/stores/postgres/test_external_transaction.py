"""A job made inside somebody's own transaction is there if and only if that transaction commits."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, timedelta
from functools import partial
from typing import Any, TypeAlias

import asyncpg
import psycopg
import pytest

from holdfast.core.errors import Conflict, Invalid
from holdfast.core.lifecycle import Change
from holdfast.core.spec import Spec
from holdfast.ports import Work
from holdfast.registry.local import LocalRegistry
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemIds
from tests.stores.postgres.open_stores import (
    OwnSchema,
    connected,
    fact,
    fresh_schema,
    fresh_store_url,
    job_request,
    jobs_of,
    opened,
    schema_of,
    wanted,
)
from tests.stores.postgres.running_server import MAJOR, server


class Undo(Exception):
    """What a person raises to roll back."""


Connection: TypeAlias = AbstractAsyncContextManager[object]
Connect: TypeAlias = Callable[[str], Connection]
"""A way to have a transaction of one's own: yields the connection, commits unless it raises."""


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[object]:
    async with connected(url) as person, person.transaction():
        yield person


@asynccontextmanager
async def by_pool(url: str) -> AsyncIterator[object]:
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=2) as pool,
        pool.acquire() as person,
        person.transaction(),
    ):
        yield person


@asynccontextmanager
async def by_psycopg(url: str) -> AsyncIterator[object]:
    async with await psycopg.AsyncConnection.connect(url) as person:
        yield person


@asynccontextmanager
async def by_blocking_psycopg(url: str) -> AsyncIterator[object]:
    with psycopg.connect(url, options="-c TimeZone=America/New_York") as person:
        yield person


@asynccontextmanager
async def by_autocommitting_psycopg(url: str) -> AsyncIterator[object]:
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as person,
        person.transaction(),
    ):
        yield person


@asynccontextmanager
async def by_asyncpg_with_json(url: str) -> AsyncIterator[object]:
    """As asyncpg's own manual sets it up."""
    async with connected(url) as person:
        for kind in ("json", "jsonb"):
            await person.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        async with person.transaction():
            yield person


DRIVERS = [
    by_asyncpg,
    by_pool,
    by_psycopg,
    by_blocking_psycopg,
    by_autocommitting_psycopg,
    by_asyncpg_with_json,
]


def bare(url: str) -> str:
    return url.partition("?")[0]


@pytest.mark.parametrize("connect", DRIVERS)
async def test_a_commit_makes_the_job_and_its_event(connect: Connect) -> None:
    url = fresh_store_url()
    spec = Spec(labels={"team": "blue"}, lock="disk:1", queue="images")

    async with opened(url) as store:
        async with connect(bare(url)) as person:
            [made] = jobs_of(await store.transact_within(person, [wanted("job", spec)]))
            assert await store.get(["job"]) == [None]
            assert (await store.events(after=None, limit=10)).events == ()
        assert await store.get(["job"]) == [made]
        assert made.created_at.astimezone(UTC) == made.created_at
        [event] = (await store.events(after=None, limit=10)).events
        assert (event.job_id, event.offset, event.event_type) == ("job", 1, "job_queued")
        assert {str(k): v for k, v in (await store.counts()).items()} == {"queued": 1}
        registry = LocalRegistry(store, SystemIds())
        [grant] = await registry.claim(["images"], owner="w")
        assert grant.job.spec == spec
        assert (await registry.verify()).equal


async def undone(store: PostgresStore, connection: Connection, works: list[Work]) -> None:
    async with connection as person:
        await store.transact_within(person, works)
        raise Undo


@pytest.mark.parametrize("connect", DRIVERS)
async def test_a_rollback_leaves_neither_job_nor_event(connect: Connect) -> None:
    url = fresh_store_url()

    async with opened(url) as store:
        with pytest.raises(Undo):
            await undone(store, connect(bare(url)), [wanted("job"), wanted()])
        assert await store.get(["job"]) == [None]
        await store.transact([wanted("after")])
        [event] = (await store.events(after=None, limit=10)).events
        assert event.job_id == "after"
        assert {str(k): v for k, v in (await store.counts()).items()} == {"queued": 1}


@pytest.mark.parametrize("connect", DRIVERS)
async def test_a_job_that_is_there_already_is_answered_and_the_transaction_goes_on(
    connect: Connect,
) -> None:
    url = fresh_store_url()

    async with opened(url) as store:
        await store.transact([wanted("job")])
        async with connect(bare(url)) as person:
            [job] = jobs_of(await store.transact_within(person, [wanted("job")]))
            assert job.version == 1
            await store.transact_within(person, [wanted("more")])
        assert None not in await store.get(["job", "more"])
        assert len((await store.events(after=None, limit=10)).events) == 2


class RivalEnqueue:
    """Let somebody else make the job after it was looked for, and before it is written."""

    def __init__(self, url: str, work: Work) -> None:
        self._url, self._work = url, work
        self.tries = 0

    @property
    def work(self) -> Work:
        return Work(self._work.selection, self._decide)

    def _decide(self, *given: Any) -> Any:  # noqa: ANN401
        self.tries += 1
        if self.tries == 1:
            rival = threading.Thread(target=partial(asyncio.run, self._make()))
            rival.start()
            rival.join()
        return self._work.decide(*given)

    async def _make(self) -> None:
        async with opened(self._url) as other:
            await other.transact([self._work])


@pytest.mark.parametrize("connect", DRIVERS)
async def test_a_job_that_somebody_else_makes_meanwhile_does_not_abort_the_transaction(
    connect: Connect,
) -> None:
    url = fresh_store_url()

    async with opened(url) as store, connected() as witness:
        await witness.execute(f"CREATE TABLE {schema_of(url)}.theirs (word text)")
        async with connect(bare(url)) as person:
            await insert(person, f"INSERT INTO {schema_of(url)}.theirs VALUES ('kept')")
            race = RivalEnqueue(url, wanted("job"))
            [job] = jobs_of(await store.transact_within(person, [race.work]))
            assert (job.job_id, race.tries) == ("job", 2)
        assert await witness.fetchval(f"SELECT word FROM {schema_of(url)}.theirs") == "kept"
        assert len((await store.events(after=None, limit=10)).events) == 1


async def insert(person: Any, sql: str) -> None:  # noqa: ANN401
    done = person.execute(sql)
    if isinstance(done, Awaitable):
        await done


async def test_a_transaction_that_cannot_see_the_other_job_is_told_to_run_again() -> None:
    url = fresh_store_url()

    async with opened(url) as store, connected() as person:
        transaction = person.transaction(isolation="repeatable_read")
        await transaction.start()
        await person.fetch("SELECT 1")
        await store.transact([wanted("job")])
        with pytest.raises(Conflict, match="roll back and run it again"):
            await store.transact_within(person, [wanted("job")])
        await transaction.rollback()


@pytest.mark.parametrize("autocommit", [False, True])
async def test_a_connection_that_is_in_no_transaction_is_refused(autocommit: bool) -> None:
    url = fresh_store_url()

    async with opened(url) as store:
        async with connected() as other:
            with psycopg.connect(bare(url), autocommit=True) as person:
                alone = person if autocommit else other
                with pytest.raises(Invalid, match="Begin a transaction"):
                    await store.transact_within(alone, [wanted("job")])
        assert await store.get(["job"]) == [None]


async def test_what_is_no_connection_is_refused() -> None:
    url = fresh_store_url()

    async with opened(url) as store:
        with pytest.raises(Invalid, match=r"give one of psycopg \(3\) or asyncpg"):
            await store.transact_within("postgresql://", [wanted("job")])


@pytest.mark.parametrize("connect", DRIVERS)
@pytest.mark.parametrize("has_tables", [False, True])
async def test_a_connection_to_another_database_is_refused(connect: Connect, has_tables: bool) -> None:
    """Also when a store of the same name is there: a test's job must not land in production."""
    url, name = fresh_store_url(), f"other_{fresh_schema()}"
    server(MAJOR).create_database(name)

    other = server(MAJOR).url(name)
    if has_tables:
        async with opened(server(MAJOR).url(name, schema=schema_of(url))):
            pass
    async with opened(url) as store:
        async with connect(other) as person:
            with pytest.raises(Invalid, match="the store's own URL"):
                await store.transact_within(person, [wanted("job")])
            await insert(person, "CREATE TABLE theirs (word text)")
        assert await store.get(["job"]) == [None]
    async with connected(other) as person:
        assert await person.fetchval("SELECT to_regclass('theirs')") is not None


async def test_a_commit_tells_who_waits_and_a_rollback_does_not() -> None:
    url = fresh_store_url()
    heard: list[object] = []

    async with opened(url) as store, connected() as ear, connected() as person:
        await ear.add_listener(f"{schema_of(url)}_commit", lambda *_: heard.append(1))
        with pytest.raises(Undo):
            await undone(store, by_asyncpg(bare(url)), [wanted()])
        await asyncio.sleep(0.1)
        assert not heard
        async with person.transaction():
            await store.transact_within(person, [wanted()])
        await asyncio.sleep(0.1)
        assert heard


async def test_a_thousand_jobs_fit_into_one_transaction() -> None:
    url = fresh_store_url()

    async with opened(url) as store, connected() as person:
        async with person.transaction():
            made: Sequence[Any] = await store.transact_within(person, [wanted() for _ in range(1000)])
        assert all(isinstance(decision, Change) for [decision] in made)
        assert sum((await store.counts()).values()) == 1000


async def test_two_transactions_that_enqueue_in_opposite_orders_end_soon(own: OwnSchema) -> None:
    registry = await own.open()
    one, two = await own.connect(), await own.connect()
    outer = one.transaction(), two.transaction()
    for each in outer:
        await each.start()

    async def make(job_id: str, connection: object) -> None:
        await registry.enqueue(job_request(job_id), actor="user:ana", connection=connection)

    await make("job-1", one)
    await make("job-2", two)
    started = time.monotonic()
    ring = [asyncio.create_task(make("job-2", one)), asyncio.create_task(make("job-1", two))]
    await asyncio.wait(ring, timeout=8, return_when=asyncio.FIRST_COMPLETED)
    took = time.monotonic() - started
    for task in ring:
        task.cancel()
    await asyncio.gather(*ring, return_exceptions=True)
    assert took < 5


async def test_who_tails_the_log_of_a_job_sees_its_making_although_a_fact_was_told_before(
    own: OwnSchema,
) -> None:
    registry = await own.open()
    person = await own.connect()
    async with person.transaction():
        await registry.enqueue(job_request("job-1"), actor="user:ana", connection=person)
        telling = asyncio.create_task(registry.record([fact("early", "job-1")]))
        await asyncio.wait([telling], timeout=0.5)
        page = await registry.logs("job-1")
    await telling
    rest = await registry.logs("job-1", after=page.cursor)
    seen = {event.event_type for event in (*page.events, *rest.events)}
    assert seen == {"noted", "job_queued"}


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_an_enqueue_that_is_cancelled_leaves_the_transaction_usable(
    own: OwnSchema, driver: str
) -> None:
    registry = await own.open()
    other = await own.connect()
    await other.execute("BEGIN")
    await registry.enqueue(job_request("job-1"), actor="user:ana", connection=other)
    if driver == "asyncpg":
        mine: object = await own.connect()
        await mine.execute("BEGIN")  # type: ignore[attr-defined]
    else:
        mine = await psycopg.AsyncConnection.connect(own.server.url())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await registry.enqueue(job_request("job-1"), actor="user:ana", connection=mine)
    job = await registry.enqueue(job_request("job-2"), actor="user:ana", connection=mine)
    assert job.version == 1
    await mine.execute("COMMIT")  # type: ignore[attr-defined]
    if driver == "psycopg":
        await mine.close()  # type: ignore[attr-defined]
    assert (await registry.status("job-2")).version == 1


async def test_the_lease_of_a_job_that_waited_to_be_made_is_counted_from_when_it_was(
    own: OwnSchema,
) -> None:
    registry = await own.open()
    person = await own.connect()
    outer = person.transaction()
    await outer.start()
    await registry.enqueue(job_request("job-1"), actor="user:ana", connection=person)
    getting = asyncio.create_task(
        registry.acquire("job-1", owner="w", create=job_request("job-1"), lease=timedelta(seconds=10))
    )
    await asyncio.sleep(2)
    await outer.rollback()
    grant = await getting
    assert grant.job.lease is not None
    left = grant.job.lease.expires_at - await registry.now()
    assert left > timedelta(seconds=9)
