"""A real pgbouncer of our own in front of a server, on loopback, gone when its owner is gone."""

import atexit
import os
import shutil
import signal
import socket
import time
from pathlib import Path

from verify.postgres_server import (
    Kept,
    PostgresServer,
    ServerFailed,
    free_port,
    installed,
    server_url,
    temporary_folder,
)

_PROGRAM = Path("/usr/sbin/pgbouncer")
_PATIENCE_SECONDS = 10.0


class Pooler:
    """Lends at most `default_pool_size` of the server's connections per database and user.

    Every user the server knows may enter without a password. `settings` are pgbouncer's own.
    """

    def __init__(
        self,
        server: PostgresServer,
        *,
        pool_mode: str = "transaction",
        default_pool_size: int = 4,
        settings: dict[str, str] | None = None,
    ) -> None:
        self._program = installed(_PROGRAM, "pgbouncer")
        self._owner = os.getpid()
        self._kept: Kept | None = None
        self._server_port = server.port
        self.port = free_port()
        self.folder = temporary_folder("holdfast-pooler-")
        self.log = self.folder / "log"
        self.settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": str(self.folder / "users"),
            "auth_user": "postgres",
            "admin_users": "postgres",
            "max_client_conn": "1000",
            "pool_mode": pool_mode,
            "default_pool_size": str(default_pool_size),
            **(settings or {}),
        }

    def start(self) -> None:
        """Return once it takes connections."""
        assert self._kept is None, "the pooler runs already"
        atexit.register(self.close)
        (self.folder / "users").write_text('"postgres" ""\n')
        lines = ["[databases]", f"* = host=127.0.0.1 port={self._server_port}", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in self.settings.items()]
        configuration = self.folder / "pgbouncer.ini"
        configuration.write_text("\n".join(lines) + "\n")
        command = [str(self._program), str(configuration)]
        self._kept = Kept(command, self.log, signal.SIGTERM, self.folder)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self._listens():
            if self._kept.ended(0.005) or time.monotonic() > deadline:
                self.stop()
                raise ServerFailed(f"pgbouncer does not start:\n{self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        """Drop every client at once."""
        if self._kept is not None:
            self._kept.send(signal.SIGTERM)
            if not self._kept.ended(_PATIENCE_SECONDS):
                self._kept.send(signal.SIGKILL)
                self._kept.ended(_PATIENCE_SECONDS)
            self._kept = None

    def close(self) -> None:
        """Stop and remove the temporary folder."""
        if os.getpid() != self._owner:
            return
        self.stop()
        atexit.unregister(self.close)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        assert self._kept is not None, "the pooler does not run"
        return self._kept.pid

    def url(self, database: str = "postgres", user: str = "postgres", **query: str) -> str:
        return server_url(self.port, database, user, query)

    def __enter__(self) -> "Pooler":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
