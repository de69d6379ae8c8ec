"""A real PostgreSQL for tests: one server per test process, an empty schema per folder.

Tests run on Debian's version; the contracts also on the newest. HOLDFAST_POSTGRES=18 runs all on that.
"""

import asyncio
import os
from functools import cache, partial
from pathlib import Path

import asyncpg

from holdfast.ports import Clock, Ids
from holdfast.stores.postgres.store import PostgresStore
from verify.postgres_server import PostgresServer

SCHEMAS = 4
MAJOR = int(os.environ.get("HOLDFAST_POSTGRES", "15"))
NEWEST = 18
_RESET = """
TRUNCATE {0}.job, {0}.state, {0}.ready, {0}.lane, {0}.alarm, {0}.rare, {0}.segment,
    {0}.event, {0}.fact, {0}.queue_count, {0}.resource, {0}.claim, {0}.api_key,
    {0}.worker;
DELETE FROM {0}.meta WHERE name NOT IN ('schema', 'needs');
"""
_folders: dict[tuple[Path, int], str] = {}


def server(major: int = MAJOR) -> PostgresServer:
    """The server of this process, in memory, so that durable commits are quick."""
    return _server(major)


@cache
def _server(major: int) -> PostgresServer:
    found = PostgresServer(major, fast=True)
    found.start()
    return found


async def fresh_url(folder: Path, major: int = MAJOR) -> str:
    """The URL of a store of this folder's own; empty the first time."""
    place = (folder, major)
    if place not in _folders:
        _folders[place] = f"world_{len(_folders) % SCHEMAS}"
        await _empty(_folders[place], major)
    return server(major).url(schema=_folders[place])


def guard(role: str, password: str, major: int = MAJOR) -> None:
    """Have a user who has to give this password."""
    asyncio.run(_guard(server(major), role, password))


async def _guard(found: PostgresServer, role: str, password: str) -> None:
    rules, rule = found.data / "pg_hba.conf", f"host all {role} 127.0.0.1/32 scram-sha-256\n"
    if rule in rules.read_text():
        return
    found.sql(f"CREATE ROLE {role} LOGIN PASSWORD '{password}';")
    rules.write_text(rule + rules.read_text())
    found.sql("SELECT pg_reload_conf();")
    while True:  # until the server goes by its new rules
        try:
            connection = await asyncpg.connect(found.url(user=role))
        except asyncpg.InvalidPasswordError:
            return
        await connection.close()


async def _empty(schema: str, major: int) -> None:
    connection = await asyncpg.connect(server(major).url())
    if await connection.fetchval("SELECT to_regclass($1)", f"{schema}.meta"):
        await connection.execute(_RESET.format(schema))
    await connection.close()


async def postgres_store(folder: Path, clock: Clock | None, ids: Ids, major: int = MAJOR) -> PostgresStore:
    return await PostgresStore.open(await fresh_url(folder, major), ids=ids, clock=clock)


newest_postgres_store = partial(postgres_store, major=NEWEST)
