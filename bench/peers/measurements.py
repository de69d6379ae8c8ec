"""The measurements of one system: enqueues, drains, waits, claims beside many others, and recovery."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

import apsw

import verbs
from environments import Environment
from peers.drains import START_SECONDS, Meter, drain, drain_some
from peers.figures import (
    BULK,
    CLIENTS,
    CLIENTS_P99,
    DRAIN,
    IDLE_RSS,
    LONG_DRAIN,
    P50,
    P95,
    P99,
    RECOVERY,
    SINGLE,
    STORED,
    Found,
    behind,
)
from peers.session import Failed, Session, opened_session, rss_mb, until
from peers.size import Size
from peers.systems import System
from postgres_setup import PostgresSetup
from servers import Servers

CLIENTS_MANY = 64
WARM_WAITS = 3
FILL_SECONDS = 90.0
BULK_SECONDS, FEW_SECONDS, BULK_MOST = 15.0, 6.0, 150_000
_STORED = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
WHERE relkind IN ('r', 'm') AND nspname NOT IN ('pg_catalog', 'information_schema');
"""
NO_WAY = "not measured: no quick way to queue so many"


@dataclass(frozen=True)
class Measurements:
    """Every scene has a store and a folder of its own, which are removed."""

    servers: Servers
    setup: PostgresSetup | None
    folder: Path
    size: Size

    @contextmanager
    def scene(self, system: System, environment: Environment, name: str) -> Iterator[Session]:
        folder = Path(tempfile.mkdtemp(prefix=f"{system.key}-{name}-", dir=self.folder))
        try:
            with (
                self.servers.empty(system.store, folder) as url,
                opened_session(
                    Session(system, environment, url, folder, name, self.size.lease_seconds)
                ) as session,
            ):
                yield session
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def one_round(self, system: System, environment: Environment, found: Found) -> None:
        """Bulk, drain and waits with idle workers; then single calls, whose jobs are not run."""
        jobs, drained = self.jobs_of(found, self.size.jobs), False
        with self.scene(system, environment, "drain") as session:
            if not found.settings:
                found.settings = str(session.ask("settings"))
                found.recovery = str(session.ask("recovery"))
            empty = self.stored(session)
            if attempt(found, [BULK, DRAIN], self._bulk, session, found, jobs):
                self.vacuum(session)
                drained = attempt(found, [DRAIN], self._drain, session, found, jobs)
            emptied = drained and session.counted().jobs >= jobs
            if emptied and empty is not None:
                self.vacuum(session)
                found.add(STORED, ((self.stored(session) or 0) - empty) / jobs)
            if emptied:
                attempt(found, [P50, P95, P99, IDLE_RSS], self._waits, session, found)
            session.stop()
            attempt(found, [SINGLE], self._awaited, session, found, SINGLE)
            many = str(CLIENTS_MANY)
            attempt(found, [CLIENTS, CLIENTS_P99], self._awaited, session, found, CLIENTS, many)
        if not emptied:
            with self.scene(system, environment, "waits") as session:
                session.start()
                attempt(found, [P50, P95, P99, IDLE_RSS], self._waits, session, found)

    def jobs_of(self, found: Found, jobs: int) -> int:
        """Fewer for whoever was stopped in the round before."""
        rate = found.best(DRAIN)
        if rate is None or DRAIN not in found.remarks:
            return jobs
        return min(jobs, max(1_000, int(rate * self.size.drain_seconds / 3)))

    def _bulk(self, session: Session, found: Found, jobs: int) -> None:
        answer = session.ask("bulk", str(jobs))
        if answer is None:
            raise Failed("`bulk` is not offered")
        found.add(BULK, answer["count"] / answer["seconds"])

    def _drain(self, session: Session, found: Found, jobs: int) -> None:
        meter = Meter(session, self.setup)
        done = drain(session, jobs, self.size.drain_seconds, meter)
        meter.end(found, done.jobs)
        found.add(DRAIN, done.rate)
        if jobs != self.size.jobs:
            found.remarks[DRAIN] += f", then with {jobs:,}"
        elif done.remark:
            found.remarks[DRAIN] = done.remark

    def _waits(self, session: Session, found: Found) -> None:
        """From before an enqueue to the handler, in workers that have nothing to do."""
        session.forget()
        waited(session)
        session.forget()
        waits = verbs.spread([wait / 1000 for wait in waited(session, self.size.waits)])
        found.add(P50, waits.p50)
        found.add(P95, waits.p95)
        found.add(P99, waits.p99)
        found.add(IDLE_RSS, rss_mb(session.pids()))

    def _awaited(self, session: Session, found: Found, verb: str, *words: str) -> None:
        """Asked twice where the first time was too short to tell."""
        wanted = self.size.single_seconds
        jobs = int((found.best(verb) or 1_000) * wanted)
        for _ in range(2):
            answer = session.ask(verb, *words, str(max(jobs, CLIENTS_MANY)))
            if answer is None:
                return found.lack(verb, "not offered")
            rate = answer["count"] / answer["seconds"]
            if answer["seconds"] > wanted / 2:
                break
            jobs = int(rate * wanted)
        found.add(verb, rate)
        if "p99_ms" in answer:
            found.add(CLIENTS_P99, answer["p99_ms"])
        return None

    def long_drain(self, system: System, environment: Environment, found: Found) -> None:
        """Only where the short one was quick."""
        rate = found.best(DRAIN)
        if rate is None:
            return found.lack(LONG_DRAIN, "not run")
        expected = self.size.long_jobs / rate
        if self.size.jobs / rate > self.size.long_if_seconds:
            return found.lack(LONG_DRAIN, f"not run, would take {expected:.0f} s")

        def act() -> None:
            with self.scene(system, environment, "drain") as session:
                if not self._fill(session, found, self.size.long_jobs, BULK_SECONDS):
                    found.lack(LONG_DRAIN, NO_WAY)
                    return
                self.vacuum(session)
                done = drain(session, self.size.long_jobs, 2 * expected + 10)
                found.add(LONG_DRAIN, done.rate)
                if done.remark:
                    found.remarks[LONG_DRAIN] = done.remark

        attempt(found, [LONG_DRAIN], act)
        return None

    def claims(self, system: System, environment: Environment, found: Found) -> None:
        """Drains of a few jobs with ever more behind them, in one store."""
        names = [behind(level) for level in self.size.levels]

        def act() -> None:
            with self.scene(system, environment, "claims") as session:
                for level in self.size.levels:
                    for _ in range(self.size.behind_runs):
                        if not self._fill(session, found, level + self.size.behind_jobs, FEW_SECONDS):
                            return
                        self.vacuum(session)
                        done = drain_some(session, self.size.behind_jobs, self.size.behind_seconds)
                        session.stop()
                        found.add(behind(level), done.rate)

        attempt(found, names, act)
        for name in names:
            found.lack(name, NO_WAY)

    def _fill(self, session: Session, found: Found, jobs: int, seconds: float) -> bool:
        """Make it so many that wait; by its own bulk enqueue where no other way is offered, and where that
        would not take longer than this."""
        wanted = jobs - _left(session)
        if wanted <= 0:
            return True
        session.ask("fill", str(wanted), seconds=FILL_SECONDS)
        wanted = jobs - _left(session)
        if wanted > 0:
            rate = found.best(BULK) or 0.0
            if jobs > BULK_MOST or wanted > rate * seconds:
                return False
            session.ask("bulk", str(wanted), seconds=FILL_SECONDS)
        return True

    def vacuum(self, session: Session) -> None:
        """Nobody waits for autovacuum to come by."""
        if session.system.store == "PostgreSQL" and self.setup:
            self.setup.server.sql("VACUUM ANALYZE;", urlsplit(session.url).path.strip("/"))

    def stored(self, session: Session) -> int | None:
        """Bytes of all tables and indexes, or of the file with its log in it."""
        if session.system.store == "PostgreSQL" and self.setup:
            return int(self.setup.server.sql(_STORED, urlsplit(session.url).path.strip("/")))
        path = Path(session.url.removeprefix("sqlite:///"))
        if session.system.store == "SQLite" and path.exists():
            connection = apsw.Connection(str(path))
            connection.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
            connection.close()
            return path.stat().st_size
        return None

    def recovery(self, system: System, environment: Environment, found: Found, leave: Event) -> None:
        """Kill -9 the worker that has the job, beside another that is idle. The store goes when all may
        leave: removing a database is work for the server, which others are measured on."""

        def act() -> None:
            with self.scene(system, environment, "recovery") as session:
                try:
                    self._recovered(session, found)
                finally:
                    (session.folder / "go").touch()
                    session.kill()
                    leave.wait(self.size.soak_seconds)

        attempt(found, [RECOVERY], act)

    def _recovered(self, session: Session, found: Found) -> None:
        session.start(2)
        waited(session)
        session.ask("hold")
        if not until(lambda: bool(session.held()), START_SECONDS, 0.1):
            raise Failed("the job that is to be interrupted has not begun")
        time.sleep(1.0)
        known, killed_at = session.held(), time.monotonic()
        session.workers[known[-1]["worker"]].kill()
        if until(lambda: len(session.held()) > len(known), self.size.recovery_seconds, 0.1):
            found.add(RECOVERY, session.held()[len(known)]["at"] - killed_at)
        else:
            found.lack(RECOVERY, f"> {self.size.recovery_seconds:.0f} s")


def attempt(found: Found, names: list[str], act: Callable[..., None], *given: object) -> bool:
    """A step that goes wrong costs its figures, and nothing else."""
    try:
        act(*given)
    except Exception as problem:
        found.fail(str(problem) or repr(problem), *names)
        return False
    return True


def waited(session: Session, times: int = WARM_WAITS) -> list[float]:
    """So many jobs now and then, and how long each waited; few of them show that the workers are there."""
    session.ask("waits", str(times))
    until(lambda: len(session.waits()) >= times, START_SECONDS)
    waits = session.waits()
    if len(waits) < times:
        session.check()
        raise Failed(f"of {times} jobs {len(waits)} have begun in {START_SECONDS:.0f} s")
    return waits


def _left(session: Session) -> int:
    return int(session.ask("left"))
