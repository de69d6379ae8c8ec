"""A server that is read-only, crowded, careless or full: a clear error, nothing lost, no hang."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import msgspec
import pytest

from holdfast.core.errors import HoldfastError, Invalid, Unavailable
from holdfast.core.spec import Spec
from holdfast.registry.local import LocalRegistry
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemIds
from tests.stores.postgres.open_stores import (
    connected,
    fact,
    fresh_store_url,
    opened,
    schema_of,
    wanted,
)
from tests.stores.postgres.running_server import MAJOR, server
from verify.postgres_server import PostgresServer, ensure, temporary_folder

LARGE = Spec(payload=msgspec.Raw(b'"' + os.urandom(30_000).hex().encode() + b'"'))
DISK_MEGABYTES = 160
AWAY_SECONDS = 15


async def opens(url: str) -> None:
    async with opened(url):
        pass


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
async def test_a_server_that_can_lose_what_it_acknowledged_is_refused(setting: str) -> None:
    with PostgresServer(MAJOR, fast=True, settings={setting: "off"}) as careless:
        with pytest.raises(Invalid, match=r"fsync or full_page_writes off.*Turn both on"):
            await opens(careless.url())
        assert careless.sql("SELECT to_regnamespace('holdfast') IS NULL;") == "t"


async def test_a_server_that_becomes_careless_is_refused_at_the_next_connection() -> None:
    with PostgresServer(MAJOR, fast=True) as own:
        async with opened(own.url()) as store:
            await store.transact([wanted("job")])
            own.settings["fsync"] = "off"
            await asyncio.to_thread(own.restart)
            with pytest.raises(Invalid, match="Turn both on"):
                await store.transact([wanted("lost")])
            own.settings["fsync"] = "on"
            await asyncio.to_thread(own.restart)
            assert [job is None for job in await store.get(["job", "lost"])] == [False, True]


@pytest.mark.slow
async def test_a_server_that_takes_no_more_connections() -> None:
    settings = {"max_connections": "10", "superuser_reserved_connections": "3"}
    with PostgresServer(MAJOR, fast=True, settings=settings) as crowded:
        crowded.sql("CREATE ROLE plain LOGIN; GRANT CREATE ON DATABASE postgres TO plain;")
        url = crowded.url(user="plain")
        async with opened(url) as store:
            await store.transact([wanted("job")])
            others: list[asyncpg.Connection] = []
            with contextlib.suppress(asyncpg.TooManyConnectionsError):
                for _ in range(10):
                    others.append(await asyncpg.connect(url))
            assert len(others) < 7
            began = time.monotonic()
            with pytest.raises(Unavailable, match=r"takes no more connections.*max_connections"):
                await opens(url)
            assert time.monotonic() - began < 3
            many = [store.transact([wanted()]) for _ in range(20)]
            leaving = asyncio.create_task(leave(others))
            await asyncio.gather(*many)  # one connection serves all, or they wait for the next
            await leaving
            assert sum((await store.counts()).values()) == 21


async def leave(others: "list[asyncpg.Connection]") -> None:
    await asyncio.sleep(1)
    for other in others:
        await other.close()


async def test_a_replica_is_told_from_its_primary() -> None:
    folder = temporary_folder("holdfast-replica-", fast=True)
    settings = {"dynamic_shared_memory_type": "mmap"}
    try:
        with PostgresServer(MAJOR, fast=True) as primary:
            await opens(primary.url())
            copied(primary, folder / "data")
            with PostgresServer(MAJOR, folder=folder, settings=settings) as replica:
                for schema in ("holdfast", "not_there_yet"):
                    began = time.monotonic()
                    with pytest.raises(Unavailable, match=r"is read-only: a replica.*URL of the primary"):
                        await opens(replica.url(schema=schema))
                    assert time.monotonic() - began < 3
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def copied(primary: PostgresServer, data: Path) -> None:
    """A standby of the primary, as pg_basebackup makes one."""
    owner = data.parent.stat().st_uid
    command = [str(ensure(MAJOR) / "pg_basebackup"), "-R", "-c", "fast", "-D", str(data)]
    as_user = {"user": owner, "group": owner, "extra_groups": []} if os.geteuid() == 0 else {}
    subprocess.run(
        [*command, "-d", primary.url()],
        check=True,
        capture_output=True,
        timeout=60,
        cwd="/",
        **as_user,  # type: ignore[call-overload]
    )


@pytest.mark.slow
async def test_a_row_that_somebody_holds_on_to_delays_a_fact_no_longer_than_a_timeout() -> None:
    url = fresh_store_url()

    async with opened(url) as store, connected() as person:
        await store.transact([wanted("job")])
        await person.execute("BEGIN")
        await person.execute(f"SELECT FROM {schema_of(url)}.state FOR UPDATE")
        leaving = asyncio.get_running_loop().call_later(3, person.terminate)
        assert await store.record([fact("late", "job")]) == 1
        leaving.cancel()


@contextlib.contextmanager
def small_disk() -> Iterator[Path]:
    """A folder with little room, that the servers' user may write to."""
    if os.geteuid() != 0:
        pytest.skip("NOT SHOWN: a full disk needs root, to mount a small one")
    folder = temporary_folder("holdfast-small-")
    size = f"size={DISK_MEGABYTES}m,mode=700,uid={folder.stat().st_uid}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "holdfast", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def fill(folder: Path, leave_megabytes: int) -> Path:
    """Take all but a little of the room."""
    free = shutil.disk_usage(folder).free - leave_megabytes * 2**20
    filler = folder / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(free, 1))
    return filler


async def write_until_refused(store: PostgresStore) -> tuple[list[str], HoldfastError]:
    acknowledged: list[str] = []
    for n in range(400):
        names = [f"job-{n}-{k}" for k in range(10)]
        try:
            await store.transact([wanted(name, LARGE) for name in names])
        except HoldfastError as error:
            return acknowledged, error
        acknowledged += names
    raise AssertionError("the disk never filled up")


async def whole(store: PostgresStore, acknowledged: list[str]) -> None:
    for start in range(0, len(acknowledged), 500):
        assert None not in await store.get(acknowledged[start : start + 500])
    assert (await LocalRegistry(store, SystemIds()).verify()).equal


@pytest.fixture
def full_tablespace() -> Iterator[Path]:
    """The disk of the database `small`: its tables, and not the write-ahead log."""
    with small_disk() as disk:
        (disk / "space").mkdir(mode=0o700)
        os.chown(disk / "space", disk.stat().st_uid, -1)
        server(MAJOR).sql(f"CREATE TABLESPACE small LOCATION '{disk / 'space'}';")
        server(MAJOR).sql("CREATE DATABASE small TABLESPACE small;")
        try:
            yield disk
        finally:
            server(MAJOR).drop_database("small")
            server(MAJOR).sql("DROP TABLESPACE small;")


@pytest.mark.slow
async def test_full_tables_are_told_and_lose_nothing(full_tablespace: Path) -> None:
    """The tables' disk is full, the one of the write-ahead log is not."""
    async with asyncio.timeout(120), opened(server(MAJOR).url("small")) as store:
        filler = fill(full_tablespace, 20)
        began = time.monotonic()
        acknowledged, error = await write_until_refused(store)
        assert time.monotonic() - began < 60
        assert isinstance(error, Unavailable)
        assert error.applied == "no"
        assert "is full; nothing was written. Free some room" in str(error)
        await store.get(acknowledged[:10])
        filler.unlink()
        await store.transact([wanted("after")])
        await whole(store, [*acknowledged, "after"])


async def test_a_disk_full_to_the_last_byte_loses_nothing() -> None:
    """The server itself may go down, as PostgreSQL does when it cannot write its log."""
    small = {"max_wal_size": "48MB", "min_wal_size": "32MB", "shared_buffers": "16MB"}
    with (
        small_disk() as disk,
        contextlib.closing(PostgresServer(MAJOR, folder=disk / "server", settings=small)) as own,
    ):
        own.start()
        async with asyncio.timeout(180), opened(own.url()) as store:
            filler = fill(disk, 1)
            began = time.monotonic()
            acknowledged, error = await write_until_refused(store)
            assert isinstance(error, Unavailable), error
            assert time.monotonic() - began < 60 + AWAY_SECONDS
            assert "PostgreSQL at 127.0.0.1" in str(error)
            filler.unlink()
            await asyncio.to_thread(own.kill)
            await asyncio.to_thread(own.start)
            await store.transact([wanted("after")])
            await whole(store, [*acknowledged, "after"])
