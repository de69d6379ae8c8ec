"""A pool of connections to one database, each used by one caller at a time, and the settings on them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import asyncpg
from asyncpg import exceptions as pg

from holdfast.core.errors import Invalid
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Ids
from holdfast.stores.postgres.address import PostgresAddress
from holdfast.stores.postgres.errors import (
    FAILURES,
    RETRYABLE,
    PartitionMissing,
    Replica,
    ServerDown,
    is_connection_lost,
    is_connection_unusable,
    translate,
    was_not_sent,
)
from holdfast.stores.postgres.statements import Row
from holdfast.stores.postgres.timestamp_codec import register_timestamp_codec

T = TypeVar("T")
Connection: TypeAlias = "asyncpg.Connection[Any]"

CONNECTIONS_MAX = 4
SCANS_MAX = 1
"""How many of the connections may run long reads at a time: the others are for quick ones."""

CONNECT_SECONDS = 10
ANSWER_SECONDS = 30
AWAY_SECONDS_MAX = 10.0
PAUSE_SECONDS = 0.05
PAUSE_SECONDS_MAX = 1.0

# The server ends a session that is frozen inside a transaction, or waits too long, well before a lease
# ends: it cannot keep jobs locked. The planner's settings keep every batch on its indexes, even where
# PostgreSQL has no statistics yet about tables that grew a minute ago.
SETTINGS = {
    "statement_timeout": "10s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "2s",
    "default_transaction_isolation": "read committed",
    "jit_above_cost": "-1",
    "plan_cache_mode": "force_generic_plan",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
}
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"


class Session:
    """A connection in use by one caller. `uncertain`: what was sent may have been committed; `whole`: the
    connection may be used again afterwards."""

    def __init__(self, connection: Connection, begin: str = BEGIN, *, pooled: bool = False) -> None:
        self.connection = connection
        self.uncertain = False
        self.reusable = True
        self._begin = begin
        self._pooled = pooled
        self._inside = False
        self._seconds: float | None = None

    async def fetch(self, sql: str, *parameters: object) -> Sequence[Row]:
        if self._pooled and not self._inside:  # else its messages may reach two servers
            async with self.transaction():
                return await self.fetch(sql, *parameters)
        rows: Sequence[Row] = await self.connection.fetch(sql, *parameters, timeout=self._seconds)
        return rows

    async def write(self, sql: str, *parameters: object) -> Sequence[Row]:
        """Run the statement that writes; outside a transaction it is its own."""
        self.uncertain = not self._inside
        rows = await self.fetch(sql, *parameters)
        if self._inside:
            failpoint("postgres.written")
        else:
            failpoint("postgres.committed_at_once")
        return rows

    @asynccontextmanager
    async def transaction(self, *settings: str, seconds: float | None = None) -> AsyncIterator[None]:
        """Commit what is done inside, unless it raises. `settings` last as long as the transaction, and
        each of its statements may take `seconds`."""
        if seconds is not None:
            settings = (f"SET LOCAL statement_timeout = '{seconds}s'", *settings)
        await self.connection.execute(";".join((self._begin, *settings)))
        self._inside, self._seconds = True, seconds
        failpoint("postgres.begun")
        try:
            yield
        except Exception as error:
            if not is_connection_lost(error):
                await self.connection.execute("ROLLBACK")
            raise
        else:
            self.uncertain = True
            await self.connection.execute("COMMIT")
        finally:
            self._inside, self._seconds = False, None
        failpoint("postgres.committed")


class Sessions:
    """The connections of one store. Behind a pooler, no setting outlives a transaction."""

    def __init__(self, address: PostgresAddress, clock: Clock, ids: Ids) -> None:
        self.address = address
        self.pooled = False
        self.pids: set[int] = set()
        self._clock = clock
        self._ids = ids
        self._begin = BEGIN
        self._idle: list[Connection] = []
        self._free = asyncio.Semaphore(CONNECTIONS_MAX)
        self._asking = asyncio.Semaphore(CONNECTIONS_MAX - 1)  # one is always left for commits
        self._scanning = asyncio.Semaphore(SCANS_MAX)
        self._closed = False
        self._down_at: float | None = None
        self._timeline: str | None = None
        self._moves = 0
        self._renewed = 0
        self._renewal = asyncio.Lock()
        self._renewer: asyncio.Task[object] | None = None
        self.renew: Callable[[], Awaitable[None]] | None = None

    async def use(
        self,
        work: Callable[[Session], Awaitable[T]],
        *,
        patient: bool = True,
        deciding: bool = False,
        scanning: bool = False,
    ) -> T:
        """Run `work` on a connection. While the server is down and nothing was applied, wait for it to come
        back (`patient`); a read does not, once it has been down for as long. `deciding` work handles
        conflicts with other commits itself, and gets an error when it is unknown whether its commit was
        made; all other work may be run twice. `scanning` work may read much: it leaves connections for the
        rest."""
        deadline = self._clock.monotonic() + (AWAY_SECONDS_MAX if patient else 0)
        pause = PAUSE_SECONDS
        while True:
            session = None
            try:
                async with _Loan(self, self._slots(deciding, scanning)) as session:
                    if self._moves == self._renewed or self._renewer is asyncio.current_task():
                        result = await work(session)
                        self._down_at = None
                        return result
                await self._renew()
                continue
            except FAILURES as error:
                if deciding and isinstance(error, (*RETRYABLE, PartitionMissing)):
                    raise
                sent = session is not None and session.uncertain and not was_not_sent(error)
                doubt = deciding and sent and is_connection_lost(error)
                translated = translate(error, self.address, "unknown" if doubt else "no")
                if doubt or not isinstance(translated, ServerDown):
                    raise translated from error
                now = self._clock.monotonic()
                self._down_at = now if self._down_at is None else self._down_at
                if now > (deadline if deciding else min(deadline, self._down_at + AWAY_SECONDS_MAX)):
                    raise translated from error
            await self._clock.sleep(pause * (0.5 + self._ids.chance()))
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _slots(self, deciding: bool, scanning: bool) -> tuple[asyncio.Semaphore, ...]:
        if deciding:
            return (self._free,)
        return (self._scanning, self._asking, self._free) if scanning else (self._asking, self._free)

    async def _renew(self) -> None:
        """Open the store again: another server has taken over, perhaps without the last commits."""
        async with self._renewal:
            self._renewer = asyncio.current_task()
            try:
                moves = self._moves  # a failover during the renewal needs another renewal
                if moves != self._renewed and self.renew:
                    await self.renew()
                self._renewed = moves
            finally:
                self._renewer = None

    async def begin(self) -> Session:
        """Return a session on a connection, idle or new."""
        return Session(await self._take(), self._begin, pooled=self.pooled)

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
            self.pids.discard(connection.get_server_pid())
        return await self.connect()

    def end(self, session: Session, *, whole: bool) -> None:
        """Keep the connection of a session for the next; one that ended in an unknown state is closed."""
        connection = session.connection
        sound = whole and not connection.is_closed() and not connection.is_in_transaction()
        if sound and not self._closed:
            self._idle.append(connection)
        else:
            self.drop(connection)

    def drop(self, connection: Connection) -> None:
        """Close a connection at once, without telling the server."""
        self.pids.discard(connection.get_server_pid())
        connection.terminate()

    async def connect(self) -> Connection:
        """Return a new connection with our settings, to a server that keeps what it acknowledges."""
        try:
            connection = await self._open_connection()
        except (pg.ProtocolViolationError, pg.FeatureNotSupportedError):
            if self.pooled:
                raise
            self.pooled = True  # a pooler accepts none of our settings
            connection = await self._open_connection()
        try:
            return await self._check_server(connection)
        except BaseException:
            connection.terminate()
            raise

    async def _open_connection(self) -> Connection:
        settings = {} if self.pooled else SETTINGS
        return await asyncpg.connect(
            self.address.url,
            timeout=CONNECT_SECONDS,
            command_timeout=ANSWER_SECONDS,
            statement_cache_size=0 if self.pooled else 200,
            max_cached_statement_lifetime=0,
            max_cacheable_statement_size=0,
            server_settings={"application_name": "holdfast", **settings},
        )

    async def _check_server(self, connection: Connection) -> Connection:
        """Read the server's state, refuse one that can lose data, and make commits wait for the disk."""
        async with Session(connection).transaction():
            [(pid, timeline, *unsafe, waits)] = await connection.fetch(_SERVER_STATE)
            await register_timestamp_codec(connection)
        if "off" in unsafe:
            raise Invalid(
                f"PostgreSQL at {self.address.shown} runs with fsync or full_page_writes off: a crash"
                " can lose or damage everything.",
                advice="Turn both on, then try again.",
            )
        if timeline is None:
            raise Replica
        if not self.pooled and pid != connection.get_server_pid():
            self.pooled = True
            connection.terminate()
            return await self.connect()
        if self.pooled:
            self._begin = _begin_with({**SETTINGS, "synchronous_commit": waits})
        else:  # set on the session, it holds even if the server's own setting is changed later
            await connection.execute(f"SET synchronous_commit = '{waits}'")
        self.pids.add(connection.get_server_pid())
        self._moves += self._timeline not in (None, timeline)
        self._timeline = timeline
        return connection

    async def close(self) -> None:
        self._closed = True
        for connection in self._idle:
            await _close_connection(connection)
        self._idle.clear()


class _Loan:
    """The use of a connection by one caller: `async with`, as a class, since a generator takes 5 us more.
    It waits for its turn at each of the slots."""

    __slots__ = ("_entered", "_session", "_sessions", "_slots")

    def __init__(self, sessions: Sessions, slots: tuple[asyncio.Semaphore, ...]) -> None:
        self._sessions = sessions
        self._slots = slots
        self._entered = 0

    async def __aenter__(self) -> Session:
        try:
            for slot in self._slots:
                await slot.acquire()
                self._entered += 1
            self._session = await self._sessions.begin()
        except BaseException:
            self._leave()
            raise
        return self._session

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        whole = self._session.reusable
        if error is not None:
            whole = isinstance(error, Exception) and not is_connection_unusable(error)
        self._sessions.end(self._session, whole=whole)
        self._leave()

    def _leave(self) -> None:
        for slot in self._slots[: self._entered]:
            slot.release()


_SERVER_STATE = """
SELECT pg_backend_pid(),
       CASE WHEN pg_is_in_recovery() THEN NULL ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
       current_setting('fsync'), current_setting('full_page_writes'),
       CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
            ELSE current_setting('synchronous_commit') END
"""
_CLOSE_SECONDS = 2


def _begin_with(settings: dict[str, str]) -> str:
    return ";".join((BEGIN, *(f"SET LOCAL {name} = '{value}'" for name, value in settings.items())))


async def _close_connection(connection: Connection) -> None:
    try:
        await connection.close(timeout=_CLOSE_SECONDS)
    except FAILURES:
        connection.terminate()
