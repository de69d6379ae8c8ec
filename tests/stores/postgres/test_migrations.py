"""The schema is brought forward by whoever comes first, also when it is killed, and beside old code."""

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores.postgres import schema, sessions, statements
from holdfast.system import SystemIds
from tests.stores.postgres.open_stores import (
    ACTOR,
    connected,
    fresh_store_url,
    opened,
    schema_of,
    waiting_for_a_lock,
    wanted,
)

ROUNDS = 10
KNOWN = len(statements.migrations("holdfast"))
KNOWS = "-- Code that knows migration {} can work with what this one leaves.\n"
ADDITIVE = "ALTER TABLE holdfast.job ADD COLUMN shade text NOT NULL DEFAULT 'grey';"
PROGRAM = Path(__file__).with_name("migration_process.py")
FAILPOINTS = [
    "postgres.migration_begun",
    "postgres.schema_changed",
    "postgres.partition_made",
    "postgres.migration_numbered",
]


class NewerSchema:
    """Makes this code newer by one migration, until `older()`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, script: str) -> None:
        def found(schema: str) -> list[str]:
            return [*statements.migrations(schema), script.replace("holdfast.", f"{schema}.")]

        self._monkeypatch.setattr(schema, "migrations", found)

    def older(self) -> None:
        self._monkeypatch.setattr(schema, "migrations", statements.migrations)


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> NewerSchema:
    return NewerSchema(monkeypatch)


async def opens(url: str, *place: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), url, *place, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    return process.returncode, errors.decode()


@pytest.mark.long
@pytest.mark.slow
async def test_two_processes_that_open_an_empty_database_at_once_both_succeed() -> None:
    for _ in range(ROUNDS):
        url = fresh_store_url()
        for code, errors in await asyncio.gather(opens(url), opens(url)):
            assert code == 0, errors
        await works(url)


@pytest.mark.long
@pytest.mark.slow
async def test_eight_stores_that_open_an_empty_database_at_once_all_succeed() -> None:
    for _ in range(ROUNDS):
        url = fresh_store_url()

        async def use(n: int, url: str = url) -> None:
            async with opened(url) as store:
                await store.transact([wanted(f"job-{n}")])

        await asyncio.gather(*map(use, range(8)))
        async with opened(url) as store:
            assert sum((await store.counts()).values()) == 8


@pytest.mark.parametrize("place", FAILPOINTS)
async def test_who_is_killed_while_migrating_leaves_what_the_next_one_completes(place: str) -> None:
    url = fresh_store_url()

    code, _ = await opens(url, place)
    assert code == -signal.SIGKILL
    async with connected() as person:
        made = await person.fetchval("SELECT to_regclass($1)", f"{schema_of(url)}.meta")
        assert made is None  # all of a step, or nothing
    await works(url)


async def works(url: str) -> None:
    async with opened(url) as store:
        registry = LocalRegistry(store, SystemIds())
        await registry.enqueue(JobRequest(spec=Spec()), actor=ACTOR)
        [grant] = await registry.claim(["default"], owner="w")
        await registry.complete(grant, Success())
        assert (await registry.verify()).equal


async def hold(person: "asyncpg.Connection[Any]", url: str) -> None:
    await person.execute(f"LOCK TABLE {schema_of(url)}.job IN ACCESS EXCLUSIVE MODE")


@pytest.mark.slow
async def test_a_table_that_is_held_stops_a_migration_soon_and_with_advice(
    newer: NewerSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fresh_store_url()
    monkeypatch.setattr(schema, "TABLE_TRIES", 2)

    async with opened(url) as store:
        await store.transact([wanted("kept")])
    async with connected() as person, person.transaction():
        await hold(person, url)
        newer(KNOWS.format(KNOWN) + ADDITIVE)
        began = time.monotonic()
        with pytest.raises(Unavailable, match=r"are in use by .* Try again") as told:
            await opens_here(url)
        assert time.monotonic() - began < 2 * 2 + schema.PAUSE_SECONDS + 2
        assert told.value.applied == "no"
    await opens_here(url)
    async with opened(url) as store:
        assert (await store.get(["kept"])) != [None]


async def test_a_migration_that_could_not_lock_a_table_lets_others_pass_and_tries_again(
    newer: NewerSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fresh_store_url()
    monkeypatch.setattr(schema, "TABLE_SETTING", "SET LOCAL lock_timeout = '300ms'")

    await opens_here(url)
    newer(KNOWS.format(KNOWN) + ADDITIVE)
    async with connected() as person, connected() as other:
        async with person.transaction():
            await hold_rows(person, url)
            opening = asyncio.create_task(opens_here(url))
            await waiting_for_a_lock(other)
            async with other.transaction():
                await hold_rows(other, url)  # waits behind the migration, until that gives way
        assert not opening.done()
        await opening
        await other.fetch(f"SELECT shade FROM {schema_of(url)}.job")


async def test_a_migration_in_a_deadlock_is_tried_again(newer: NewerSchema) -> None:
    url = fresh_store_url()

    await opens_here(url)
    name = schema_of(url)
    newer(KNOWS.format(KNOWN) + f"LOCK TABLE {name}.job; LOCK TABLE {name}.resource;" + ADDITIVE)
    async with connected() as person, connected() as other:
        async with person.transaction():
            await person.execute("SET LOCAL deadlock_timeout = '10s'")  # so that the migration is the victim
            await person.execute(f"LOCK TABLE {name}.resource IN ROW EXCLUSIVE MODE")
            opening = asyncio.create_task(opens_here(url))
            await waiting_for_a_lock(other)
            await hold_rows(person, url)
        await opening
        await other.fetch(f"SELECT shade FROM {name}.job")


async def hold_rows(person: "asyncpg.Connection[Any]", url: str) -> None:
    """Lock the table as every commit does."""
    await person.execute(f"LOCK TABLE {schema_of(url)}.job IN ROW EXCLUSIVE MODE")


async def test_an_open_with_nothing_to_migrate_needs_no_lock() -> None:
    url = fresh_store_url()

    await opens_here(url)
    async with connected() as person, person.transaction():
        await hold(person, url)
        began = time.monotonic()
        await opens_here(url)
        assert time.monotonic() - began < 1


@pytest.mark.slow
async def test_an_open_that_waits_for_the_list_of_migrations_gives_up_in_words() -> None:
    url = fresh_store_url()

    await opens_here(url)
    async with connected() as person, person.transaction():
        await person.execute(f"LOCK TABLE {schema_of(url)}.meta IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        with pytest.raises(Unavailable, match="in use by something that holds on to them"):
            await opens_here(url)
        assert time.monotonic() - began < 8


async def opens_here(url: str) -> None:
    async with opened(url):
        pass


async def test_a_migration_may_take_longer_than_any_statement_of_a_commit(
    newer: NewerSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fresh_store_url()
    monkeypatch.setattr(sessions, "ANSWER_SECONDS", 0.5)
    monkeypatch.setitem(sessions.SETTINGS, "statement_timeout", "400ms")

    await opens_here(url)
    newer(KNOWS.format(KNOWN) + "SELECT pg_sleep(1);" + ADDITIVE)
    await opens_here(url)
    async with connected() as person:
        await person.fetch(f"SELECT shade FROM {schema_of(url)}.job")


async def test_old_code_goes_on_working_while_new_code_migrates_under_load(
    newer: NewerSchema,
) -> None:
    url = fresh_store_url()
    over = asyncio.Event()

    async def load(n: int) -> int:
        ended = 0
        async with opened(url) as store:
            registry = LocalRegistry(store, SystemIds())
            while not over.is_set():
                await registry.enqueue(JobRequest(spec=Spec()), actor=ACTOR)
                for grant in await registry.claim(["default"], owner=f"w-{n}"):
                    await registry.complete(grant, Success())
                    ended += 1
        return ended

    async with opened(url):
        loads = [asyncio.create_task(load(n)) for n in range(4)]
        await asyncio.sleep(0.3)
        newer(KNOWS.format(KNOWN) + ADDITIVE)
        async with opened(url) as new:
            await new.transact([wanted("made-by-the-new")])
            newer.older()
            async with opened(url) as old:
                await old.transact([wanted("made-by-the-old")])
                assert None not in await new.get(["made-by-the-old", "made-by-the-new"])
                assert None not in await old.get(["made-by-the-old", "made-by-the-new"])
            await asyncio.sleep(0.2)
            over.set()
            ended = await asyncio.gather(*loads)
            counts = {str(state): n for state, n in (await new.counts()).items()}
            assert counts["succeeded"] == sum(ended) > 0
            assert (await LocalRegistry(new, SystemIds()).verify()).equal
            async with connected() as person:
                sql = f"SELECT value FROM {schema_of(url)}.meta WHERE name = 'schema'"
                assert await person.fetchval(sql) == str(KNOWN + 1)


async def test_code_that_is_too_old_refuses_and_touches_nothing(newer: NewerSchema) -> None:
    url = fresh_store_url()

    async with opened(url) as store:
        await store.transact([wanted("kept")])
    newer(KNOWS.format(KNOWN + 1) + ADDITIVE)
    await opens_here(url)
    newer.older()
    with pytest.raises(
        Invalid,
        match=rf"newer holdfast \(schema {KNOWN + 1}; this one knows {KNOWN}\).*Upgrade",
    ):
        await opens_here(url)
    newer(KNOWS.format(KNOWN + 1) + ADDITIVE)
    async with opened(url) as store:
        assert (await store.get(["kept"])) != [None]
