"""Alarms: when jobs have to be looked at. Inside a write transaction.

One alarm is for many jobs: those of one commit. It goes off when the first of them may be due. A job whose
lease was renewed since is not due yet, and gets a new alarm.
"""

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

import apsw
import msgspec

from holdfast.stores.sqlite.statements import statement

LOOKED_AT_MAX = 20_000
"""How many jobs are looked at in one commit, apart from those of one alarm; the others stay for the next."""


@dataclass(frozen=True)
class DueJobs:
    """The jobs of the alarms that went off: `times` has when each of them is due, if it still is at all, and
    `chosen` those that are decided on now, the longest overdue first."""

    times: Mapping[int, int]
    chosen: list[int]


def take_due(connection: apsw.Connection, now: int, limit: int) -> DueJobs:
    """Remove the alarms that have gone off, and return their jobs. The caller sets new alarms for them."""
    gone: list[int] = []
    seqs: list[int] = []
    until = now
    with closing(connection.execute(statement("select_due_alarms"), (now,))) as alarms:
        for number, due_at, jobs in alarms:
            if len(seqs) >= LOOKED_AT_MAX:
                until = due_at  # a job of this alarm may be due before one that is due later than this
                break
            gone.append(number)
            seqs += msgspec.json.decode(jobs, type=list[int])
    if not gone:
        return DueJobs({}, [])
    times = dict(connection.execute(statement("select_due_times"), (_text(seqs),)))
    connection.execute(statement("delete_alarms"), (_text(gone),)).fetchall()
    due = sorted((due_at, seq) for seq, due_at in times.items() if due_at <= until)
    return DueJobs(times, [seq for _, seq in due[:limit]])


def set_alarm(connection: apsw.Connection, times: Mapping[int, int]) -> None:
    """Set one alarm for all these jobs, at the time when the first of them is due."""
    if times:
        connection.execute(statement("insert_alarm"), (min(times.values()), _text(times))).fetchall()


def _text(numbers: Iterable[int]) -> str:
    return msgspec.json.encode(list(numbers)).decode()
