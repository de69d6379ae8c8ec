"""A real Redis, on loopback, gone with this process. Debian's is installed when absent."""

import atexit
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from verify.postgres_server import Kept, ServerFailed, free_port, installed, temporary_folder

_PATIENCE_SECONDS = 60.0


@contextmanager
def redis_server(*, durable: bool = False) -> Iterator[int]:
    """An empty server; its port."""
    folder, port = temporary_folder("holdfast-redis-"), free_port()
    options = {
        "bind": "127.0.0.1",
        "port": str(port),
        "save": "",
        "appendonly": "yes" if durable else "no",
        "dir": str(folder),
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    kept = Kept([str(_program()), *words], folder / "redis.log", signal.SIGTERM, folder)
    try:
        _await(port, kept, folder / "redis.log")
        yield port
    finally:
        kept.send(signal.SIGTERM)
        if not kept.ended(5):
            kept.send(signal.SIGKILL)
            kept.ended(_PATIENCE_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)


@cache
def redis_port() -> int:
    """The port of this process's own server, in memory."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(redis_server())


def redis_version() -> str:
    said = subprocess.run([_program(), "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split("v=")[1].split()[0]


def _program() -> Path:
    return installed(Path("/usr/bin/redis-server"), "redis-server")


def _await(port: int, kept: Kept, log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline and not kept.ended(0.02):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
    raise ServerFailed(f"Redis does not start:\n{log.read_text()[-2000:]}")
