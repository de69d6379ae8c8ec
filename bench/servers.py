"""The stores under the systems: an empty one for every scene, on loopback, gone at the end."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Literal

import apsw

from postgres_setup import PostgresSetup
from verify.postgres_server import PostgresServer
from verify.redis_server import redis_server, redis_version

Kind = Literal["PostgreSQL", "Redis", "SQLite"]

POSTGRES_MAJOR = 15


class Servers:
    """`with Servers() as servers:` and then `with servers.empty("Redis", folder) as url:`.

    PostgreSQL is the one of `setup`, which is on the disk, or else one of our own in memory."""

    def __init__(self, setup: PostgresSetup | None = None) -> None:
        self._stack = ExitStack()
        self._postgres = setup.server if setup else None
        self._numbers = count(1)
        self.versions: dict[Kind, str] = {}

    def __enter__(self) -> "Servers":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def empty(self, kind: Kind, folder: Path) -> Iterator[str]:
        if kind == "SQLite":
            self.versions[kind] = apsw.sqlite_lib_version()
            yield f"sqlite:///{folder}/jobs.db"
        elif kind == "Redis":
            with redis_server(durable=True) as port:
                self.versions[kind] = redis_version()
                yield f"redis://127.0.0.1:{port}/0"
        else:
            server, name = self._server(), f"scene_{next(self._numbers)}"
            server.create_database(name)
            self.versions[kind] = server.sql("SHOW server_version;")
            try:
                yield server.url(name)
            finally:
                server.drop_database(name)

    def _server(self) -> PostgresServer:
        if self._postgres is None:
            self._postgres = self._stack.enter_context(PostgresServer(POSTGRES_MAJOR, fast=True))
        return self._postgres
