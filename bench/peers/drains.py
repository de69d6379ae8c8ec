"""Drains: jobs that wait already, and how fast workers run them and the store says that they have ended."""

import time
from dataclasses import dataclass

from peers.figures import RSS, SERVER_CPU, WAL, WORKER_CPU, Found
from peers.session import Counted, Failed, Session, cpu_seconds, rss_mb, until
from postgres_setup import PostgresSetup

START_SECONDS = 30.0
LOOK_SECONDS = 0.005


@dataclass(frozen=True)
class Drain:
    """Jobs per second; `remark` says where it was stopped before the end."""

    rate: float
    jobs: int
    remark: str = ""


class Meter:
    """What the workers and the server of a drain have used since the first handler began."""

    def __init__(self, session: Session, setup: PostgresSetup | None) -> None:
        self._session = session
        self._server = setup if session.system.store == "PostgreSQL" else None
        self._written = self._server.wal_bytes() if self._server else 0
        self._used = self._served = 0.0

    def begin(self) -> None:
        self._used = cpu_seconds(self._session.pids())
        self._served = self._server.cpu_seconds() if self._server else 0.0

    def end(self, found: Found, jobs: int) -> None:
        """Microseconds and bytes per job."""
        pids = self._session.pids()
        each = 1e6 / max(jobs, 1)
        found.add(WORKER_CPU, (cpu_seconds(pids) - self._used) * each)
        found.add(RSS, rss_mb(pids))
        if self._server:
            found.add(SERVER_CPU, (self._server.cpu_seconds() - self._served) * each)
            found.add(WAL, (self._server.wal_bytes() - self._written) / max(jobs, 1))


def drain(session: Session, jobs: int, limit_seconds: float, meter: Meter | None = None) -> Drain:
    """Start the workers and let them run dry: from the first handler until the store says that no job is
    left. One that takes longer is stopped, and its rate is what was done by then."""
    with session.lefts() as lefts:
        session.start()
        first = _first(session)
        if meter:
            meter.begin()
        counted = _ran(session, jobs, first, limit_seconds)
        if counted.jobs < jobs:
            return _stopped(counted, jobs)
        ended = lefts.ended(max(5.0, first + limit_seconds - time.monotonic()))
    if ended is None:
        why = session.last_words("lefts.log")
        raise Failed(f"all handlers have begun, and the store says that jobs are left ({why})")
    return Drain(jobs / (max(ended, counted.last) - first), jobs)


def drain_some(session: Session, jobs: int, limit_seconds: float) -> Drain:
    """The same of the first so many, while others wait behind them. The rate is that of the second half:
    what was fetched before the first handler began, which may be thousands, is not in it."""
    session.forget()
    session.start()
    seen: list[tuple[float, int]] = []
    counted = _ran(session, jobs, _first(session), limit_seconds, seen)
    return Drain(settled_rate(seen), counted.jobs)


def settled_rate(seen: list[tuple[float, int]]) -> float:
    """Jobs per second from the sight of one half to the last sight; of the whole where that is one
    sight."""
    ended, jobs = seen[-1]
    for began, before in [*(one for one in seen if one[1] >= jobs / 2), seen[0], (ended - 1e-3, 0)]:
        if before < jobs and began < ended:
            return (jobs - before) / (ended - began)
    return 0.0


def _first(session: Session) -> float:
    """When the first handler began, of whatever worker."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if until(lambda: session.counted().jobs > 0, 0.5, LOOK_SECONDS):
            return session.counted().first
        session.check()
    raise Failed(f"no job has begun in {START_SECONDS:.0f} s: {session.last_words('w-1.log')}")


def _ran(
    session: Session,
    jobs: int,
    first: float,
    limit_seconds: float,
    seen: list[tuple[float, int]] | None = None,
) -> Counted:
    """What was counted when all have begun, or when the time is over; `seen` is told of it on the way."""
    while True:
        looked = time.monotonic()
        counted = session.counted()
        now = time.monotonic()
        if seen is not None:
            seen.append((now, counted.jobs))
        if counted.jobs >= jobs or now > first + limit_seconds:
            return counted
        if now - first > 2.0:
            session.check()
        time.sleep(max(LOOK_SECONDS, 10 * (now - looked)))


def _stopped(counted: Counted, jobs: int) -> Drain:
    seconds = counted.last - counted.first
    remark = f"stopped after {seconds:.0f} s at {counted.jobs:,} of {jobs:,}"
    return Drain(counted.jobs / max(seconds, 1e-6), counted.jobs, remark)
