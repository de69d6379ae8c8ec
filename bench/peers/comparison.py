"""What is measured of some systems only: what a job leaves in the store, our worker as it is without options,
the rate beside somebody's snapshot, and single calls of ours beside a crowd."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import apsw
import asyncpg

from environments import Environment
from peers.drains import drain
from peers.figures import DEFAULT_DRAIN, DRAIN, HELD, UNDISTURBED, Found
from peers.measurements import Measurements, attempt
from peers.session import Session
from peers.systems import System

CROWD_SECONDS_PER_JOB, CROWD_SECONDS = 1 / 2_000, 120.0
LOAD_SECONDS = 5.0
DRAINS, DRAIN_SECONDS, FEWEST = 2, 2.0, 1_000
LOAD_SETTLE_SECONDS = 30.0

Turn = tuple[System, Environment, Found]


def default_drain(measurements: Measurements, system: System, environment: Environment, found: Found) -> None:
    """The same jobs by workers that are started without `-c`."""

    def act() -> None:
        with measurements.scene(system, environment, "default") as session:
            found.add(DEFAULT_DRAIN, _drained(measurements, session, measurements.size.jobs))

    attempt(found, [DEFAULT_DRAIN], act)


def crowd(measurements: Measurements, system: System, environment: Environment, found: Found) -> None:
    """Its program makes the crowd and answers with one figure for each question."""
    size = measurements.size

    def act() -> None:
        words = (size.crowd_jobs, size.unfit_jobs, size.crowd_claims, size.page_seconds)
        limit = CROWD_SECONDS + (size.crowd_jobs + 3 * size.unfit_jobs) * CROWD_SECONDS_PER_JOB
        with measurements.scene(system, environment, "crowd") as session:
            for name, value in session.ask("crowd", *map(str, words), seconds=limit).items():
                found.add(name, value)

    attempt(found, ["claim_queued_ms"], act)


def beside_snapshots(measurements: Measurements, turns: list[Turn], say: Callable[[str], None]) -> None:
    """Drains of each; then a session holds a snapshot of each store while jobs come in evenly and are run,
    in all of them at the same time; then drains of each again, with the snapshots still held."""
    size = measurements.size
    with ExitStack() as stack:
        ready: list[tuple[Session, Found]] = []
        for system, environment, found in turns:
            opened = partial(_undisturbed, measurements, stack, ready)
            attempt(found, [UNDISTURBED, HELD], opened, system, environment, found)
        with ExitStack() as holders:
            for session, _ in ready:
                holders.enter_context(snapshot(session))
            say(f"snapshots of {len(ready)} stores are held for {size.snapshot_seconds:.0f} s")
            _loaded(ready, size.snapshot_seconds, size.snapshot_rate)
            for session, found in ready:
                if attempt(found, [HELD], _disturbed, measurements, session, found):
                    rates = f"{found.figures[UNDISTURBED][-1]:,.0f}, then {found.figures[HELD][-1]:,.0f}"
                    say(f"beside a snapshot: {session.system.title}: {rates}")


def _undisturbed(
    measurements: Measurements,
    stack: ExitStack,
    ready: list[tuple[Session, Found]],
    system: System,
    environment: Environment,
    found: Found,
) -> None:
    """A first drain makes its files and does not count."""
    session = stack.enter_context(measurements.scene(system, environment, "snapshot"))
    jobs = _jobs(measurements, found)
    _drained(measurements, session, jobs)
    for _ in range(DRAINS):
        found.add(UNDISTURBED, _drained(measurements, session, jobs))
    ready.append((session, found))


def _jobs(measurements: Measurements, found: Found) -> int:
    """Fewer for whoever is slow: drains of some seconds tell enough."""
    rate = found.best(DRAIN) or 0.0
    return min(measurements.size.snapshot_jobs, max(FEWEST, int(rate * DRAIN_SECONDS)))


def _disturbed(measurements: Measurements, session: Session, found: Found) -> None:
    jobs = _jobs(measurements, found)
    for _ in range(DRAINS):
        found.add(HELD, _drained(measurements, session, jobs))


def _drained(measurements: Measurements, session: Session, jobs: int) -> float:
    session.forget()
    session.ask("bulk", str(jobs))
    measurements.vacuum(session)
    try:
        return drain(session, jobs, measurements.size.drain_seconds).rate
    finally:
        session.stop()


def _loaded(ready: list[tuple[Session, Found]], seconds: float, rate: int) -> None:
    """So many jobs a second for each, in portions, one system after the other, while its workers work. In
    the end all workers leave, so that nobody's idle ones are beside the drains that follow."""
    portion = max(1, int(rate * LOAD_SECONDS))
    for session, _ in ready:
        session.forget()
        session.start()
    ends = time.monotonic() + seconds
    while ready and time.monotonic() < ends:
        began = time.monotonic()
        for session, found in ready:
            attempt(found, [HELD], session.ask, "bulk", str(portion))
        time.sleep(max(0.0, min(began + LOAD_SECONDS, ends) - time.monotonic()))
    for session, found in ready:
        attempt(found, [HELD], _emptied, session)
    for session, _ in ready:
        session.stop()


def _emptied(session: Session) -> None:
    deadline = time.monotonic() + LOAD_SETTLE_SECONDS
    while session.ask("left") and time.monotonic() < deadline:
        time.sleep(0.5)


@contextmanager
def snapshot(session: Session) -> Iterator[None]:
    """Another session reads within a transaction that it leaves open."""
    if session.system.store == "SQLite":
        connection = apsw.Connection(session.url.removeprefix("sqlite:///"))
        connection.execute("BEGIN; SELECT count(*) FROM sqlite_schema").fetchall()
        try:
            yield
        finally:
            connection.close()
    elif session.system.store == "PostgreSQL":
        with asyncio.Runner() as runner:
            connected = runner.run(asyncpg.connect(session.url))
            text = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class"
            runner.run(connected.execute(text))
            try:
                yield
            finally:
                runner.run(connected.close())
    else:
        yield
