"""A database restored with PostgreSQL's own tools begins a new epoch: no earlier token, no earlier cursor."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.core.errors import Conflict, Fenced
from holdfast.core.lifecycle import Success
from holdfast.core.lifecycle.termination import RESTORED_TOKEN_STEP
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant, JobRequest, Registry
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_registry
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.restore_fencing import fence_all_owners
from holdfast.system import SystemIds
from tests.stores.postgres.open_stores import OwnSchema, job_request
from tests.stores.postgres.running_server import MAJOR, fresh_url, server
from verify.postgres_server import PostgresServer, ensure


def restored(url: str, name: str) -> str:
    """A copy of the store in a database of its own, as pg_dump and psql make it."""
    folder = ensure(MAJOR)
    target, schema = server().url(name), url.partition("schema=")[2]
    server().create_database(name)
    dump = [str(folder / "pg_dump"), f"--schema={schema}", url.partition("?")[0]]
    copy = subprocess.run(dump, capture_output=True, check=True)
    load = [str(folder / "psql"), "-q", "-v", "ON_ERROR_STOP=1", target]
    subprocess.run(load, input=copy.stdout, capture_output=True, check=True)
    return f"{target}?schema={schema}"


@asynccontextmanager
async def opened_registry(url: str) -> AsyncIterator[Registry]:
    registry = await open_registry(url)
    try:
        yield registry
    finally:
        await registry.close()


async def lived_in(url: str) -> tuple[Grant, str]:
    """A job with an owner, one that waits, one that has ended; and where a reader of all events was."""
    registry = await open_registry(url)
    await registry.enqueue_many(
        [JobRequest(spec=Spec(lock=lock)) for lock in ("disk", None, None)], actor="user:ana"
    )
    held, done = await registry.claim(["default"], owner="w-1", limit=2)
    await registry.complete(done, Success())
    cursor = (await registry.events()).cursor
    await registry.close()
    return held, cursor


async def test_a_restored_database_refuses_the_owners_and_cursors_of_before(tmp_path: Path) -> None:
    url = await fresh_url(tmp_path)
    held, cursor = await lived_in(url)
    copy = await open_registry(restored(url, "restored_owners"))
    with pytest.raises(Fenced):
        await copy.complete(held, Success())
    with pytest.raises(Conflict, match="restored"):
        await copy.events(after=cursor)
    grants = await copy.claim(["default"], owner="w-2", limit=5)
    assert {grant.job_id for grant in grants} >= {held.job_id}
    assert min(grant.fencing_token for grant in grants) > RESTORED_TOKEN_STEP
    for grant in grants:
        await copy.complete(grant, Success())
    assert (await copy.counts()) == {State.SUCCEEDED: 3}
    assert (await copy.locks("disk")).token > RESTORED_TOKEN_STEP
    events = (await copy.events()).events
    assert [e.event_type for e in events].count("job_succeeded") == 3
    assert (await copy.verify()).equal
    await copy.close()


async def test_opening_the_restored_database_again_begins_no_other_epoch(tmp_path: Path) -> None:
    url = await fresh_url(tmp_path)
    await lived_in(url)
    copied = restored(url, "restored_once")
    first = await open_registry(copied)
    [grant, *_] = await first.claim(["default"], owner="w-2")
    cursor = (await first.events()).cursor
    second = await open_registry(copied)
    assert (await second.complete(grant, Success())).state is State.SUCCEEDED
    assert (await second.events(after=cursor)).events
    original = await open_registry(url)
    assert not (await original.events()).cursor.startswith("1.")
    for registry in (first, second, original):
        await registry.close()


async def test_who_meets_another_server_in_mid_work_begins_a_new_epoch() -> None:
    """A replica that takes over may not have the last commits: tokens rise above all they can have used."""

    with PostgresServer(MAJOR, fast=True) as server:
        registry = await open_registry(server.url())
        await registry.enqueue_many([JobRequest(spec=Spec())] * 2, actor="user:ana")
        [held] = await registry.claim(["default"], owner="w-1")
        server.stop()
        (server.data / "standby.signal").touch()
        shutil.chown(server.data / "standby.signal", *owner_of(server.data))
        server.start()
        server.sql("SELECT pg_promote()")

        with pytest.raises(Fenced):
            await registry.complete(held, Success())
        grants = await registry.claim(["default"], owner="w-2", limit=5)
        assert len(grants) == 2
        assert min(grant.fencing_token for grant in grants) > RESTORED_TOKEN_STEP
        assert (await registry.verify()).equal
        await registry.close()


async def test_a_server_that_takes_over_during_a_renewal_calls_for_another_one(
    tmp_path: Path,
) -> None:
    store = await PostgresStore.open(await fresh_url(tmp_path), ids=SystemIds())
    sessions, renewals = store._sessions, 0

    async def meet_another() -> None:
        sessions._timeline = "another"
        sessions.drop(await sessions.connect())

    async def renew() -> None:
        nonlocal renewals
        renewals += 1
        if renewals == 1:
            await meet_another()
        await store._open()

    sessions.renew = renew
    await store.counts()
    assert renewals == 0
    await meet_another()
    await store.counts()
    assert renewals == 2
    await store.counts()
    assert renewals == 2
    await store.close()


def owner_of(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid


async def test_a_fleet_that_comes_back_shuts_out_the_old_owners_once_and_no_new_one(
    tmp_path: Path,
) -> None:
    """Everybody who meets the restored store takes the same part: with one op_id, once per job."""

    url = await fresh_url(tmp_path)
    await lived_in(url)
    ids = SystemIds()
    store = await PostgresStore.open(restored(url, "restored_fleet"), ids=ids)
    registry = LocalRegistry(store, ids)
    grants = await registry.claim(["default"], owner="w-2", limit=5)
    [op_id] = {
        event.op_id
        for grant in grants
        for event in await registry.history(grant.job_id)
        if event.event_type == "job_restored" and event.op_id
    }
    taken = await asyncio.gather(*(fence_all_owners(store, op_id) for _ in range(3)))
    assert taken == [0, 0, 0]
    for grant in grants:
        assert (await registry.complete(grant, Success())).state is State.SUCCEEDED
    await registry.close()


async def test_an_event_written_by_who_was_open_before_a_restore_is_in_the_feed_after_it(
    own: OwnSchema,
) -> None:
    """Places are those of the epoch that the tables are in, whatever a store remembers of it."""

    old = await own.open()
    await old.enqueue(job_request("job-1"), actor="user:ana")
    person = await own.connect()
    await person.execute(f"UPDATE {own.schema}.meta SET value = 'elsewhere' WHERE name = 'home'")
    new = await own.open()
    await new.enqueue(job_request("job-2"), actor="user:ana")
    page = await new.events()
    await old.enqueue(job_request("job-3"), actor="user:ana")
    rest = await new.events(after=page.cursor)
    seen = {event.job_id for event in (*page.events, *rest.events)}
    assert seen == {"job-1", "job-2", "job-3"}


async def test_a_base_backup_that_is_put_back_refuses_the_owners_of_after_it() -> None:
    """A recovered cluster keeps its system identifier; only its timeline is another."""
    with PostgresServer(fast=True) as own:
        async with opened_registry(own.url()) as registry:
            await registry.enqueue(job_request("job-1"), actor="user:ana")
        own.stop()
        backup = own.folder / "backup"
        subprocess.run(["cp", "-a", str(own.data), str(backup)], check=True)
        own.start()
        async with opened_registry(own.url()) as registry:
            lost = await registry.acquire("job-1", owner="worker-7")
        own.stop()
        shutil.rmtree(own.data)
        backup.rename(own.data)
        (own.data / "recovery.signal").touch()
        os.chown(own.data / "recovery.signal", *os.stat(own.data)[4:6])
        own.settings["restore_command"] = "false"
        own.start()
        for _ in range(200):
            if own.sql("SELECT pg_is_in_recovery()") == "f":
                break
            await asyncio.sleep(0.05)

        async with opened_registry(own.url()) as registry:
            grant = await registry.acquire("job-1", owner="worker-8")
            assert grant.fencing_token > lost.fencing_token
            with pytest.raises(Fenced):
                await registry.complete(lost, Success())
