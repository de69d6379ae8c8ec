"""The stores under the workers: a file beside the scripts, and a server of our own."""

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import apsw

import postgres_run
import sqlite_limit
import verbs
from postgres_setup import PostgresSetup


class Store(Protocol):
    """Where a part of the run takes place. `workers` share a drain."""

    name: str
    folder: Path
    workers: int

    @property
    def version(self) -> str: ...

    async def fresh(self) -> str:
        """The URL of an empty store."""
        ...

    async def limit(self, jobs: int) -> float:
        """Jobs per second that the bare script drains, 500 at a time."""
        ...

    async def wake_limit(self, jobs: int) -> verbs.Spread | None:
        """From an enqueue to the claim in another process, by the bare script, if it can tell."""
        ...

    def server_cpu_seconds(self) -> float: ...


@dataclass
class Sqlite:
    folder: Path
    name: str = "SQLite"
    workers: int = 1
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def version(self) -> str:
        return f"SQLite {apsw.sqlite_lib_version()}"

    async def fresh(self) -> str:
        return f"sqlite:///{self._path()}"

    async def limit(self, jobs: int) -> float:
        return sqlite_limit.measure(self._path(), jobs=jobs, batch=verbs.CHUNK).drain

    async def wake_limit(self, jobs: int) -> verbs.Spread | None:
        return None

    def server_cpu_seconds(self) -> float:
        return 0.0

    def _path(self) -> Path:
        return self.folder / f"{next(self._numbers)}.db"


@dataclass
class Postgres:
    """Every store is a schema of one server."""

    folder: Path
    setup: PostgresSetup
    name: str = "PostgreSQL"
    workers: int = 2
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def version(self) -> str:
        return f"PostgreSQL {self.setup.server.sql('SHOW server_version;')}"

    async def fresh(self) -> str:
        return await self.setup.schema(f"bench_{next(self._numbers)}")

    async def limit(self, jobs: int) -> float:
        url, share = await self.fresh(), jobs // postgres_run.PROCESSES
        order = {"url": url, "batch": verbs.CHUNK}
        postgres_run.measure_step(self.setup, "bare_enqueue", {**order, "jobs": share})
        return postgres_run.measure_step(self.setup, "bare_drain", order).rate

    async def wake_limit(self, jobs: int) -> verbs.Spread | None:
        return await postgres_run.bare_wake_up(self.setup, jobs)

    def server_cpu_seconds(self) -> float:
        return self.setup.cpu_seconds()
