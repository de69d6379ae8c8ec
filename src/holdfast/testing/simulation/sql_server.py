"""The server side of a store in SQL: the statements of the SQLite store, without its threads."""

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

import apsw

from holdfast.core.access import Key
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.workers import WorkerInfo
from holdfast.ports import Clock, Decision, Ids, PruneResult, Store, Work
from holdfast.stores.postgres.server_time import ServerTime
from holdfast.stores.sqlite import commit, queries
from holdfast.stores.sqlite.clock import apply_step
from holdfast.stores.sqlite.connection import migrate
from holdfast.stores.sqlite.prune import prune
from holdfast.testing.port_methods import arguments, async_methods, derive
from holdfast.testing.simulation.commit import Commit
from holdfast.testing.simulation.invariant_checker import InvariantChecker

T = TypeVar("T")

EVENTS_EPOCH = 0


class ObservedCommit(commit.SqliteCommit):
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
    """Tables in memory, one transaction at a time. Every commit is shown to the checker."""

    def __init__(self, clock: Clock, ids: Ids, checker: InvariantChecker) -> None:
        self._clock = clock
        self._time = ServerTime(clock)
        self._secret = ids.secret()
        self._checker = checker
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

    def follow_clock_step(self) -> None:
        """Adjust stored times if the clock was set, before anything is decided by it."""
        asked, now = self._time.begin_reading(), self._clock.now()
        if not self._time.observe(now, asked) and (step := self._time.step(now, asked)):
            self._transaction(lambda: apply_step(self._connection, step))
            self._time.accept(now, asked, "")

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        self.follow_clock_step()
        shown = ObservedCommit(self._connection, works, self._clock.now())
        answers = self._transaction(shown.run)
        for one in shown.commits:
            self._checker.committed(one)
        if shown.others:
            self._checker.recorded(shown.others)
        if shown.commits or shown.others:
            for listener in self.listeners:
                listener()
        return answers

    async def record(self, events: Sequence[Event]) -> int:
        fresh = [event for event in events if event.event_id not in self._checker.seen]
        write = commit.SqliteCommit(self._connection, (), self._clock.now())
        count = self._transaction(lambda: write.record(events))
        self._checker.recorded(fresh)
        return count

    async def prune(self, *, ended_before: datetime, output_before: datetime, limit: int) -> PruneResult:
        return self._transaction(lambda: prune(self._connection, ended_before, output_before, limit))

    async def put_key(self, key: Key) -> None:
        self._transaction(lambda: commit.put_key(self._connection, key))

    async def put_worker(self, worker: WorkerInfo, *, forget_before: datetime) -> None:
        self._transaction(lambda: commit.put_worker(self._connection, worker, forget_before))

    async def count_ready(
        self, queue: str, *, ahead_of: Job | None = None, delayed: bool = False, limit: int
    ) -> int:
        now = self._clock.now()
        return queries.count_ready(
            self._connection, queue, now, ahead_of=ahead_of, delayed=delayed, limit=limit
        )

    async def now(self) -> datetime:
        return self._clock.now()

    async def secret(self) -> bytes:
        return self._secret


def _queried(name: str) -> Callable[..., Coroutine[Any, Any, Any]] | None:
    query: Callable[..., Any] | None = getattr(queries, name, None)
    if query is None:
        return None
    epoch = {"epoch": EVENTS_EPOCH} if "epoch" in signature(query).parameters else {}
    method = async_methods(Store)[name]

    async def call(self: SqlServer, *args: Any, **kwargs: Any) -> Any:
        return query(self._connection, **epoch, **arguments(method, args, kwargs))

    return call


derive(SqlServer, Store, _queried)
