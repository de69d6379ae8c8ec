"""What is measured of some systems only: what a job leaves in the store, our worker as it is without options,
the rate beside somebody's snapshot, and single calls of ours beside a crowd."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
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
LOAD_SECONDS = 10.0
QUICKER = 20
TOO_SLOW = "not run: the load would keep it busy"
DRAINS, DRAIN_SECONDS, FEWEST = 2, 2.0, 1_000
LOAD_SETTLE_SECONDS = 30.0

Turn = tuple[System, Environment, Found]


@dataclass(frozen=True)
class Pair:
    """Two stores with the same past, of one of which somebody holds a snapshot."""

    free: Session
    held: Session
    found: Found


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
    """Two stores of each; another session holds a snapshot of one of them while jobs come in evenly and are
    run in all at the same time. Then both are drained in turns, the snapshots still held."""
    size = measurements.size
    with ExitStack() as stack:
        pairs: list[Pair] = []
        for system, environment, found in turns:
            if (found.best(DRAIN) or 0.0) < QUICKER * size.snapshot_rate:
                found.lack(UNDISTURBED, TOO_SLOW)
                found.lack(HELD, TOO_SLOW)
                continue
            opened = partial(_pair, measurements, stack, pairs)
            attempt(found, [UNDISTURBED, HELD], opened, system, environment, found)
        say(f"snapshots of {len(pairs)} stores, held for {size.snapshot_seconds:.0f} s")
        _loaded(pairs, size.snapshot_seconds, size.snapshot_rate)
        for pair in pairs:
            if attempt(pair.found, [UNDISTURBED, HELD], _in_turns, measurements, pair):
                rates = [pair.found.best(name) or 0.0 for name in (UNDISTURBED, HELD)]
                say(f"beside a snapshot: {pair.held.system.title}: {rates[1]:,.0f} of {rates[0]:,.0f}")


def _pair(
    measurements: Measurements,
    stack: ExitStack,
    pairs: list[Pair],
    system: System,
    environment: Environment,
    found: Found,
) -> None:
    """A first drain makes the files of each, and does not count."""
    free, held = (
        stack.enter_context(measurements.scene(system, environment, name)) for name in ("free", "held")
    )
    for session in (free, held):
        _drained(measurements, session, _jobs(measurements, found))
    stack.enter_context(snapshot(held))
    pairs.append(Pair(free, held, found))


def _jobs(measurements: Measurements, found: Found) -> int:
    """Fewer for whoever is slow: drains of some seconds tell enough."""
    rate = found.best(DRAIN) or 0.0
    return min(measurements.size.snapshot_jobs, max(FEWEST, int(rate * DRAIN_SECONDS)))


def _in_turns(measurements: Measurements, pair: Pair) -> None:
    jobs = _jobs(measurements, pair.found)
    for _ in range(DRAINS):
        pair.found.add(UNDISTURBED, _drained(measurements, pair.free, jobs))
        pair.found.add(HELD, _drained(measurements, pair.held, jobs))


def _drained(measurements: Measurements, session: Session, jobs: int) -> float:
    session.forget()
    session.ask("bulk", str(jobs))
    measurements.vacuum(session)
    try:
        return drain(session, jobs, measurements.size.drain_seconds).rate
    finally:
        session.stop()


def _loaded(pairs: list[Pair], seconds: float, rate: int) -> None:
    """So many jobs a second for each, in portions, one store after the other, while its workers work. In the
    end all workers leave, so that nobody's idle ones are beside the drains that follow."""
    portion = max(1, int(rate * LOAD_SECONDS))
    sessions = [(session, pair.found) for pair in pairs for session in (pair.free, pair.held)]
    for session, _ in sessions:
        session.forget()
        session.start()
    ends = time.monotonic() + seconds
    while sessions and time.monotonic() < ends:
        began = time.monotonic()
        for session, found in sessions:
            attempt(found, [HELD], session.ask, "bulk", str(portion))
        time.sleep(max(0.0, min(began + LOAD_SECONDS, ends) - time.monotonic()))
    for session, found in sessions:
        attempt(found, [HELD], _emptied, session)
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
