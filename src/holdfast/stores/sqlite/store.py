"""The SQLite store: one file, durable, shared by any number of processes on one machine."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

import apsw

from holdfast.core.access import Key
from holdfast.core.errors import Corrupt, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job, ResourceLock
from holdfast.core.state import State
from holdfast.core.workers import WorkerInfo
from holdfast.failpoint import failpoint
from holdfast.ports import (
    Census,
    Clock,
    Decision,
    EventPage,
    Finding,
    HistoryPage,
    Ids,
    JobFilter,
    JobPage,
    PruneResult,
    RebuildResult,
    Work,
)
from holdfast.stores import filters
from holdfast.stores.commit_signal import CommitSignal
from holdfast.stores.leased_jobs import LeasedJobCache
from holdfast.stores.records import DAMAGED
from holdfast.stores.sqlite import doctor, queries
from holdfast.stores.sqlite.clock import AnchoredClock
from holdfast.stores.sqlite.commit import SqliteCommit, is_small, put_key, put_worker
from holdfast.stores.sqlite.connection import (
    connect,
    migrate,
    patience,
    read_meta,
    read_number,
    snapshot,
    translated,
    write_meta,
)
from holdfast.stores.sqlite.files import Files, LogLost, check_names
from holdfast.stores.sqlite.new_job import NewJobWriter
from holdfast.stores.sqlite.prune import prunable, prune
from holdfast.stores.sqlite.rebuild import rebuild
from holdfast.stores.sqlite.statements import Value
from holdfast.stores.sqlite.threads import CommitPace, ConnectionThread
from holdfast.stores.sqlite.wakeup import Wakeup, notify_other_processes
from holdfast.system import SystemClock

T = TypeVar("T")


class SqliteStore:
    """One thread for writes, one for quick reads, one (the scanner) for long reads, and a connection that
    polls for other processes' commits while a caller waits."""

    def __init__(self, path: Path, clock: Clock | None) -> None:
        self._path = path
        file = Path(os.path.realpath(path))
        self._log = os.fsencode(file) + b"-wal"
        self._files = Files(path)
        self._given_clock = clock
        self._writer = ConnectionThread("holdfast-sqlite-writer")
        self._reader = ConnectionThread("holdfast-sqlite-reader")
        self._scanner = ConnectionThread("holdfast-sqlite-scanner")
        self._system = SystemClock()
        self._pace = CommitPace()
        self._signal = CommitSignal(clock or self._system)
        self._wakeup = Wakeup(file, self._signal, self._has_commit)
        self._connections: list[apsw.Connection] = []
        self._secret: bytes | None = None
        self._seen_version: Value = None
        self._others: Value = None
        self._announced = True
        self._leased_jobs = LeasedJobCache()
        self._own_version = 0
        self._is_fresh = False
        self._clock_version: Value = None

    @classmethod
    async def open(cls, path: Path, *, ids: Ids, clock: Clock | None = None) -> "SqliteStore":
        """Open or create the file. `clock` replaces the store's own clock, for tests."""
        store = cls(path, clock)
        try:
            await store._writer.call(lambda: store._open(ids))
        except BaseException:
            await store.close()
            raise
        return store

    def _open(self, ids: Ids) -> None:
        check_names(self._path)
        self._write_connection = self._connect(create=True)
        migrate(self._write_connection, self._path)
        self._new_jobs = NewJobWriter(self._write_connection)
        self._files.remember()
        self._clock, self._secret, self._epoch = self._transaction(lambda c: self._begin(c, ids))
        # `now` has a clock of its own, which knows only what is committed; the writer's is ahead of that.
        self._shown_clock = copy(self._clock) if self._given_clock is None else self._clock
        self._read_connection = self._connect()
        self._scan_connection = self._connect()
        self._poll_connection = self._connect()
        self._files.check()
        self._seen_version = self._data_version()

    def _connect(self, *, create: bool = False) -> apsw.Connection:
        connection = connect(self._path, create=create)
        self._connections.append(connection)
        return connection

    def _begin(self, connection: apsw.Connection, ids: Ids) -> tuple[Clock, bytes, int]:
        secret = read_meta(connection, "secret")
        if not isinstance(secret, bytes):
            secret = ids.secret()
            write_meta(connection, "secret", secret)
            failpoint("sqlite.secret_kept")
        clock = self._given_clock or AnchoredClock(connection)
        return clock, secret, read_number(connection, "epoch")

    def _transaction(self, work: Callable[[apsw.Connection], T], *, begun: bool = False) -> T:
        """Run `work` in one write transaction, which may have been `begun` already."""
        connection = self._write_connection
        try:
            with translated(self._path):
                if not begun:
                    connection.execute("BEGIN IMMEDIATE").fetchall()
                failpoint("sqlite.begun")
                self._files.check()
                self._is_fresh &= connection.data_version() == self._own_version
                result = work(connection)
            failpoint("sqlite.written")
            with translated(self._path, applied="unknown"):
                connection.execute("COMMIT").fetchall()
            self._own_version = connection.data_version()
            failpoint("sqlite.committed")
        except BaseException as error:
            # The cached state may have been rolled back.
            self._is_fresh, self._clock_version = False, None
            with suppress(apsw.Error, Unavailable):  # the first error is the one to raise
                if connection.in_transaction:
                    connection.execute("ROLLBACK").fetchall()
                if isinstance(error, LogLost):
                    self._files.rescue(connection)
            raise
        return result

    async def _write(
        self, work: Callable[[apsw.Connection], T], made_ready: Callable[[T], bool] = lambda _: True
    ) -> T:
        """Commit in the thread of the writer. `made_ready` says whether what was done may have made a job
        ready."""
        try:
            result, wrote = await self._writer.call(lambda: self._commit(work))
        except BaseException:
            self._announced = False  # it may have been committed, or will be
            raise
        self._announce(wrote=wrote, made_ready=made_ready(result))
        return result

    def _announce(self, *, wrote: bool, made_ready: bool) -> None:
        """Wake the waiters of this process; a commit that wrote nothing wakes none."""
        failpoint("sqlite.returned")
        if wrote:
            self._signal.set(ready=made_ready)

    def _begin_at_once(self) -> bool:
        """Begin a write transaction without any wait; return False when another process is in one."""
        connection = self._write_connection
        connection.set_busy_handler(None)
        try:
            connection.execute("BEGIN IMMEDIATE").fetchall()
        except apsw.Error:  # any other error is raised when the thread tries
            return False
        finally:
            connection.set_busy_handler(patience())
        return True

    def _commit_at_once(self, work: Callable[[apsw.Connection], T]) -> tuple[T, bool] | None:
        return self._commit(work, begun=True) if self._begin_at_once() else None

    def _commit(self, work: Callable[[apsw.Connection], T], *, begun: bool = False) -> tuple[T, bool]:
        """Return the result, and whether anything was written."""
        connection, began = self._write_connection, self._system.monotonic()
        before = connection.total_changes()
        try:
            result = self._transaction(work, begun=begun)
        finally:
            self._pace.note(self._system.monotonic() - began)
        wrote = connection.total_changes() != before
        if wrote:
            notify_other_processes(self._log)
        return result, wrote

    async def _read(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run a quick read: it never waits behind a scan."""
        return await self._reader.call(lambda: self._reading(work, self._read_connection))

    async def _scan(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run a read that may take long."""
        return await self._scanner.call(lambda: self._reading(work, self._scan_connection))

    def _reading(self, work: Callable[[apsw.Connection], T], connection: apsw.Connection) -> T:
        try:
            with translated(self._path), snapshot(connection):
                return work(connection)
        except DAMAGED as error:
            raise Corrupt(f"{self._path} holds something unreadable: {error!r}") from error

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        if (decisions := self.transact_at_once(works)) is not None:
            return decisions
        decided, _ = await self._write(lambda c: self._decide(c, works), itemgetter(1))
        return decided

    def transact_at_once(self, works: Sequence[Work]) -> list[list[Decision]] | None:
        """Commit in this thread, if the commit is small, the last ones were quick, and nothing stands in its
        way."""
        if not self._pace.is_quick or not is_small(works):
            return None
        try:
            done = self._writer.call_here(lambda: self._commit_at_once(lambda c: self._decide(c, works)))
        except BaseException:
            self._announced = False
            raise
        if done is None:
            return None
        (decisions, made_ready), wrote = done
        self._announce(wrote=wrote, made_ready=made_ready)
        return decisions

    def _decide(
        self, connection: apsw.Connection, works: Sequence[Work]
    ) -> tuple[list[list[Decision]], bool]:
        """Decide and write; return the decisions, and whether a job may have become ready."""
        cache = self._fresh_cache(connection)
        if settled := isinstance(self._clock, AnchoredClock) and self._clock.settle(connection):
            cache.forget()
        if len(works) == 1:
            decision = self._new_jobs.write(works[0], self._clock.now())
            if decision is not None:
                return [[decision]], True
        commit = SqliteCommit(connection, works, self._clock.now(), cache)
        return commit.run(), settled or commit.made_ready

    def _fresh_cache(self, connection: apsw.Connection) -> LeasedJobCache:
        """Return the cache of leased jobs, emptied when another process has committed since. Then the clock
        is refreshed too, as the other process may have changed its anchor."""
        if not self._is_fresh:
            self._is_fresh = True
            self._leased_jobs.forget()
            self._new_jobs.forget()
            if isinstance(self._clock, AnchoredClock):
                self._clock.refresh(connection)
        return self._leased_jobs

    async def record(self, events: Sequence[Event]) -> int:
        return await self._write(lambda c: SqliteCommit(c, (), self._clock.now()).record(events))

    async def prunable(self, *, ended_before: datetime, output_before: datetime) -> PruneResult:
        return await self._scan(lambda c: prunable(c, ended_before, output_before))

    async def prune(self, *, ended_before: datetime, output_before: datetime, limit: int) -> PruneResult:
        return await self._write(lambda c: prune(c, ended_before, output_before, limit))

    async def rebuild(self, *, check: bool = False) -> RebuildResult:
        def work(connection: apsw.Connection) -> RebuildResult:
            self._is_fresh = False  # what is cached is written anew
            return rebuild(connection, check=check)

        return await self._write(work)

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        return await self._read(lambda c: queries.get(c, job_ids))

    async def list_jobs(
        self, which: JobFilter, *, after: str | None, limit: int, newest: bool = False
    ) -> JobPage:
        return await self._scan(lambda c: queries.list_jobs(c, which, after, limit, newest=newest))

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        return await self._read(lambda c: queries.counts(c, queue))

    async def count_ready(
        self, queue: str, *, ahead_of: Job | None = None, delayed: bool = False, limit: int
    ) -> int:
        now = await self.now()
        return await self._scan(
            lambda c: queries.count_ready(c, queue, now, ahead_of=ahead_of, delayed=delayed, limit=limit)
        )

    async def census(self, limit: int) -> Census:
        return await self._scan(lambda c: queries.census(c, limit))

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        read = self._read if len(job_ids) <= filters.HISTORIES_QUICK_MAX else self._scan
        return await read(lambda c: queries.histories(c, job_ids))

    async def facts(self, job_ids: Sequence[str], event_type: str) -> list[list[Event]]:
        return await self._scan(lambda c: queries.facts(c, job_ids, event_type))

    async def history(self, job_id: str, *, after: str | None, limit: int) -> HistoryPage:
        return await self._scan(lambda c: queries.history(c, job_id, after, limit))

    async def published(self, job_id: str, token: int, *, first: int) -> list[int]:
        return await self._read(lambda c: queries.published(c, job_id, token, first))

    async def published_before(self, job_id: str, before: tuple[int, int], *, limit: int) -> list[Event]:
        return await self._scan(lambda c: queries.published_before(c, job_id, before, limit))

    def log_cursor(self, log_id: int) -> str:
        return f"{self._epoch}.{log_id - 1}"

    async def logs(self, job_id: str, *, after: str | None, limit: int, output: bool = True) -> EventPage:
        return await self._scan(lambda c: queries.logs(c, self._epoch, job_id, after, limit, output=output))

    async def events(self, *, after: str | None, limit: int) -> EventPage:
        return await self._scan(lambda c: queries.events(c, self._epoch, after, limit))

    async def tail(self) -> str:
        return await self._read(lambda c: queries.tail(c, self._epoch))

    async def locks(self, key: str) -> ResourceLock:
        return await self._read(lambda c: queries.locks(c, key))

    async def list_keys(self) -> list[Key]:
        return await self._read(queries.list_keys)

    async def put_key(self, key: Key) -> None:
        await self._write(lambda c: put_key(c, key))

    async def list_workers(self) -> list[WorkerInfo]:
        return await self._read(queries.list_workers)

    async def put_worker(self, worker: WorkerInfo, *, forget_before: datetime) -> None:
        await self._write(lambda c: put_worker(c, worker, forget_before), lambda _: False)

    async def now(self) -> datetime:
        version = self._data_version()
        if version != self._clock_version and isinstance(self._shown_clock, AnchoredClock):
            await self._read(self._shown_clock.refresh)
        self._clock_version = version
        return self._shown_clock.now()

    async def secret(self) -> bytes:
        assert self._secret is not None  # open() has read it
        return self._secret

    async def backup(self, target: str) -> None:
        """Write a compact, consistent copy to `target`, while other processes go on writing."""
        await self._scanner.call(lambda: self._vacuum_into(target))

    def _vacuum_into(self, target: str) -> None:
        with translated(self._path):
            self._scan_connection.execute("VACUUM INTO ?", (target,)).fetchall()

    def change_mark(self, *, ready: bool = False) -> int:
        if self._has_commit():
            self._signal.set()  # any commit may have made a job ready
        return self._signal.change_mark(ready=ready)

    async def wait(self, mark: int, timeout: float, *, ready: bool = False) -> None:  # noqa: ASYNC109
        if self.change_mark(ready=ready) == mark:
            self._wakeup.start()
            await self._signal.wait(mark, timeout, ready=ready)

    def _has_commit(self) -> bool:
        """Whether there was a commit since the last call, by another process or by a caller that has left.
        All others of this process are announced when they are made, and by what they did."""
        before, self._seen_version = self._seen_version, self._data_version()
        if self._seen_version == before:
            return False
        version = self._writer.call_here(self._others_version)  # which its own commits do not change
        if version is None:  # a commit is under way
            return True
        before, self._others = self._others, version
        announced, self._announced = self._announced, True
        return version != before or not announced

    def _others_version(self) -> Value:
        return self._version_of(self._write_connection, self._others)

    def _data_version(self) -> Value:
        return self._version_of(self._poll_connection, self._seen_version)

    def _version_of(self, connection: apsw.Connection, known: Value) -> Value:
        """Return a number that changes when another connection commits."""
        try:
            version: Value = connection.pragma("data_version")
        except apsw.Error:
            # Only a hint: the next read raises the error where it can be handled.
            return known
        return version

    def describe(self) -> str:
        return (
            f"SQLite {apsw.sqlite_lib_version()} in {self._path}: acknowledged writes survive"
            " kill -9 and power loss; any number of processes on this machine"
        )

    async def doctor(self) -> list[Finding]:
        path, clock, check = self._path, self._clock, self._files.check
        durable = await self._writer.call(lambda: doctor.durability(self._write_connection, path))
        return await self._scanner.call(
            lambda: doctor.doctor(self._scan_connection, path, clock, check, durable)
        )

    async def close(self) -> None:
        await self._wakeup.close()
        await self._reader.close()
        await self._scanner.close()
        await self._writer.close()
        failpoint("sqlite.threads_stopped")
        with suppress(apsw.Error, Unavailable):  # what is not brought in stays in the log
            self._files.prepare_close(self._connections)
        for connection in reversed(self._connections):
            connection.close()
        failpoint("sqlite.closed")
