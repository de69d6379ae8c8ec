"""What a store of ours holds: bytes of tables and indexes, rows, and what is free or dead among them."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import apsw

from verify.postgres_server import PostgresServer

_OWN = "nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"
_SIZES = f"""
SELECT coalesce(sum(pg_relation_size(c.oid)) FILTER (WHERE relkind IN ('r', 't')), 0),
       coalesce(sum(pg_relation_size(c.oid)) FILTER (WHERE relkind = 'i'), 0)
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE {_OWN} OR nspname = 'pg_toast'
    AND c.oid >= 16384;
"""
_ROWS = """
SELECT (SELECT count(*) FROM holdfast.job_event_log),
       (SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables);
"""
_UNUSED = f"""
CREATE EXTENSION IF NOT EXISTS pgstattuple;
SELECT coalesce(sum(s.dead_tuple_len), 0), coalesce(sum(s.free_space), 0)
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace, pgstattuple(c.oid) AS s
WHERE relkind = 'r' AND {_OWN};
"""
_DBSTAT = """
SELECT coalesce(type, 'table') = 'index', sum(pgsize) FROM dbstat
LEFT JOIN sqlite_schema USING (name) WHERE aggregate = TRUE GROUP BY 1
"""


@dataclass(frozen=True)
class Sizes:
    """`jobs` and `events` are what our counts and the view say; `unused` is dead or free inside the
    tables: what would grow where a store bloats."""

    tables: int
    indexes: int
    jobs: int
    events: int
    dead_rows: int | None
    unused: int | None


def postgres_sizes(server: PostgresServer, url: str, jobs: int) -> Sizes:
    database = urlsplit(url).path.strip("/")

    def ask(text: str) -> list[int]:
        return [int(word) for word in server.sql(text, database).split("|")]

    [tables, indexes], [events, dead] = ask(_SIZES), ask(_ROWS)
    return Sizes(tables, indexes, jobs, events, dead, sum(ask(_UNUSED)))


def sqlite_sizes(url: str, jobs: int) -> Sizes:
    path = Path(url.removeprefix("sqlite:///"))
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        parts = {bool(index): int(size) for index, size in connection.execute(_DBSTAT)}
        [(events,)] = connection.execute("SELECT count(*) FROM job_event_log")
        free = int(connection.pragma("freelist_count")) * int(connection.pragma("page_size"))
    finally:
        connection.close()
    return Sizes(parts.get(False, 0), parts.get(True, 0), jobs, int(events), None, free)
