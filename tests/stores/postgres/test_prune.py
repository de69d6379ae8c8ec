"""Events lie in partitions by the age of their jobs: room is made ahead, and old jobs leave whole."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from holdfast.core.event import Event
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Grant, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores.postgres import maintenance, partitions
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
    wanted,
)

JOBS = 100
AT_ONCE = timedelta(0)


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    for made in (
        partitions.ensure_partitions,
        partitions.make_partitions,
        partitions.drop_empty_partitions,
    ):
        monkeypatch.setattr(made, "__defaults__", (JOBS,))
    monkeypatch.setattr(maintenance, "JOBS_PER_PARTITION", JOBS)


async def partitions_of(person: "asyncpg.Connection[Any]", url: str) -> list[str]:
    sql = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = $1::regclass ORDER BY 1"
    return [row[0] for row in await person.fetch(sql, f"{schema_of(url)}.event")]


async def count(person: "asyncpg.Connection[Any]", url: str, table: str) -> int:
    return int(await person.fetchval(f"SELECT count(*) FROM {schema_of(url)}.{table}"))


async def finish(registry: LocalRegistry, limit: int, owner: str = "w") -> list[Grant]:
    grants = await registry.claim(["default"], owner=owner, limit=limit)
    for grant in grants:
        await registry.complete(grant, Success())
    return grants


async def test_jobs_go_on_across_partitions() -> None:
    url = fresh_store_url()

    async with opened(url) as opener, connected() as person:
        registry = LocalRegistry(opener, SystemIds())
        for _ in range(10):
            await opener.transact([wanted() for _ in range(60)])
            [*_, last] = await registry.claim(["default"], owner="w", limit=60)
            await registry.publish(last, [said(1, (await registry.history(last.job_id))[0])])
        assert len(await partitions_of(person, url)) >= 7
        feed = await registry.events(limit=1000)
        rest = await registry.events(after=feed.cursor, limit=1000)
        assert len(feed.events) + len(rest.events) == 1220  # with a start and a line of output of ten
        assert (await registry.verify()).equal


async def take_the_room(url: str) -> None:
    """Drop every partition that has nothing in it yet."""
    async with connected() as person:
        for name in await partitions_of(person, url):
            if not await person.fetchval(f"SELECT count(*) FROM {name}"):
                await person.execute(f"DROP TABLE {name}")


@pytest.mark.parametrize("how", ["transact", "two at once", "within", "claim"])
async def test_a_commit_that_finds_no_room_makes_it(how: str) -> None:
    url = fresh_store_url()

    async with opened(url) as first, opened(url) as second, connected() as person:
        if how == "claim":
            await first.transact([wanted()])
        await take_the_room(url)
        if how == "within":
            async with person.transaction():
                await first.transact_within(person, [wanted("job")])
        elif how == "two at once":
            await asyncio.gather(first.transact([wanted("job")]), second.transact([wanted("other")]))
        else:
            await first.transact([wanted("job"), claimed("op", "default")])
        [job] = await first.get(["job"])
        assert job is not None
        assert (await LocalRegistry(first, SystemIds()).verify()).equal


async def test_many_stores_that_need_room_at_once_all_get_it() -> None:
    url = fresh_store_url()

    async def write(n: int) -> None:
        async with opened(url) as one:
            for _ in range(5):
                await one.transact([wanted() for _ in range(70)])

    async with opened(url) as opener, connected() as person:
        await asyncio.gather(*map(write, range(6)))
        assert await count(person, url, "job_event_log") == 6 * 5 * 70
        assert (await LocalRegistry(opener, SystemIds()).verify()).equal


async def talk(registry: LocalRegistry, grant: Grant) -> None:
    [first, *_] = await registry.history(grant.job_id)
    await registry.publish(grant, [said(1, first), said(2, first)])
    await registry.record([fact(f"about-{grant.job_id}", grant.job_id)])


async def test_old_jobs_leave_whole_and_living_ones_keep_their_whole_log() -> None:
    url = fresh_store_url()

    async with opened(url) as opener, connected() as person:
        registry = LocalRegistry(opener, SystemIds())
        for n in range(10):
            await registry.enqueue(JobRequest(spec=Spec(), job_id=f"job-{n}"), actor=ACTOR)
        grants = await registry.claim(["default"], owner="w", limit=10)
        for grant in grants:
            await talk(registry, grant)
        for grant in grants[:7]:
            await registry.complete(grant, Success())
        await registry.record([fact("about-nobody", None)])
        living = await logs_of(registry, grants[7:])
        pruned = await registry.prune(older_than=AT_ONCE, output_older_than=timedelta(days=1))
        assert pruned.jobs == 7
        assert await logs_of(registry, grants[7:]) == living
        for table, left in (
            ("job", 3),
            ("state", 3),
            ("fact", 4),
            ("claim", 1),
            ("event", 3),
            ("job_event_log", 3 * 5 + 4),
        ):
            assert await count(person, url, table) == left, table
        assert {str(k): n for k, n in (await registry.counts()).items()} == {"running": 3}
        assert (await registry.verify()).equal
        for grant in grants[7:]:
            await registry.complete(grant, Success())
        await registry.prune(older_than=AT_ONCE)
        for table in ("job", "state", "event", "claim", "segment"):
            assert await count(person, url, table) == 0, table
        assert not await registry.counts()


async def logs_of(registry: LocalRegistry, grants: list[Grant]) -> list[tuple[Event, ...]]:
    return [(await registry.logs(grant.job_id)).events for grant in grants]


async def test_a_partition_leaves_with_the_last_of_its_jobs() -> None:
    url = fresh_store_url()

    async with opened(url) as opener, connected() as person:
        registry = LocalRegistry(opener, SystemIds())
        await opener.transact([wanted("lives", Spec(queue="slow"))])
        for _ in range(6):
            await opener.transact([wanted() for _ in range(70)])
            await finish(registry, 70)
        before = await partitions_of(person, url)
        await registry.prune(older_than=AT_ONCE)
        after = await partitions_of(person, url)
        assert before[0] == after[0]  # the one that lives has its log there
        assert len(after) < len(before)
        assert await count(person, url, "job") == 1
        assert [e.job_id for e in (await registry.events()).events] == ["lives"]
        await opener.transact([wanted() for _ in range(90)])
        await finish(registry, 90)
        assert (await registry.verify()).equal


async def test_a_job_that_was_forgotten_and_made_again_has_no_token_of_before() -> None:
    url = fresh_store_url()

    async with opened(url) as opener:
        registry = LocalRegistry(opener, SystemIds())
        await registry.enqueue(JobRequest(spec=Spec(), job_id="job"), actor=ACTOR)
        [before] = await finish(registry, 1)
        assert (await registry.prune(older_than=AT_ONCE)).jobs == 1
        await registry.enqueue(JobRequest(spec=Spec(), job_id="job"), actor=ACTOR)
        [after] = await finish(registry, 1)
        assert after.fencing_token > before.fencing_token


@pytest.mark.slow
async def test_pruning_under_load_loses_nothing_that_lives() -> None:
    url = fresh_store_url()
    rounds = 12

    async def work(n: int) -> None:
        async with opened(url) as one:
            registry = LocalRegistry(one, SystemIds())
            for k in range(rounds):
                job_id = f"keep-{n}-{k}"
                spec = Spec(queue="slow")
                await registry.enqueue(JobRequest(spec=spec, job_id=job_id), actor=ACTOR)
                await one.transact([wanted() for _ in range(20)])
                for grant in await registry.claim(["default"], owner=f"w-{n}", limit=20):
                    await talk(registry, grant)
                    await registry.complete(grant, Success())

    async with opened(url) as one, opened(url) as two:
        registries = [LocalRegistry(each, SystemIds()) for each in (one, two)]
        working = asyncio.gather(*map(work, range(4)))
        removed = 0
        while not working.done():
            prunes = (each.prune(older_than=AT_ONCE) for each in registries)
            removed += sum(each.jobs for each in await asyncio.gather(*prunes))
            await asyncio.sleep(0.02)
        await working
        assert removed > 0
        kept = [f"keep-{n}-{k}" for n in range(4) for k in range(rounds)]
        assert None not in await one.get(kept)
        assert all(await one.histories(kept))
        assert (await registries[0].verify()).equal
        await counted(url, one)


async def counted(url: str, opener: PostgresStore) -> None:
    async with connected() as person:
        sql = f"SELECT state, count(*) FROM {schema_of(url)}.state GROUP BY state"
        whole = {row[0]: row[1] for row in await person.fetch(sql)}
    assert {str(state): n for state, n in (await opener.counts()).items()} == whole


async def test_counts_are_right_at_every_moment_while_they_are_added_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = fresh_store_url()
    monkeypatch.setattr(maintenance, "COMMITS_PER_CLEANING", 3)
    monkeypatch.setattr(maintenance, "COUNTS_MAX", 20)

    async def work(n: int) -> None:
        async with opened(url) as one:
            registry = LocalRegistry(one, SystemIds())
            for _ in range(25):
                await registry.enqueue(JobRequest(spec=Spec()), actor=ACTOR)
                await finish(registry, 1, f"w-{n}")

    schema = schema_of(url)
    both = (
        f"SELECT (SELECT coalesce(sum(jobs), 0) FROM {schema}.queue_count),"
        f" (SELECT count(*) FROM {schema}.job)"
    )
    async with opened(url) as opener, connected() as person:
        working = asyncio.gather(*map(work, range(8)))
        looks = 0
        while not working.done():
            [(added, jobs)] = await person.fetch(both)
            assert added == jobs
            looks += 1
            await asyncio.sleep(0.005)
        await working
        assert looks > 10
        await counted(url, opener)
        assert await count(person, url, "queue_count") < 400  # of 1,200 changes
