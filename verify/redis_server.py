"""A real Redis for tests: one server per test process, on loopback, in memory, gone with the process."""

import atexit
import shutil
import signal
import time
from functools import cache
from pathlib import Path

import redis

from verify.postgres_server import Kept, ServerFailed, free_port, installed, temporary_folder

_PATIENCE_SECONDS = 60.0


@cache
def redis_port() -> int:
    """The port of this process's server; Debian's Redis is installed when absent."""
    program = installed(Path("/usr/bin/redis-server"), "redis-server")
    folder, port = temporary_folder("holdfast-redis-"), free_port()
    options = {"bind": "127.0.0.1", "port": str(port), "save": "", "dir": str(folder)}
    command = [
        str(program),
        *(word for name, value in options.items() for word in (f"--{name}", value)),
    ]
    kept = Kept(command, folder / "log", signal.SIGTERM, folder)
    atexit.register(_stop, kept, folder)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not _answers(port):
        if kept.ended(0.02) or time.monotonic() > deadline:
            raise ServerFailed(f"Redis does not start:\n{(folder / 'log').read_text()[-2000:]}")
    return port


def _answers(port: int) -> bool:
    with redis.Redis(port=port) as client:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False


def _stop(kept: Kept, folder: Path) -> None:
    kept.send(signal.SIGTERM)
    if not kept.ended(5):
        kept.send(signal.SIGKILL)
        kept.ended(_PATIENCE_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)
