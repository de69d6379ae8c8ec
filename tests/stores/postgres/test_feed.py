"""The feed of all events passes over none of them, however late a commit is."""

import asyncio
import sys
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast.core.event import Event
from holdfast.core.lifecycle import Cancel, Success, decide
from holdfast.core.spec import Spec
from holdfast.ports import ById, JobFilter, JobRequest, Work
from holdfast.registry.local import LocalRegistry
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemIds
from tests.stores.postgres.open_stores import (
    ACTOR,
    claimed,
    connected,
    fact,
    fresh_store_url,
    opened,
    said,
    schema_of,
    seized,
    waiting_for_a_lock,
    wanted,
)

WRITERS = 16
ROUNDS = 8
HELD_SECONDS = 1.5
LATE = Spec(queue="late")


async def write(url: str, n: int) -> None:
    """Every kind of event, on a store of this writer's own."""
    async with opened(url) as store:
        registry = LocalRegistry(store, SystemIds())
        for k in range(ROUNDS):
            job_id = f"job-{n}-{k}"
            await registry.enqueue(JobRequest(spec=Spec(), job_id=job_id), actor=ACTOR)
            for grant in await registry.claim(["default"], owner=f"w-{n}"):
                [first, *_] = await registry.history(grant.job_id)
                await registry.publish(grant, [said(1, first), said(2, first)])
                await registry.record([fact(f"about-{n}-{k}", grant.job_id)])
                await registry.complete(grant, Success())
            await registry.record([fact(f"alone-{n}-{k}", None)])


async def hold_a_transaction(schema: str) -> None:
    async with connected() as person, person.transaction():
        await person.execute(f"CREATE TABLE {schema}.theirs (word text)")
        await asyncio.sleep(HELD_SECONDS)


async def write_late(url: str) -> None:
    """A writer of ours that has drawn its place, and commits much later."""
    program = Path(__file__).with_name("delayed_writer_process.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), url, LATE.queue, str(HELD_SECONDS)
    )
    assert await process.wait() == 0


class FeedReader:
    """Reads on and on until told that nothing more comes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = asyncio.Event()
        self.events: list[Event] = []
        self.log_ids: list[int] = []

    def over(self) -> None:
        self._over.set()

    async def read_the_feed(self) -> None:
        async with opened(self._url) as store:
            cursor = None
            while True:
                last = self._over.is_set()
                page = await store.events(after=cursor, limit=37)
                cursor = page.cursor
                self.events += page.events
                if last and not page.events:
                    return
                await asyncio.sleep(0.002)

    async def read_by_log_id(self) -> None:
        """What everybody writes first: give me what is newer than the newest I have."""
        schema, last = schema_of(self._url), 0
        sql = f"SELECT log_id FROM {schema}.job_event_log WHERE log_id > $1 ORDER BY log_id LIMIT 37"
        async with connected() as person:
            while True:
                done = self._over.is_set()
                found = [row[0] for row in await person.fetch(sql, last)]
                self.log_ids += found
                last = max(found, default=last)
                if done and not found:
                    return
                await asyncio.sleep(0.002)


@pytest.mark.slow
async def test_a_reader_of_the_feed_sees_every_event_once_and_each_job_in_order() -> None:
    url = fresh_store_url()

    async with opened(url) as store:
        await store.transact([wanted("the-late-one", LATE)])
        feed, control = FeedReader(url), FeedReader(url)
        readers = [
            asyncio.create_task(feed.read_the_feed()),
            asyncio.create_task(control.read_by_log_id()),
        ]
        writers = [write(url, n) for n in range(WRITERS)]
        await asyncio.gather(write_late(url), hold_a_transaction(schema_of(url)), *writers)
        feed.over()
        control.over()
        await asyncio.gather(*readers)
        await check_seen(store, feed.events)
        async with connected() as person:
            rows = await person.fetch(f"SELECT log_id FROM {schema_of(url)}.job_event_log")
        assert len(control.log_ids) < len(rows), "the control should have missed the late one"


async def check_seen(store: PostgresStore, seen: list[Event]) -> None:
    seen_ids = Counter(event.event_id for event in seen)
    assert max(seen_ids.values()) == 1
    page = await store.list_jobs(JobFilter(), after=None, limit=1000)
    expected = {f"alone-{n}-{k}" for n in range(WRITERS) for k in range(ROUNDS)}
    offsets = defaultdict(list)
    for event in seen:
        if event.offset is not None:
            offsets[event.job_id].append(event.offset)
    for job in page.jobs:
        log = await store.logs(job.job_id, after=None, limit=1000)
        expected |= {event.event_id for event in log.events}
        chain = [event.offset for event in log.events if event.offset is not None]
        assert offsets[job.job_id] == chain == list(range(1, len(chain) + 1))
    assert set(seen_ids) == expected
    assert len(page.jobs) == WRITERS * ROUNDS + 1


async def locked_by(person: "asyncpg.Connection[Any]", schema: str, job_id: str) -> None:
    """Holds the job's row of the queue, which is the first that a commit locks."""
    await person.execute(
        f"SELECT FROM {schema}.ready WHERE seq = (SELECT seq FROM {schema}.job WHERE job_id = $1) FOR UPDATE",
        job_id,
    )


async def test_a_claim_in_an_old_transaction_comes_after_the_enqueue_in_a_younger_one() -> None:
    url = fresh_store_url()

    schema = schema_of(url)
    async with opened(url) as old, opened(url) as young, connected() as person:
        await old.transact([wanted("a"), wanted("b")])
        async with person.transaction():
            await locked_by(person, schema, "b")
            works = [seized("a", "op-a"), seized("b", "op-b"), claimed("op-late", LATE.queue)]
            commit = asyncio.create_task(old.transact(works))
            await waiting_for_a_lock(person)
            await young.transact([wanted("late", LATE)])
        assert len((await commit)[2]) == 1
        page = await old.events(after=None, limit=100)
        assert [e.offset for e in page.events if e.job_id == "late"] == [1, 2]


def cancelled(job_id: str) -> Work:
    command = Cancel(op_id="op-cancel", actor=ACTOR)
    return Work(ById(job_id), partial(decide, command))


async def test_a_change_that_waited_for_a_younger_transaction_comes_after_it() -> None:
    url = fresh_store_url()

    schema = schema_of(url)
    async with opened(url) as old, opened(url) as young, connected() as person:
        await old.transact([wanted("a"), wanted("b"), wanted("c")])
        await person.execute("BEGIN")
        await locked_by(person, schema, "b")
        works = [seized("a", "op-a"), seized("b", "op-b"), cancelled("c")]
        commit = asyncio.create_task(old.transact([*works, claimed("op", "nothing-here")]))
        await waiting_for_a_lock(person)
        await young.transact([seized("c", "op-young")])
        await person.execute("ROLLBACK")
        await commit
        page = await old.events(after=None, limit=100)
        assert [e.offset for e in page.events if e.job_id == "c"] == [1, 2, 3]


async def test_the_feed_waits_for_a_transaction_that_wrote_jobs_and_for_no_other() -> None:
    url = fresh_store_url()

    async with opened(url) as store, connected() as person:
        await store.transact([wanted("before")])
        async with person.transaction():
            await person.execute(f"CREATE TABLE {schema_of(url)}.theirs (word text)")
            await store.transact([wanted("during-a-write")])
            page = await store.events(after=None, limit=10)
            assert [e.job_id for e in page.events] == ["before", "during-a-write"]
            await store.transact_within(person, [wanted("theirs")])
            await store.transact_within(person, [wanted("theirs-too")])
            await store.transact([wanted("ours")])
            assert not (await store.events(after=page.cursor, limit=10)).events
        rest = await store.events(after=page.cursor, limit=10)
        assert [e.job_id for e in rest.events] == ["theirs", "theirs-too", "ours"]


async def test_a_transaction_with_many_commits_announces_itself_once() -> None:
    url = fresh_store_url()

    async with opened(url) as store, connected() as person:
        await store.transact([wanted("before")])
        async with person.transaction():
            for _ in range(3):
                await store.transact_within(person, [wanted()])
            locks = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"
            assert await person.fetchval(locks) == 1


@pytest.mark.parametrize("about", ["job", "ghost"], ids=["a job", "a job that is not there yet"])
async def test_the_log_of_a_job_never_shows_a_later_fact_before_an_earlier_one(about: str) -> None:
    """A fact has drawn its log_id and waits; another one about the same job is told meanwhile."""
    url = fresh_store_url()
    schema = schema_of(url)
    async with opened(url) as first, opened(url) as second, connected() as person:
        await first.transact([wanted("job")])
        await person.execute("BEGIN")
        await person.execute(
            f"INSERT INTO {schema}.fact (log_id, place, event_type, event_class, occurred_at,"
            " given_id) VALUES (0, 0, 'x', 'external', now(), 'blocker')"
        )
        early = first.record([fact("early", about), fact("blocker", None)])
        tasks = [asyncio.create_task(early)]
        await waiting_for_a_lock(person)
        tasks.append(asyncio.create_task(second.record([fact("late", about)])))
        await asyncio.wait([tasks[1]], timeout=0.3)
        page = await second.logs(about, after=None, limit=10)
        await person.execute("ROLLBACK")
        await asyncio.gather(*tasks)
        rest = await second.logs(about, after=page.cursor, limit=10)
        told = [e.given_id for e in (*page.events, *rest.events) if e.given_id]
        assert told == ["early", "late"]


async def test_who_tails_the_log_of_a_job_misses_nothing_of_it() -> None:
    url = fresh_store_url()
    rounds = 40

    async def tell(n: int) -> None:
        async with opened(url) as store:
            for k in range(rounds):
                await store.record([fact(f"{n}-{k}", "job"), fact(f"{n}-{k}-more", "job")])

    async def work() -> None:
        async with opened(url) as store:
            registry = LocalRegistry(store, SystemIds())
            for _ in range(rounds // 4):
                grant = await registry.acquire("job", owner="w")
                [first, *_] = await registry.history("job")
                await registry.publish(grant, [said(k, first) for k in (1, 2, 3)])
                await registry.release(grant)

    async with opened(url) as store:
        await store.transact([wanted("job")])
        writing = asyncio.gather(work(), *(tell(n) for n in range(4)))
        seen: list[str] = []
        cursor, over = None, False
        while not over:
            over = writing.done()
            page = await store.logs("job", after=cursor, limit=20)
            while page.events:
                seen += [event.event_id for event in page.events]
                cursor = page.cursor
                page = await store.logs("job", after=cursor, limit=20)
        await writing
        whole = await store.logs("job", after=None, limit=10_000)
        assert seen == [event.event_id for event in whole.events]
        assert len(seen) == 8 * rounds + 1 + rounds // 4 * 6
