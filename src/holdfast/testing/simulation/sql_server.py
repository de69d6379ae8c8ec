"""A transactional store's own side in real SQL: the SQLite store's statements, without its threads."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import apsw

from holdfast.core.access import Key
from holdfast.core.event import Event
from holdfast.core.job import Job, Resource
from holdfast.core.state import State
from holdfast.ports import (
    Census,
    Clock,
    Decision,
    Filter,
    HistoryPage,
    Ids,
    Page,
    Pruned,
    Slice,
    Work,
)
from holdfast.stores.postgres.server_time import ServerTime
from holdfast.stores.sqlite import committing, reading
from holdfast.stores.sqlite.clock import carry
from holdfast.stores.sqlite.connection import migrate
from holdfast.stores.sqlite.pruning import prune
from holdfast.testing.simulation.commit import Commit
from holdfast.testing.simulation.witness import Witness

T = TypeVar("T")

EPOCH_OF_THE_FEED = 0


class Shown(committing.Commit):
    """A commit that shows what it writes, job by job, in the order in which it writes."""

    def __init__(self, connection: apsw.Connection, works: Sequence[Work], now: datetime) -> None:
        super().__init__(connection, works, now)
        self.commits: list[Commit] = []
        self.others: list[Event] = []

    def _write(self) -> None:
        batch = self._batch
        written = {**batch.updated, **batch.created, **batch.touched}
        events = [*batch.events, *(e for some in batch.published for e in some), *batch.facts]
        for job_id, job in written.items():
            mine = [event for event in events if event.job_id == job_id]
            self.commits.append(Commit(batch.stored.get(job_id), job, mine, batch.now))
        self.others += [event for event in events if event.job_id not in written]
        super()._write()


class SqlServer:
    """The tables in memory, one transaction at a time. Whatever it commits, the witness sees."""

    def __init__(self, clock: Clock, ids: Ids, witness: Witness) -> None:
        self._clock = clock
        self._time = ServerTime(clock)
        self._secret = ids.secret()
        self._witness = witness
        self._connection = apsw.Connection(":memory:")
        self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        migrate(self._connection, Path(":memory:"))
        self.listeners: list[Callable[[], None]] = []

    def _transaction(self, work: Callable[[], T]) -> T:
        self._connection.execute("BEGIN IMMEDIATE").fetchall()
        try:
            answer = work()
        except BaseException:
            self._connection.execute("ROLLBACK").fetchall()
            raise
        self._connection.execute("COMMIT").fetchall()
        return answer

    def notice(self) -> None:
        """Carry over what the clock has measured, if it was set: before anything is decided by it."""
        asked, now = self._time.ask(), self._clock.now()
        if not self._time.hear(now, asked) and (step := self._time.step(now, asked)):
            self._transaction(lambda: carry(self._connection, step))
            self._time.accept(now, asked, "")

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        self.notice()
        shown = Shown(self._connection, works, self._clock.now())
        answers = self._transaction(shown.run)
        for commit in shown.commits:
            self._witness.committed(commit)
        if shown.others:
            self._witness.recorded(shown.others)
        if shown.commits or shown.others:
            for listener in self.listeners:
                listener()
        return answers

    async def record(self, events: Sequence[Event]) -> int:
        fresh = [event for event in events if event.event_id not in self._witness.seen]
        commit = committing.Commit(self._connection, (), self._clock.now())
        count = self._transaction(lambda: commit.record(events))
        self._witness.recorded(fresh)
        return count

    async def prune(self, *, ended_before: datetime, output_before: datetime, limit: int) -> Pruned:
        return self._transaction(
            lambda: prune(self._connection, ended_before, output_before, limit)
        )

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        return reading.get(self._connection, job_ids)

    async def list_jobs(
        self, which: Filter, *, after: str | None, limit: int, newest: bool = False
    ) -> Page:
        return reading.list_jobs(self._connection, which, after, limit, newest=newest)

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        return reading.counts(self._connection, queue)

    async def census(self, limit: int) -> Census:
        return reading.census(self._connection, limit)

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        return reading.histories(self._connection, job_ids)

    async def history(self, job_id: str, *, after: str | None, limit: int) -> HistoryPage:
        return reading.history(self._connection, job_id, after, limit)

    async def published(self, job_id: str, token: int, *, first: int) -> list[int]:
        return reading.published(self._connection, job_id, token, first)

    async def log(
        self, job_id: str, *, after: str | None, limit: int, output: bool = True
    ) -> Slice:
        return reading.log(self._connection, EPOCH_OF_THE_FEED, job_id, after, limit, output=output)

    async def feed(self, *, after: str | None, limit: int) -> Slice:
        return reading.feed(self._connection, EPOCH_OF_THE_FEED, after, limit)

    async def tail(self) -> str:
        return reading.tail(self._connection, EPOCH_OF_THE_FEED)

    async def resource(self, key: str) -> Resource:
        return reading.resource(self._connection, key)

    async def keys(self) -> list[Key]:
        return reading.keys(self._connection)

    async def put_key(self, key: Key) -> None:
        self._transaction(lambda: committing.put_key(self._connection, key))

    async def now(self) -> datetime:
        return self._clock.now()

    async def secret(self) -> bytes:
        return self._secret
