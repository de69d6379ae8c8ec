"""Clients of a PostgreSQL server that goes away: what they were told, and what the server has kept."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Timer

from msgspec import Struct

from holdfast.core.errors import NotFound
from holdfast.core.event import Event
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.sdk.open import open_registry
from holdfast.testing.history import Entry, check, join
from holdfast.testing.job_timeline import Violation
from holdfast.testing.recorder import read_lines
from verify.environment import say
from verify.kills_harness import ROOT
from verify.postgres_server import PostgresServer

PROCESS = ROOT / "tests" / "stores" / "postgres" / "load_process.py"
PATHS = os.pathsep.join(map(str, (ROOT / "src", ROOT)))
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS}
SECONDS_MAX = 600
CALM_SECONDS = 1.5
FAULTS = ("terminate", "fast", "immediate", "kill")
PATIENT = Retry(
    max_failures=100,
    max_crashes=100,
    backoff=timedelta(milliseconds=20),
    backoff_max=timedelta(milliseconds=100),
)
TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast';"


def child(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROCESS), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


@contextmanager
def kept(children: Sequence[subprocess.Popen[str]]) -> Iterator[None]:
    """Children that end in time, one way or another."""

    def stop() -> None:
        for one in children:
            one.kill()

    watchdog = Timer(SECONDS_MAX, stop)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()
        stop()
        for one in children:
            one.communicate()


def hear(one: subprocess.Popen[str]) -> str:
    assert one.stdout is not None  # we asked for pipes
    line = one.stdout.readline()
    if not line:
        raise RuntimeError("a process of the run stopped before its time")
    return line.strip()


def tell(one: subprocess.Popen[str], line: str) -> None:
    assert one.stdin is not None
    one.stdin.write(f"{line}\n")
    one.stdin.flush()


class Fault(Struct, frozen=True):
    """A server that went away, and when it was back, in nanoseconds of the monotonic clock."""

    name: str
    struck: int
    ready: int


class Outages(Struct, frozen=True, kw_only=True):
    """What clients were told while their server went away again and again, and what it has kept."""

    entries: list[Entry]
    faults: list[Fault]
    violations: list[Violation]
    equal: bool
    events: int
    commits: int
    retries: int

    @property
    def answered(self) -> int:
        return sum(entry.type == "ok" for entry in self.entries)

    @property
    def unknown(self) -> int:
        return sum(entry.type == "info" for entry in self.entries)

    def recovery_seconds(self, fault: Fault) -> float:
        """How long the slowest process had no answer, from when the server was back."""
        first: dict[str, int] = {}
        for entry in self.entries:
            if entry.type == "ok" and entry.at_ns > fault.ready:
                first.setdefault(entry.process, entry.at_ns)
        return (max(first.values()) - fault.ready) / 1e9

    def seconds(self, verb: str) -> list[float]:
        """How long the answered calls took that met no outage, in order of length."""
        begun = {(e.process, e.number): e for e in self.entries if e.verb == verb}
        took = []
        for entry in self.entries:
            call = begun.get((entry.process, entry.number))
            if call and entry.type == "ok" and not self._disturbed(call.at_ns, entry.at_ns):
                took.append((entry.at_ns - call.at_ns) / 1e9)
        return sorted(took)

    def _disturbed(self, start: int, end: int) -> bool:
        return any(start < f.ready + 10**9 and end > f.struck for f in self.faults)


def outages(
    server: PostgresServer, folder: Path, names: Sequence[str], *, jobs: int, early: bool = False
) -> Outages:
    """Two processes of claimers, on the record, while their server is struck. `early`: the control."""
    with server:
        url = server.url()
        asyncio.run(make(url, 0))
        words = [(f"{folder}/history-{n}", f"p{n}") for n in range(2)]
        mode = "early" if early else ""
        children = [child("load", url, path, name, str(jobs), mode) for path, name in words]
        with kept(children):
            for one in children:
                hear(one)
            for one in children:
                tell(one, "go")
            time.sleep(CALM_SECONDS)
            faults = [_struck(server, name, early=early) for name in names]
            for one in children:
                tell(one, "finish")
            tallies = [list(map(int, hear(one).split())) for one in children]
            if any(one.wait(SECONDS_MAX) for one in children):
                raise RuntimeError("a process of the run failed")
        entries = sorted(read_lines([Path(path) for path, _ in words]), key=lambda entry: entry.at_ns)
        logs, equal = asyncio.run(_kept(url, entries))
    return Outages(
        entries=entries,
        faults=faults,
        violations=check(join(entries), logs),
        equal=equal,
        events=sum(map(len, logs.values())),
        commits=sum(tally[0] for tally in tallies),
        retries=sum(tally[1] for tally in tallies),
    )


def _struck(server: PostgresServer, name: str, *, early: bool) -> Fault:
    struck = time.monotonic_ns()
    if name == "terminate":
        server.sql(TERMINATE)
    elif name == "kill":
        server.kill()
        time.sleep(CALM_SECONDS if early else 0)
        server.start()
    else:
        server.restart(name)  # type: ignore[arg-type]
    ready = time.monotonic_ns()
    say(f"outage: {name}, {(ready - struck) / 1e9:.1f} s")
    time.sleep(CALM_SECONDS)
    return Fault(name, struck, ready)


async def _kept(url: str, entries: Sequence[Entry]) -> tuple[dict[str, list[Event]], bool]:
    """The log of every job that anybody spoke of, and whether all records equal theirs."""
    registry = await open_registry(url)
    named = {entry.job_id for entry in entries if entry.job_id}
    named |= {job.job_id for entry in entries for job in entry.shown}
    logs: dict[str, list[Event]] = {}
    for job_id in sorted(named):
        try:
            logs[job_id] = await registry.history(job_id)
        except NotFound:
            logs[job_id] = []
    verification = await registry.verify()
    await registry.close()
    return logs, verification.equal


async def make(url: str, jobs: int) -> None:
    """Make the tables, and some jobs in them."""
    registry = await open_registry(url)
    requests = [JobRequest(spec=Spec(retry=PATIENT), job_id=f"job-{n}") for n in range(jobs)]
    await registry.enqueue_many(requests, actor="user:load")
    await registry.close()
