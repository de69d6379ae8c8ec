"""What a hostile reader of the PostgreSQL store asked of it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import asyncpg
import pytest
from postgres_place import deadlocks, waiting_for_a_lock

from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.event import Event
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Request
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_local
from holdfast.stores.postgres import sessions, store
from verify.postgres_server import PostgresServer

_schemas = (f"corner_{n}" for n in count())


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(fast=True) as found:
        yield found


class Place:
    """A schema of its own, and somebody else's connection to it."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.schema = next(_schemas)
        self.url = server.url(schema=self.schema)

    async def stranger(self) -> "asyncpg.Connection[Any]":
        connection = await asyncpg.connect(self.server.url())
        self._ends.push_async_callback(connection.close, timeout=1)
        return connection

    async def opened(self, url: str | None = None) -> LocalRegistry:
        registry = await open_local(url or self.url)
        self._ends.push_async_callback(registry.close)
        return registry

    async def worker_url(self, person: "asyncpg.Connection[Any]") -> str:
        """The URL of a user who may write to the tables, and owns none."""
        name = f"worker_{self.schema}"
        await person.execute(
            f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA {self.schema} TO {name};"
            f"GRANT ALL ON ALL TABLES IN SCHEMA {self.schema} TO {name};"
            f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {self.schema} TO {name}"
        )
        return self.server.url(user=name, schema=self.schema)

    async def skip_to(self, person: "asyncpg.Connection[Any]", seq: int) -> None:
        """As if so many jobs had been made."""
        await person.execute(f"SELECT setval('{self.schema}.job_seq', {seq})")

    def play(self, body: Callable[[], Awaitable[None]], seconds: float = 30) -> None:
        async def main() -> None:
            async with AsyncExitStack() as self._ends, asyncio.timeout(seconds):
                await body()

        asyncio.run(main())


@pytest.fixture
def place(server: PostgresServer) -> Place:
    return Place(server)


def postgres(registry: LocalRegistry) -> store.PostgresStore:
    assert isinstance(registry._store, store.PostgresStore)
    return registry._store


def made(job_id: str, lock: str | None = None) -> Request:
    return Request(spec=Spec(lock=lock), job_id=job_id)


async def ended(registry: LocalRegistry, job_id: str) -> int:
    """Make a job, run it, and answer the token it was run under."""
    await registry.enqueue(made(job_id), actor="user:ana")
    grant = await registry.acquire(job_id, owner="worker-7")
    await registry.complete(grant, Success())
    return grant.fencing_token


def told(given_id: str, about: str) -> Event:
    return Event(
        event_type="seen",
        event_class=EventClass.EXTERNAL,
        occurred_at=datetime.now(UTC),
        job_id=about,
        given_id=given_id,
    )


def test_a_job_made_again_while_its_predecessor_is_pruned_has_no_token_of_before(
    place: Place,
) -> None:
    """The batch also claims, so that it locks what it reads, and waits for the prune to end."""

    async def body() -> None:
        registry = await place.opened()
        before = await ended(registry, "job-1")
        pruner = await place.stranger()
        async with pruner.transaction():
            await pruner.execute(f"SELECT FROM {place.schema}.job FOR UPDATE")
            again = asyncio.gather(
                registry.enqueue(made("job-1"), actor="user:ana"),
                registry.claim(["elsewhere"], owner="worker-8"),
            )
            await waiting_for_a_lock(pruner)
            await pruner.execute(
                f"INSERT INTO {place.schema}.meta VALUES ('token_floor', '{before}')"
            )
            for table in ("event", "claim", "job"):
                await pruner.execute(f"DELETE FROM {place.schema}.{table}")
        job, _ = await again
        assert job.version == 1  # a new one
        grant = await registry.acquire("job-1", owner="worker-9")
        assert grant.fencing_token > before

    place.play(body)


def test_who_tails_the_log_of_a_job_sees_its_making_although_a_fact_was_told_before(
    place: Place,
) -> None:
    async def body() -> None:
        registry = await place.opened()
        person = await place.stranger()
        async with person.transaction():
            await registry.enqueue(made("job-1"), actor="user:ana", connection=person)
            telling = asyncio.create_task(registry.record([told("early", "job-1")]))
            await asyncio.wait([telling], timeout=0.5)
            page = await registry.log("job-1")
        await telling
        rest = await registry.log("job-1", after=page.cursor)
        seen = {event.event_type for event in (*page.events, *rest.events)}
        assert seen == {"seen", "job_queued"}

    place.play(body)


def test_housekeeping_that_fails_is_nobodys_loss(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        await place.opened()
        person = await place.stranger()
        monkeypatch.setattr(store, "COMMITS_PER_CLEANING", 1)
        worker = await place.opened(await place.worker_url(person))
        await place.skip_to(person, 2**18 + 7)
        job = await worker.enqueue(made("job-1"), actor="user:ana")
        assert job.version == 1

    place.play(body)


def test_a_prune_has_the_time_it_was_given(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "ANSWER_SECONDS", 1)

    async def body() -> None:
        registry = await place.opened()
        await ended(registry, "job-1")
        person = await place.stranger()
        await person.execute(
            f"CREATE FUNCTION {place.schema}.slow() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM pg_sleep(2); RETURN NULL; END';"
            f"CREATE TRIGGER slow AFTER DELETE ON {place.schema}.job"
            f" FOR EACH STATEMENT EXECUTE FUNCTION {place.schema}.slow()"
        )
        pruned = await registry.prune(older_than=timedelta())
        assert pruned.jobs == 1

    place.play(body, 60)


def test_a_server_that_stops_waiting_for_the_disk_meanwhile_changes_nothing_for_us() -> None:
    async def body() -> None:
        registry = await here.opened()
        here.server.sql("ALTER SYSTEM SET synchronous_commit = off; SELECT pg_reload_conf();")
        await asyncio.sleep(0.5)
        found = await postgres(registry)._sessions.use(
            lambda session: session.fetch("SHOW synchronous_commit")
        )
        assert found[0][0] == "on"

    with PostgresServer(fast=True) as own:
        here = Place(own)
        here.play(body)


def test_claims_of_many_jobs_with_the_same_locks_do_not_wait_for_one_another_in_a_ring(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    rings = deadlocks(monkeypatch)

    async def body() -> None:
        registries = [await place.opened() for _ in range(4)]
        locks = [f"lock-{n * n % 7}" for n in range(60)]
        requests = [made(f"job-{n}", lock=lock) for n, lock in enumerate(locks)]
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

    place.play(body, 60)


def test_an_actor_that_postgresql_cannot_write_is_refused_and_its_neighbours_are_not(
    place: Place,
) -> None:
    async def body() -> None:
        registry = await place.opened()
        bad, good = await asyncio.gather(
            registry.enqueue(made("job-1"), actor="user:a\0na"),
            registry.enqueue(made("job-2"), actor="user:bo"),
            return_exceptions=True,
        )
        assert isinstance(bad, Invalid)
        assert not isinstance(good, BaseException), good

    place.play(body)


def test_a_row_that_somebody_holds_holds_up_the_other_jobs_of_a_batch_for_a_part_of_a_lease(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sessions.SETTINGS, "lock_timeout", "200ms")

    async def body() -> None:
        registry = await place.opened()
        await registry.enqueue(made("held"), actor="user:ana")
        await registry.enqueue(made("free"), actor="user:ana")
        grant = await registry.acquire("free", owner="worker-7")
        person = await place.stranger()
        async with person.transaction():
            await person.execute(f"SELECT FROM {place.schema}.job WHERE job_id = 'held' FOR UPDATE")
            started = time.monotonic()
            stuck = asyncio.create_task(registry.cancel("held", actor="user:ana"))
            beat = asyncio.create_task(registry.heartbeat(grant))
            await asyncio.wait([stuck, beat], timeout=10)
            took = time.monotonic() - started
        answers = await asyncio.gather(stuck, beat, return_exceptions=True)
        assert isinstance(answers[0], Unavailable)
        assert took < 1  # five timeouts of this test; of the real ones, 25 s of a lease of 60

    place.play(body)


def test_two_transactions_that_enqueue_in_opposite_orders_end_soon(place: Place) -> None:
    async def body() -> None:
        registry = await place.opened()
        one, two = await place.stranger(), await place.stranger()
        outer = one.transaction(), two.transaction()
        for each in outer:
            await each.start()

        async def make(job_id: str, connection: object) -> None:
            await registry.enqueue(made(job_id), actor="user:ana", connection=connection)

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

    place.play(body)


def test_counts_of_many_queues_are_added_up_as_fast_as_they_come(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "COMMITS_PER_CLEANING", 20)
    monkeypatch.setattr(store, "COUNTS_MAX", 200)

    async def body() -> None:
        registry = await place.opened()
        for _ in range(60):
            requests = [Request(spec=Spec(queue=f"queue-{k}")) for k in range(50)]
            await registry.enqueue_many(requests, actor="user:ana")
        person = await place.stranger()
        rows = await person.fetchval(f"SELECT count(*) FROM {place.schema}.queue_count")
        assert rows < 1200  # of 3,000 that were written

    place.play(body)


def test_a_role_set_to_serializable_is_served_all_the_same(place: Place) -> None:
    async def body() -> None:
        await place.opened()
        person = await place.stranger()
        await person.execute(
            f"CREATE ROLE strict_{place.schema} SUPERUSER LOGIN;"
            f"ALTER ROLE strict_{place.schema} SET default_transaction_isolation = 'serializable'"
        )
        url = place.server.url(user=f"strict_{place.schema}", schema=place.schema)
        strict = await place.opened(url)
        found = await postgres(strict)._sessions.use(
            lambda session: session.fetch("SHOW transaction_isolation")
        )
        assert found[0][0] == "read committed"

    place.play(body)


def test_an_event_written_by_who_was_open_before_a_restore_is_in_the_feed_after_it(
    place: Place,
) -> None:
    """Places are those of the epoch that the tables are in, whatever a store remembers of it."""

    async def body() -> None:
        old = await place.opened()
        await old.enqueue(made("job-1"), actor="user:ana")
        person = await place.stranger()
        await person.execute(
            f"UPDATE {place.schema}.meta SET value = 'elsewhere' WHERE name = 'home'"
        )
        new = await place.opened()
        await new.enqueue(made("job-2"), actor="user:ana")
        page = await new.feed()
        await old.enqueue(made("job-3"), actor="user:ana")
        rest = await new.feed(after=page.cursor)
        seen = {event.job_id for event in (*page.events, *rest.events)}
        assert seen == {"job-1", "job-2", "job-3"}

    place.play(body)
