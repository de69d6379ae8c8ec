"""The soak: our two stores side by side under a steady load, and what grows in that time."""

import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import verbs
from environments import Environment
from peers.measurements import Measurements, waited
from peers.session import Failed, Session, cpu_seconds, rss_mb, until
from peers.size import Size
from peers.sizes import Sizes, postgres_sizes, sqlite_sizes
from peers.systems import System

SETTLE_SECONDS = 30.0


@dataclass(frozen=True)
class Mark:
    """What was there so many seconds after the beginning; waits and CPU are of the time since the mark
    before."""

    seconds: float
    jobs: int
    p50_ms: float | None
    p99_ms: float | None
    most_ms: float | None
    rss_mb: float
    cpu_percent: float
    sizes: Sizes


@dataclass
class Soak:
    title: str
    rate: int
    marks: list[Mark] = field(default_factory=list)
    sent: int | None = None
    failures: list[str] = field(default_factory=list)


@dataclass
class Run:
    """One store under way."""

    session: Session
    soak: Soak
    sizes: Callable[[], Sizes]
    size: Size
    producer: "subprocess.Popen[str] | None" = None
    jobs: int = 0
    _used: float = 0.0
    _read: dict[str, int] = field(default_factory=dict)
    _began: float = 0.0

    def begin(self) -> None:
        self.session.new_waits(self._read)
        self._used, self._began = cpu_seconds(self.session.pids()), time.monotonic()
        words = ("soak", f"{self.size.soak_seconds}", f"{self.size.soak_rate}")
        self.producer = self.session.process(*words, log="soak.log")

    def mark(self) -> None:
        now, pids = time.monotonic() - self._began, self.session.pids()
        waits, used = self.session.new_waits(self._read), cpu_seconds(pids)
        spread = verbs.spread([wait / 1000 for wait in waits]) if waits else None
        before = self.soak.marks[-1].seconds if self.soak.marks else 0.0
        self.jobs += len(waits)
        self.soak.marks.append(
            Mark(
                seconds=now,
                jobs=self.jobs,
                p50_ms=spread.p50 if spread else None,
                p99_ms=spread.p99 if spread else None,
                most_ms=spread.most if spread else None,
                rss_mb=rss_mb(pids),
                cpu_percent=100 * (used - self._used) / max(now - before, 1e-6),
                sizes=self.sizes(),
            )
        )
        self._used = used

    def end(self) -> None:
        """Every job that was sent has been run, and the store says so."""
        assert self.producer
        said, _ = self.producer.communicate(timeout=SETTLE_SECONDS)
        if self.producer.returncode != 0:
            raise Failed(f"the producer failed: {self.session.last_words('soak.log')}")
        self.soak.sent = int(said.splitlines()[-1])
        if not until(lambda: self.session.ask("left") == 0, SETTLE_SECONDS, 0.2):
            raise Failed("not all jobs have ended")
        self.jobs += len(self.session.new_waits(self._read))
        if self.jobs != self.soak.sent:
            raise Failed(f"{self.soak.sent} jobs were sent and {self.jobs} were run")

    def close(self) -> None:
        if self.producer:
            self.producer.kill()
            self.producer.communicate()


def soak(
    measurements: Measurements,
    systems: list[tuple[System, Environment]],
    say: Callable[[str], None],
) -> list[Soak]:
    """All at the same time, each with its own workers and producer."""
    size = measurements.size
    soaks = [Soak(system.title, size.soak_rate) for system, _ in systems]
    with ExitStack() as stack:
        runs: list[Run] = []
        for (system, environment), told in zip(systems, soaks, strict=True):
            try:
                session = stack.enter_context(measurements.scene(system, environment, "soak"))
                runs.append(_ready(measurements, session, told))
                stack.callback(runs[-1].close)
            except Exception as problem:
                told.failures.append(f"the soak did not begin: {problem}")
        began, number = time.monotonic(), 0
        for run in list(runs):
            _tried(run, runs, run.begin)
        while runs and number * size.soak_mark_seconds < size.soak_seconds:
            number += 1
            moment = began + min(number * size.soak_mark_seconds, size.soak_seconds)
            time.sleep(max(0.0, moment - time.monotonic()))
            for run in list(runs):
                _tried(run, runs, run.mark)
            say("soak: " + ", ".join(f"{run.jobs:,} jobs" for run in runs))
        for run in list(runs):
            _tried(run, runs, run.end)
    return soaks


def _ready(measurements: Measurements, session: Session, told: Soak) -> Run:
    def sizes() -> Sizes:
        jobs = int(session.ask("kept"))
        if session.system.store == "SQLite":
            return sqlite_sizes(session.url, jobs)
        assert measurements.setup
        return postgres_sizes(measurements.setup.server, session.url, jobs)

    session.start()
    waited(session)
    return Run(session, told, sizes, measurements.size)


def _tried(run: Run, runs: list[Run], act: Callable[[], None]) -> None:
    """What goes wrong ends the soak of this store only."""
    try:
        run.session.check()
        act()
    except Exception as problem:
        run.soak.failures.append(str(problem) or repr(problem))
        runs.remove(run)
