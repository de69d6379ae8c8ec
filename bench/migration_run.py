"""One run of the migration benchmark: a store is made, worked on, migrated meanwhile, and drained."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import holdfast
import migration_app
from environments import SOURCES, Environment
from holdfast import State
from migration_checks import Findings, check
from migration_processes import DiskSampler, NotReached, Process, Side, await_true, disk_bytes
from verify.postgres_server import PostgresServer

RATE = 100.0
SLOTS = 500
PART_BEFORE = 0.1
"""How much of the store the earlier workers have done when the first process of ours comes."""
HELD = 20
CLIENT_SECONDS = 3.0
DRAIN_SECONDS = 120.0
PATIENCE_SECONDS = 600.0
OLD_PATIENCE_SECONDS = 45.0
"""How long an earlier process may go on after the migration before it is stopped."""

SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
"""Else PostgreSQL as it comes, with its autovacuum."""


@dataclass
class Place:
    """One store: its URL, and the folder with its files."""

    name: str
    url: str
    data: Path
    workers: int
    server: PostgresServer | None = None

    def wal_bytes(self) -> int:
        return int(self.server.sql("SELECT pg_current_wal_insert_lsn() - '0/0';")) if self.server else 0


@dataclass
class Run:
    """What was seen on one store. Moments are by `time.time()`."""

    place: str
    jobs: int
    fill_seconds: float = 0.0
    opening_at: float = 0.0
    ready_at: float = 0.0
    open_seconds: float = 0.0
    disk: tuple[int, int, int] = (0, 0, 0)
    wal: int = 0
    old: list[Process] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    clients: list[Process] = field(default_factory=list)
    restarts: list[str] = field(default_factory=list)
    asked_again: int = 0
    notes: list[str] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)

    @property
    def seconds(self) -> float:
        """From the start of the first process of ours until its client had the store open."""
        return self.ready_at - self.opening_at

    @property
    def gap(self) -> float:
        return self.findings.longest_gap(self.opening_at, self.ready_at + 5)

    def waits(self, name: str) -> list[float]:
        """How long calls of such clients took, from the first try to the acknowledgement."""
        return sorted(
            float(line[1]) for p in self.clients if p.name.startswith(name) for line in p.lines("made")
        )


@contextmanager
def postgres_place() -> Iterator[Place]:
    with PostgresServer(15, settings=SETTINGS) as server:
        yield Place("PostgreSQL", server.url(), server.data, 2, server)


@contextmanager
def sqlite_place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="holdfast-migration-") as name:
        yield Place("SQLite", f"sqlite:///{Path(name) / 'jobs.db'}", Path(name), 2)


PLACES = {"sqlite": sqlite_place, "postgres": postgres_place}


def measure(place: Place, before: Environment, folder: Path, jobs: int) -> Run:
    """The store is made, worked on, migrated while that goes on, and drained."""
    run = Run(place.name, jobs)
    now = Environment([sys.executable], {**before.variables, "PYTHONPATH": str(SOURCES)})
    old, new = Side("old", before, place.url, folder), Side("new", now, place.url, folder)
    try:
        run.fill_seconds = old.fill("fill", jobs)
        say(f"{place.name}: {jobs:,} jobs made in {run.fill_seconds:.0f} s")
        _work_before(run, old, place, jobs)
        _migrate(run, new, place)
        _old_ends(run, old, new)
        _drain(run, new, place, jobs)
    finally:
        for process in old.began + new.began:
            process.stop()
    if place.server:
        run.notes += _logged(place.server)
    run.old, run.clients = old.began, [old.began[-1], *(p for p in new.began if "client" in p.name)]
    asked, made = _ids(run, jobs)
    run.findings = asyncio.run(check(place.url, folder, asked, made))
    return run


def _work_before(run: Run, old: Side, place: Place, jobs: int) -> None:
    workers = [old.worker(SLOTS) for _ in range(place.workers)]
    part = jobs * PART_BEFORE
    await_true(lambda: _begun(old.folder) >= part, f"job {part:,.0f}", PATIENCE_SECONDS)
    old.fill("hold", HELD)
    client = old.client(RATE, [])
    await_true(lambda: len(client.lines("made")) > RATE, "the earlier client's jobs", PATIENCE_SECONDS)
    for process in (*workers, client):
        if process.code is not None:
            raise NotReached(f"{process.name} ended:\n{process.said[-2000:]}")


def _migrate(run: Run, new: Side, place: Place) -> None:
    wal = place.wal_bytes()
    with DiskSampler(place.data) as disk:
        run.opening_at = time.time()
        client = new.client(RATE, [])
        workers = [new.worker(SLOTS) for _ in range(place.workers)]

        def opened() -> bool:
            for number, worker in enumerate(workers):
                if worker.code is not None:  # as a service manager would
                    run.restarts.append(worker.last_error)
                    workers[number] = new.worker(SLOTS)
            if client.code is not None:
                raise NotReached(f"the client ended:\n{client.said[-2000:]}")
            return bool(client.lines("open"))

        await_true(opened, "the migration", PATIENCE_SECONDS)
        run.ready_at = time.time()
    run.open_seconds = float(client.lines("open")[0][0])
    run.disk = (disk.first, disk.most, disk_bytes(place.data))
    run.wal = place.wal_bytes() - wal
    say(f"{place.name}: migrated in {run.seconds:.1f} s")


def _old_ends(run: Run, old: Side, new: Side) -> None:
    """Wait for the earlier processes, or stop them, and ask again for what their client has not heard of."""
    try:
        await_true(
            lambda: all(p.ended_at for p in old.began),
            "the end of the earlier processes",
            OLD_PATIENCE_SECONDS,
        )
    except NotReached:
        run.stopped = [process.name for process in old.began if not process.ended_at]
        for process in old.began:
            process.stop()
    client = old.began[-1]
    unknown = {line[0] for line in client.lines("asked")} - {line[0] for line in client.lines("made")}
    run.asked_again = len(unknown)
    new.client(RATE, sorted(unknown))


def _drain(run: Run, new: Side, place: Place, jobs: int) -> None:
    time.sleep(CLIENT_SECONDS)
    for process in new.began:
        if "client" in process.name:
            process.stop()
    delayed = len(range(1, jobs, migration_app.DELAYED))
    start = time.monotonic()
    try:
        await_true(lambda: asyncio.run(_left(place.url)) <= delayed, "the end of the jobs", DRAIN_SECONDS)
    except NotReached:
        run.notes.append(f"Not all jobs had ended after {DRAIN_SECONDS:.0f} s: the others are still queued.")
    say(f"{place.name}: drained, {time.monotonic() - start:.0f} s after the last client")


async def _left(url: str) -> int:
    async with holdfast.AsyncClient(url) as client:
        counts = await client.counts()
    await asyncio.sleep(0.5)
    return sum(counts.get(state, 0) for state in (State.QUEUED, State.ASSIGNED, State.RUNNING))


def _begun(folder: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in folder.glob("starts-*"))


def _ids(run: Run, jobs: int) -> tuple[set[str], set[str]]:
    """The jobs that were asked for, and of these the acknowledged ones."""
    asked = {f"job-{number}" for number in range(jobs)} | {f"slow-{number}" for number in range(HELD)}
    made = set(asked)
    for client in run.clients:
        asked |= {line[0] for line in client.lines("asked")}
        made |= {line[0] for line in client.lines("made")}
    return asked, made


def _logged(server: PostgresServer) -> list[str]:
    """What PostgreSQL noted of waits that were cut short."""
    words = ("deadlock detected", "lock timeout", "canceling autovacuum task")
    lines = server.log.read_text().splitlines()
    found = {
        word: sum(f"ERROR:  {word}" in line or f"due to {word}" in line for line in lines) for word in words
    }
    return [f"PostgreSQL's log: {times} x “{word}”" for word, times in found.items() if times]


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)
