"""The PostgreSQL under test: on disk, durable, the same one for the bare script and the verbs."""

import os
from contextlib import suppress
from pathlib import Path

from holdfast.sdk.open import open_registry
from verify.postgres_server import PostgresServer

SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "32GB",
    "min_wal_size": "4GB",
    "checkpoint_timeout": "1h",
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.max": "5000",
}
_TICKS = os.sysconf("SC_CLK_TCK")


class PostgresSetup:
    """One PostgreSQL, and what it spends. No checkpoint falls into a run."""

    def __init__(self) -> None:
        self.server = PostgresServer(15, settings=SETTINGS)

    def __enter__(self) -> "PostgresSetup":
        self.server.start()
        self.server.sql("CREATE EXTENSION pg_stat_statements;")
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()

    async def schema(self, name: str, database: str = "postgres") -> str:
        """The URL of an empty store, made as everybody makes one: by opening it."""
        url = self.server.url(database, schema=name)
        await (await open_registry(url)).close()
        return url

    def drop(self, *schemas: str) -> None:
        for schema in schemas:
            self.server.sql(f"DROP SCHEMA {schema} CASCADE;")

    def configure(self, name: str, value: str) -> None:
        self.server.sql(f"ALTER SYSTEM SET {name} = '{value}'; SELECT pg_reload_conf();")

    def wal_bytes(self) -> int:
        return int(self.server.sql("SELECT pg_current_wal_insert_lsn() - '0/0';"))

    def cpu_seconds(self) -> float:
        """What all of the server's processes have used, those that have ended included."""
        postmaster = self.server.pid
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return _used(postmaster, ended=True) + sum(_used(int(pid)) for pid in children)

    def statement_seconds(self, schema: str) -> float:
        """The server's time in statements on this schema, enqueues aside."""
        milliseconds = self.server.sql(
            "SELECT coalesce(sum(total_exec_time), 0) FROM pg_stat_statements"
            f" WHERE strpos(query, '{schema}.') > 0 AND strpos(query, 'insert_jobs') = 0"
            " AND strpos(query, 'job_seq') = 0;"
        )
        return float(milliseconds) / 1000


def _used(pid: int, *, ended: bool = False) -> float:
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11 : 15 if ended else 13])) / _TICKS
    return 0.0
