"""The PostgreSQL store: one database, any number of processes on any number of machines."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from holdfast.core.access import Key
from holdfast.core.errors import HoldfastError, Invalid, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job, ResourceLock
from holdfast.core.state import State
from holdfast.core.workers import WorkerInfo
from holdfast.ports import (
    ById,
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
from holdfast.stores.postgres import clock_steps, errors, external_transaction
from holdfast.stores.postgres.address import PostgresAddress, address_of
from holdfast.stores.postgres.claim_commit import ClaimCommit, Peek
from holdfast.stores.postgres.commit import PostgresCommit, StaleCache
from holdfast.stores.postgres.commit_context import CommitContext
from holdfast.stores.postgres.commit_way import Way
from holdfast.stores.postgres.doctor import doctor
from holdfast.stores.postgres.epochs import epoch_of
from holdfast.stores.postgres.event_log import PostgresEventLog as EventLog
from holdfast.stores.postgres.lane_marks import LaneMarks
from holdfast.stores.postgres.lanes import learn_lanes, make_lanes
from holdfast.stores.postgres.maintenance import Maintenance
from holdfast.stores.postgres.new_job import write_new_job
from holdfast.stores.postgres.notifications import Notice, NotificationListener, Notifier
from holdfast.stores.postgres.partitions import drop_empty_partitions
from holdfast.stores.postgres.prune import prunable, prune
from holdfast.stores.postgres.queries import PostgresQueries
from holdfast.stores.postgres.rebuild import rebuild
from holdfast.stores.postgres.rows import key_row, worker_row
from holdfast.stores.postgres.scan_starts import ScanStarts
from holdfast.stores.postgres.schema import migrate, secret_of
from holdfast.stores.postgres.server_time import ClockStepped, ServerTime
from holdfast.stores.postgres.sessions import Session, Sessions
from holdfast.stores.postgres.statements import statement
from holdfast.stores.postgres.writes import LanesMissing
from holdfast.stores.restore_fencing import fence_all_owners
from holdfast.system import BootClock, SystemClock

T = TypeVar("T")

TRIES_MAX = 20
WAITS_MAX = 2
PRUNE_SECONDS = 300
QUICKER_SECONDS = 0.002
"""How long a claim waits for the commit of the process that was quicker: a look after it is cheaper than a
transaction beside it, and takes nothing from it meanwhile."""


class PostgresStore:
    """Tables in one schema of one database. Every commit is one statement or one short transaction;
    `retries` counts those that were undone by a conflict and decided again."""

    def __init__(self, address: PostgresAddress, clock: Clock | None, ids: Ids) -> None:
        system = SystemClock()
        self._address = address
        self._system = system
        marks, due = LaneMarks(clock or system), ScanStarts(clock or system)
        time = ServerTime(BootClock())
        self._context = CommitContext(address.schema, marks, due, LeasedJobCache(), time, clock=clock)
        self._sessions = Sessions(address, system, ids)
        self._signal = CommitSignal(clock or system)
        self._channel = f"{address.schema}_commit"
        self._notifier = Notifier(self._sessions, self._channel, system)
        self._listener = NotificationListener(self._sessions, self._channel, self._signal, system, ids)
        self._ids = ids
        self._secret = b""
        self._maintenance = Maintenance(address.schema)
        self.retries = 0

    @classmethod
    async def open(
        cls, url: str, *, ids: Ids, clock: Clock | None = None, create: bool = True
    ) -> "PostgresStore":
        """Connect, and make the tables or bring them forward; without `create`, only if they exist.
        `clock` replaces the server's, for tests."""
        store = cls(address_of(url), clock, ids)
        try:
            await store._open(create=create)
        except BaseException:
            await store.close()
            raise
        store._sessions.renew = store._open
        return store

    async def _open(self, *, create: bool = False) -> None:
        """Find the tables and their epoch; also again, when another server has taken over."""
        self._context.forget()
        self._context.time.stop_estimating()
        pending = await self._sessions.use(lambda s: self._begin(s, create=create), patient=False)
        if pending:
            await fence_all_owners(self, pending)
            await self._forget("shutting_out")

    async def _begin(self, session: Session, *, create: bool) -> str | None:
        schema, ids = self._address.schema, self._ids
        await migrate(session, self._address, create=create)
        self._secret = await secret_of(session, schema, ids)
        epoch, pending = await epoch_of(session, schema, ids)
        self._context = replace(self._context, epoch=epoch)
        await learn_lanes(session, self._context)
        await self._maintenance.ensure_partitions(session)
        if not self._context.time.observed:
            await clock_steps.refresh(session, self._context)
        return pending

    async def _forget(self, name: str) -> None:
        sql = statement("delete_meta", self._address.schema)
        await self._sessions.use(lambda session: session.fetch(sql, name))

    @property
    def commits(self) -> int:
        """How many commits this process has made."""
        return self._maintenance.commits

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        selects = any(not isinstance(work.selection, ById) for work in works)
        first = True

        async def attempt(session: Session) -> list[list[Decision]]:
            nonlocal first
            in_transaction = selects or self._sessions.pooled
            way = Way.AGAIN if not first else Way.LOCKED if in_transaction else Way.CACHED
            first = False  # a second try locks what it reads, and uses no cache
            if not (way.first and self._context.time.compared):  # the clock may have been set
                await clock_steps.compare(session, self._context)
            try:
                return await self._attempt(session, works, way)
            except StaleCache:
                return await self._attempt(session, works, Way.AGAIN if in_transaction else Way.READ)

        try:
            return await self._commit(attempt)
        except Unavailable as error:
            if error.applied != "unknown" or not all(map(_is_fresh, works)):
                raise
        try:  # no other caller has these fresh ids: if the jobs exist, the first try made them
            return await self._commit(attempt)
        except HoldfastError as error:  # it says nothing about the first try
            raise Unavailable(error.message, applied="unknown") from error

    async def _commit(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Run `work`, and run it again when it was undone by a conflict."""
        waits = 0
        for _ in range(TRIES_MAX):
            try:
                return await self._sessions.use(work, deciding=True)
            except errors.RETRYABLE as error:
                self.retries += 1
                waits += isinstance(error, errors.LockTimeout)
                if waits == WAITS_MAX:
                    raise errors.translate(error, self._address) from error
            except errors.PartitionMissing:
                await self._sessions.use(self._maintenance.ensure_partitions)
            except LanesMissing as missing:
                await self._make_lanes(missing)
            except ClockStepped:
                await self._settle()
        raise Unavailable("The jobs change too fast to be written; nothing was applied.")

    async def _make_lanes(self, missing: LanesMissing) -> None:
        """Make lanes in a transaction of their own: whoever needs the same ones waits for nobody else."""
        await self._sessions.use(lambda session: make_lanes(session, self._context, missing.keys))

    async def _settle(self) -> None:
        """Handle a step of the server's clock, before anything is decided."""
        try:
            await self._sessions.use(lambda session: clock_steps.settle(session, self._context))
        except LanesMissing as missing:
            await self._make_lanes(missing)
            await self._settle()

    async def _attempt(self, session: Session, works: Sequence[Work], way: Way) -> list[list[Decision]]:
        return await self._notifier.attach(lambda notice: self._decide(session, works, way, notice))

    async def _decide(
        self, session: Session, works: Sequence[Work], way: Way, notice: Notice, *, waited: bool = False
    ) -> list[list[Decision]]:
        """Decide and commit. `waited`: for another process, which was quicker to claim."""
        if way is Way.CACHED and len(works) == 1:
            new = await write_new_job(session, self._context, works[0], notice)
            if new is not None:
                self._committed(notice, ready=True)
                await self._maintenance.committed(session, counts=1, last_seq=new.seq)
                return [[new.change]]
        commit = ClaimCommit(session, self._context, works, way, notice)
        # Behind a pooler a replica may answer: only a query that locks rows finds that out.
        found = Peek.MORE if self._sessions.pooled else await commit.peek()
        if found is Peek.NOTHING:
            return [[] for _ in works]
        if found is Peek.FEW:
            if not await commit.claim_unlocked():
                session.uncertain = False
                if waited:
                    return await self._decide(session, works, Way.AGAIN, notice)
                await self._system.sleep(QUICKER_SECONDS)
                return await self._decide(session, works, way, notice, waited=True)
        elif way.locks:
            async with session.transaction():
                await commit.run()
            commit.move_marks()
        else:
            await commit.run()
        if commit.wrote:
            commit.update_cache()
            self._committed(notice, ready=commit.made_ready)
            await self._maintenance.committed(session, counts=commit.counts, last_seq=commit.last_seq)
        return commit.decisions

    def _committed(self, notice: Notice, *, ready: bool) -> None:
        self._signal.set(ready=ready)
        self._notifier.committed(notice, ready=ready)

    async def transact_within(self, connection: object, works: Sequence[Work]) -> list[list[Decision]]:
        """Decide and write as part of the transaction that `connection` is in: the changes land if and only
        if the caller commits it."""
        transaction, notice = external_transaction.wrap(connection), Notice(self._channel)
        for n in range(TRIES_MAX):
            try:
                async with transaction.savepoint():
                    await self._check_secret(transaction)
                    if n:
                        await clock_steps.refresh(transaction, self._context, external=True)
                    commit = PostgresCommit(transaction, self._context, works, Way.EXTERNAL, notice)
                    return await commit.run()
            except HoldfastError:
                raise
            except LanesMissing as missing:
                last: Exception = missing
                await self._make_lanes(missing)
            except Exception as error:
                if external_transaction.is_partition_missing(error):
                    await self._sessions.use(self._maintenance.ensure_partitions)
                elif not external_transaction.is_conflict(error):
                    raise external_transaction.translate(error) from error
                last = error
        raise external_transaction.translate(last) from last

    async def _check_secret(self, transaction: external_transaction.ExternalTransaction) -> None:
        """Raise `Invalid` when the connection leads to the tables of another store: its secret differs."""
        rows = await transaction.fetch(statement("get_meta", self._address.schema), "secret")
        if [row[0] for row in rows] != [self._secret.hex()]:
            raise Invalid(external_transaction.WRONG_DATABASE)

    async def record(self, events: Sequence[Event]) -> int:
        async def work(session: Session, notice: Notice) -> int:
            new = await PostgresCommit(session, self._context, (), Way.READ, notice).record(events)
            if new:
                self._committed(notice, ready=False)
            return new

        return await self._commit(lambda s: self._notifier.attach(lambda notice: work(s, notice)))

    async def prunable(self, *, ended_before: datetime, output_before: datetime) -> PruneResult:
        schema = self._address.schema
        return await self._sessions.use(
            lambda s: prunable(s, schema, ended_before, output_before), scanning=True
        )

    async def prune(self, *, ended_before: datetime, output_before: datetime, limit: int) -> PruneResult:
        async def work(session: Session) -> PruneResult:
            schema = self._address.schema
            async with session.transaction(seconds=PRUNE_SECONDS):
                pruned = await prune(session, schema, ended_before, output_before, limit)
            if pruned.jobs < limit:
                await drop_empty_partitions(session, schema)
            return pruned

        return await self._commit(work)

    async def rebuild(self, *, check: bool = False) -> RebuildResult:
        schema = self._address.schema
        result = await self._commit(lambda session: rebuild(session, schema, check=check))
        self._context.forget()
        await self._sessions.use(lambda session: learn_lanes(session, self._context))
        self._signal.set(ready=True)
        return result

    async def _read(self, query: Callable[[PostgresQueries], Awaitable[T]], *, scanning: bool = False) -> T:
        return await self._sessions.use(lambda s: query(PostgresQueries(s, self._context)), scanning=scanning)

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        return await self._read(lambda r: r.get(job_ids))

    async def list_jobs(
        self, which: JobFilter, *, after: str | None, limit: int, newest: bool = False
    ) -> JobPage:
        return await self._read(
            lambda r: r.list_jobs(which, after=after, limit=limit, newest=newest), scanning=True
        )

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        return await self._read(lambda r: r.counts(queue))

    async def count_ready(
        self, queue: str, *, ahead_of: Job | None = None, delayed: bool = False, limit: int
    ) -> int:
        return await self._read(
            lambda r: r.count_ready(queue, ahead_of, delayed=delayed, limit=limit), scanning=True
        )

    async def census(self, limit: int) -> Census:
        return await self._read(lambda r: r.census(limit, self.retries), scanning=True)

    async def _read_log(self, query: Callable[[EventLog], Awaitable[T]], *, scanning: bool = True) -> T:
        return await self._sessions.use(lambda s: query(EventLog(s, self._context)), scanning=scanning)

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        many = len(job_ids) > filters.HISTORIES_QUICK_MAX
        return await self._read_log(lambda r: r.histories(job_ids), scanning=many)

    async def facts(self, job_ids: Sequence[str], event_type: str) -> list[list[Event]]:
        return await self._read_log(lambda r: r.facts(job_ids, event_type))

    async def history(self, job_id: str, *, after: str | None, limit: int) -> HistoryPage:
        return await self._read_log(lambda r: r.history(job_id, after, limit))

    async def published(self, job_id: str, token: int, *, first: int) -> list[int]:
        return await self._read_log(lambda r: r.published(job_id, token, first=first), scanning=False)

    async def published_before(self, job_id: str, before: tuple[int, int], *, limit: int) -> list[Event]:
        return await self._read_log(lambda r: r.published_before(job_id, before, limit=limit))

    def log_cursor(self, log_id: int) -> str:
        return f"{self._context.epoch}.0.{log_id - 1}.{log_id - 1}"

    async def logs(self, job_id: str, *, after: str | None, limit: int, output: bool = True) -> EventPage:
        return await self._read_log(lambda r: r.logs(job_id, after=after, limit=limit, output=output))

    async def events(self, *, after: str | None, limit: int) -> EventPage:
        return await self._read_log(lambda r: r.events(after=after, limit=limit))

    async def tail(self) -> str:
        return await self._read_log(lambda r: r.tail(), scanning=False)

    async def locks(self, key: str) -> ResourceLock:
        return await self._read(lambda r: r.locks(key))

    async def list_keys(self) -> list[Key]:
        return await self._read(lambda r: r.list_keys())

    async def put_key(self, key: Key) -> None:
        sql = statement("put_api_key", self._address.schema)
        await self._commit(lambda session: session.write(sql, *key_row(key)))
        self._signal.set(ready=False)

    async def list_workers(self) -> list[WorkerInfo]:
        return await self._read(lambda r: r.list_workers())

    async def put_worker(self, worker: WorkerInfo, *, forget_before: datetime) -> None:
        sql = statement("put_worker", self._address.schema)
        await self._commit(lambda session: session.write(sql, *worker_row(worker), forget_before))

    async def now(self) -> datetime:
        if self._context.clock:
            return self._context.clock.now()

        async def work(session: Session) -> datetime:
            asked = self._context.time.begin_reading()
            now = await PostgresQueries(session, self._context).now()
            if not self._context.time.observe(now, asked):
                raise ClockStepped
            return now

        try:
            return await self._sessions.use(work)
        except ClockStepped:
            await self._settle()
        return await self.now()

    async def secret(self) -> bytes:
        return self._secret

    async def doctor(self) -> list[Finding]:
        async def work(session: Session) -> list[Finding]:
            reading, pooled = PostgresQueries(session, self._context), self._sessions.pooled
            return await doctor(session, reading, self._address, SystemClock(), pooled=pooled)

        return await self._sessions.use(work, scanning=True)

    def change_mark(self, *, ready: bool = False) -> int:
        return self._signal.change_mark(ready=ready)

    async def wait(self, mark: int, timeout: float, *, ready: bool = False) -> None:  # noqa: ASYNC109
        if self._signal.change_mark(ready=ready) == mark:
            self._listener.start()
            await self._signal.wait(mark, self._listener.wait_seconds(timeout), ready=ready)

    def describe(self) -> str:
        return (
            f"PostgreSQL at {self._address.shown}, schema {self._address.schema}: acknowledged writes"
            " survive kill -9 and power loss of the server; any number of processes and machines"
        )

    async def close(self) -> None:
        await self._notifier.close()
        await self._listener.close()
        await self._sessions.close()


def _is_fresh(work: Work) -> bool:
    return isinstance(work.selection, ById) and work.selection.fresh
