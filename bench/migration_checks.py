"""What a store has after a migration, held against what was asked for, acknowledged and begun."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import apsw
import asyncpg

from holdfast.sdk.open import open_registry

SQL = """SELECT job.job_id, state.state, state.attempt, state.ended_at
FROM {0}job AS job JOIN {0}state AS state ON state.seq = job.seq"""
ENDED, LEASED = "succeeded", {"assigned", "running"}


@dataclass(frozen=True)
class Record:
    """What the store says of a job; `ended_at` is in seconds since 1970."""

    state: str
    attempt: int
    ended_at: float | None


@dataclass
class Findings:
    """What was found; `wrong` says what must not be."""

    jobs: int = 0
    acknowledged: int = 0
    states: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    lost: int = 0
    doubled: int = 0
    again: int = 0
    verified: int = 0
    verify_seconds: float = 0.0
    ended_at: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def expect(self, what: str, found: Iterable[object]) -> None:
        """Note what was found of something that must not be."""
        if several := list(found):
            self.wrong.append(f"{what}: {len(several):,}, such as {several[0]}")

    def longest_gap(self, since: float, until: float) -> float:
        """The longest time in which no job ended, of those that touch this time."""
        pairs = pairwise(self.ended_at)
        return max((later - at for at, later in pairs if later >= since and at <= until), default=0.0)

    def rate(self, since: float, until: float) -> float:
        """Jobs that ended in a second."""
        return sum(since <= at < until for at in self.ended_at) / (until - since)


async def check(url: str, folder: Path, asked: set[str], made: set[str]) -> Findings:
    """All that can be said against a store on which nobody works any more."""
    found = Findings(acknowledged=len(made))
    records = await _records(url)
    found.jobs = len(records)
    found.states = dict(Counter(record.state for record in records.values()))
    found.ended_at = sorted(record.ended_at for record in records.values() if record.ended_at)
    found.lost = len(made - records.keys())
    found.expect("acknowledged and lost", made - records.keys())
    found.expect("there, but never asked for", records.keys() - asked)
    leased = (job_id for job_id, record in records.items() if record.state in LEASED)
    found.expect("leased, and nobody works any more", leased)
    _check_starts(found, records, folder)
    registry = await open_registry(url)
    try:
        counts = {str(state): jobs for state, jobs in (await registry.counts()).items() if jobs}
        found.expect("counts that are not those of the jobs", counts.items() ^ found.states.items())
        start = time.monotonic()
        verification = await registry.verify()
        found.verify_seconds, found.verified = time.monotonic() - start, verification.jobs
        found.expect("records that their logs do not give", verification.mismatches)
        if not verification.equal or verification.jobs != found.jobs:
            found.wrong.append(
                f"verify: {verification.transitions:,} transitions, {verification.events:,} events"
            )
    finally:
        await registry.close()
    return found


def _check_starts(found: Findings, records: dict[str, Record], folder: Path) -> None:
    starts: Counter[tuple[str, int]] = Counter()
    for file in folder.glob("starts-*"):
        for line in file.read_text().splitlines():
            job_id, attempt = line.split()
            starts[job_id, int(attempt)] += 1
    begun = Counter(job_id for job_id, _ in starts)
    found.starts = starts.total()
    found.again = sum(times > 1 for times in begun.values())
    found.doubled = sum(times > 1 for times in starts.values())
    found.expect("attempts that began twice", (start for start, times in starts.items() if times > 1))
    beyond = (start for start in starts if start[0] not in records or start[1] > records[start[0]].attempt)
    found.expect("attempts that the record does not know", beyond)
    ended = (job_id for job_id, record in records.items() if record.state == ENDED)
    found.expect("succeeded, but never begun", (job_id for job_id in ended if job_id not in begun))


async def _records(url: str) -> dict[str, Record]:
    parts = urlparse(url)
    if parts.scheme == "sqlite":
        file = apsw.Connection(parts.path[1:], flags=apsw.SQLITE_OPEN_READONLY)
        rows = file.execute(SQL.format(""))
        found = {row[0]: Record(row[1], row[2], row[3] and row[3] / 1e6) for row in rows}
        file.close()
        return found
    connection = await asyncpg.connect(parts._replace(query="").geturl())
    try:
        schema = parse_qs(parts.query).get("schema", ["holdfast"])[0]
        read = await connection.fetch(SQL.format(f"{schema}."))
        return {row[0]: Record(row[1], row[2], row[3] and row[3].timestamp()) for row in read}
    finally:
        await connection.close()
