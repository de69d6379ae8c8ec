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
SELECT (SELECT count(*) FROM holdfast.job), (SELECT count(*) FROM holdfast.event),
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
    """`unused` is dead or free inside the tables: what would grow where a store bloats."""

    tables: int
    indexes: int
    jobs: int
    events: int
    dead_rows: int | None
    unused: int | None


def postgres_sizes(server: PostgresServer, url: str) -> Sizes:
    database = urlsplit(url).path.strip("/")

    def ask(text: str) -> list[int]:
        return [int(word) for word in server.sql(text, database).split("|")]

    [tables, indexes], [jobs, events, dead] = ask(_SIZES), ask(_ROWS)
    return Sizes(tables, indexes, jobs, events, dead, sum(ask(_UNUSED)))


def sqlite_sizes(url: str) -> Sizes:
    path = Path(url.removeprefix("sqlite:///"))
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        parts = {bool(index): int(size) for index, size in connection.execute(_DBSTAT)}
        [(jobs,)] = connection.execute("SELECT count(*) FROM job")
        [(events,)] = connection.execute(
            "SELECT (SELECT count(*) FROM event) + (SELECT count(*) FROM segment)"
        )
        free = int(connection.pragma("freelist_count")) * int(connection.pragma("page_size"))
    finally:
        connection.close()
    return Sizes(parts.get(False, 0), parts.get(True, 0), int(jobs), int(events), None, free)
