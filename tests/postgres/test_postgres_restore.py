"""A database restored with PostgreSQL's own tools begins a new epoch: no earlier token, no earlier cursor."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.core.errors import Conflict, Fenced
from holdfast.core.lifecycle import Success
from holdfast.core.lifecycle.ending import RESTORED_TOKEN_STEP
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant, Request
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_registry
from holdfast.stores.owners import shut_out
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemIds
from postgres_world import MAJOR, fresh_url, server
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


async def lived_in(url: str) -> tuple[Grant, str]:
    """A job with an owner, one that waits, one that has ended; and where a reader of all events was."""
    registry = await open_registry(url)
    await registry.enqueue_many(
        [Request(spec=Spec(lock=lock)) for lock in ("disk", None, None)], actor="user:ana"
    )
    held, done = await registry.claim(["default"], owner="w-1", limit=2)
    await registry.complete(done, Success())
    cursor = (await registry.feed()).cursor
    await registry.close()
    return held, cursor


def test_a_restored_database_refuses_the_owners_and_cursors_of_before(tmp_path: Path) -> None:
    async def body() -> None:
        url = await fresh_url(tmp_path)
        held, cursor = await lived_in(url)
        copy = await open_registry(restored(url, "restored_owners"))
        with pytest.raises(Fenced):
            await copy.complete(held, Success())
        with pytest.raises(Conflict, match="restored"):
            await copy.feed(after=cursor)
        grants = await copy.claim(["default"], owner="w-2", limit=5)
        assert {grant.job_id for grant in grants} >= {held.job_id}
        assert min(grant.fencing_token for grant in grants) > RESTORED_TOKEN_STEP
        for grant in grants:
            await copy.complete(grant, Success())
        assert (await copy.counts()) == {State.SUCCEEDED: 3}
        assert (await copy.resource("disk")).token > RESTORED_TOKEN_STEP
        events = (await copy.feed()).events
        assert [e.event_type for e in events].count("job_succeeded") == 3
        assert (await copy.verify()).equal
        await copy.close()

    asyncio.run(body())


def test_opening_the_restored_database_again_begins_no_other_epoch(tmp_path: Path) -> None:
    async def body() -> None:
        url = await fresh_url(tmp_path)
        await lived_in(url)
        copied = restored(url, "restored_once")
        first = await open_registry(copied)
        [grant, *_] = await first.claim(["default"], owner="w-2")
        cursor = (await first.feed()).cursor
        second = await open_registry(copied)
        assert (await second.complete(grant, Success())).state is State.SUCCEEDED
        assert (await second.feed(after=cursor)).events
        original = await open_registry(url)
        assert not (await original.feed()).cursor.startswith("1.")
        for registry in (first, second, original):
            await registry.close()

    asyncio.run(body())


def test_who_meets_another_server_in_mid_work_begins_a_new_epoch() -> None:
    """A replica that takes over may not have the last commits: tokens rise above all they can have used."""

    async def body(server: PostgresServer) -> None:
        registry = await open_registry(server.url())
        await registry.enqueue_many([Request(spec=Spec())] * 2, actor="user:ana")
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

    with PostgresServer(MAJOR, fast=True) as server:
        asyncio.run(body(server))


def test_a_server_that_takes_over_during_a_renewal_calls_for_another_one(tmp_path: Path) -> None:
    async def body() -> None:
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

    asyncio.run(body())


def owner_of(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid


def test_a_fleet_that_comes_back_shuts_out_the_old_owners_once_and_no_new_one(
    tmp_path: Path,
) -> None:
    """Everybody who meets the restored store takes the same part: with one op_id, once per job."""

    async def body() -> None:
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
        taken = await asyncio.gather(*(shut_out(store, op_id) for _ in range(3)))
        assert taken == [0, 0, 0]
        for grant in grants:
            assert (await registry.complete(grant, Success())).state is State.SUCCEEDED
        await registry.close()

    asyncio.run(body())
