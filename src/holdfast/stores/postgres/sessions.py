"""Sessions: connections to one database, each in one caller's hand at a time, and what is set on them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any, TypeAlias, TypeVar

import asyncpg
from asyncpg import exceptions as pg

from holdfast.core.errors import Invalid
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Ids
from holdfast.stores.postgres.address import Address
from holdfast.stores.postgres.errors import (
    AGAIN,
    FAILURES,
    Away,
    NoRoom,
    Replica,
    lost,
    translate,
    unsent,
    useless,
)
from holdfast.stores.postgres.moments import teach
from holdfast.stores.postgres.statements import Row

T = TypeVar("T")
Connection: TypeAlias = "asyncpg.Connection[Any]"

CONNECTIONS_MAX = 4
SCANS_MAX = 1
"""Of the connections, those that may read much at a time: the others are for what is quick."""

CONNECT_SECONDS = 10
ANSWER_SECONDS = 30
AWAY_SECONDS_MAX = 10.0
PAUSE_SECONDS = 0.05
PAUSE_SECONDS_MAX = 1.0

# A session that is frozen inside a transaction, or waits too long, is ended by the server well before a
# lease is: it can hide no job. The planner's settings keep every batch on its indexes, however little
# PostgreSQL knows about tables that grew a minute ago.
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
    """A connection in a caller's hand. `uncertain`: what was sent may have been committed; `whole`: others
    may use the connection afterwards."""

    def __init__(self, connection: Connection, begin: str = BEGIN, *, pooled: bool = False) -> None:
        self.connection = connection
        self.uncertain = False
        self.whole = True
        self._begin = begin
        self._pooled = pooled
        self._inside = False
        self._seconds: float | None = None

    async def fetch(self, sql: str, *parameters: object) -> Sequence[Row]:
        if self._pooled and not self._inside:  # else its parts may reach two servers
            async with self.transaction():
                return await self.fetch(sql, *parameters)
        rows: Sequence[Row] = await self.connection.fetch(sql, *parameters, timeout=self._seconds)
        return rows

    async def write(self, sql: str, *parameters: object) -> Sequence[Row]:
        """The statement that writes: outside a transaction, it is one of its own."""
        self.uncertain = not self._inside
        rows = await self.fetch(sql, *parameters)
        if self._inside:
            failpoint("postgres.written")
        else:
            failpoint("postgres.committed_at_once")
        return rows

    @asynccontextmanager
    async def transaction(
        self, *settings: str, seconds: float | None = None
    ) -> AsyncIterator[None]:
        """Commit what is done inside, unless it raises. `settings` last as long as the transaction, and
        each of its statements may take so many `seconds`."""
        if seconds is not None:
            settings = (f"SET LOCAL statement_timeout = '{seconds}s'", *settings)
        await self.connection.execute(";".join((self._begin, *settings)))
        self._inside, self._seconds = True, seconds
        failpoint("postgres.begun")
        try:
            yield
        except Exception as error:
            if not lost(error):
                await self.connection.execute("ROLLBACK")
            raise
        else:
            self.uncertain = True
            await self.connection.execute("COMMIT")
        finally:
            self._inside, self._seconds = False, None
        failpoint("postgres.committed")


class Sessions:
    """The connections of one store. Behind a pooler, nothing that is set outlives a transaction."""

    def __init__(self, address: Address, clock: Clock, ids: Ids) -> None:
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
        """Do `work` on a connection. While the server is away and nothing was applied, wait for it to
        come back; who is `deciding` answers a conflict with somebody else's commit by itself, and is told
        when nobody knows whether its own was made. All other work may be done twice. `scanning` is what
        may read much: it leaves connections for the rest."""
        deadline = self._clock.monotonic() + (AWAY_SECONDS_MAX if patient else 0)
        pause = PAUSE_SECONDS
        while True:
            session = None
            try:
                async with self._turn(deciding, scanning), self._lent() as session:
                    if self._moves == self._renewed or self._renewer is asyncio.current_task():
                        return await work(session)
                await self._renew()
                continue
            except FAILURES as error:
                if deciding and isinstance(error, (*AGAIN, NoRoom)):
                    raise
                sent = session is not None and session.uncertain and not unsent(error)
                doubt = deciding and sent and lost(error)
                told = translate(error, self.address, "unknown" if doubt else "no")
                if doubt or not isinstance(told, Away) or self._clock.monotonic() > deadline:
                    raise told from error
            await self._clock.sleep(pause * (0.5 + self._ids.chance()))
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    @asynccontextmanager
    async def _turn(self, deciding: bool, scanning: bool) -> AsyncIterator[None]:
        async with (
            self._scanning if scanning else nullcontext(),
            nullcontext() if deciding else self._asking,
        ):
            yield

    async def _renew(self) -> None:
        """Another server has taken over, perhaps without the last commits: begin as when it was opened."""
        async with self._renewal:
            self._renewer = asyncio.current_task()
            try:
                moves = self._moves  # another one meanwhile calls for another renewal
                if moves != self._renewed and self.renew:
                    await self.renew()
                self._renewed = moves
            finally:
                self._renewer = None

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[Session]:
        """A connection, idle or new; one that ended in doubt is thrown away."""
        async with self._free:
            connection = await self._take()
            session = Session(connection, self._begin, pooled=self.pooled)
            whole = False
            try:
                yield session
                whole = session.whole
            except Exception as error:
                whole = not useless(error)
                raise
            finally:
                self._give_back(connection, whole=whole)

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
            self.pids.discard(connection.get_server_pid())
        return await self.connect()

    def _give_back(self, connection: Connection, *, whole: bool) -> None:
        sound = whole and not connection.is_closed() and not connection.is_in_transaction()
        if sound and not self._closed:
            self._idle.append(connection)
        else:
            self.drop(connection)

    def drop(self, connection: Connection) -> None:
        """Cut a connection off; nobody is told."""
        self.pids.discard(connection.get_server_pid())
        connection.terminate()

    async def connect(self) -> Connection:
        """A new connection with our settings, to a server that keeps what it acknowledges."""
        try:
            connection = await self._dial()
        except (pg.ProtocolViolationError, pg.FeatureNotSupportedError):
            if self.pooled:
                raise
            self.pooled = True  # a pooler takes none of our settings
            connection = await self._dial()
        try:
            return await self._greet(connection)
        except BaseException:
            connection.terminate()
            raise

    async def _dial(self) -> Connection:
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

    async def _greet(self, connection: Connection) -> Connection:
        """Find out who answers, refuse what loses data, and make commits wait for the disk."""
        async with Session(connection).transaction():
            [(pid, timeline, *unsafe, waits)] = await connection.fetch(_GREETING)
            await teach(connection)
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
        else:  # said here, it stays so, whatever the server is told later
            await connection.execute(f"SET synchronous_commit = '{waits}'")
        self.pids.add(connection.get_server_pid())
        self._moves += self._timeline not in (None, timeline)
        self._timeline = timeline
        return connection

    async def close(self) -> None:
        self._closed = True
        for connection in self._idle:
            await _hang_up(connection)
        self._idle.clear()


_GREETING = """
SELECT pg_backend_pid(),
       CASE WHEN pg_is_in_recovery() THEN NULL ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
       current_setting('fsync'), current_setting('full_page_writes'),
       CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
            ELSE current_setting('synchronous_commit') END
"""
_GOODBYE_SECONDS = 2


def _begin_with(settings: dict[str, str]) -> str:
    return ";".join((BEGIN, *(f"SET LOCAL {name} = '{value}'" for name, value in settings.items())))


async def _hang_up(connection: Connection) -> None:
    try:
        await connection.close(timeout=_GOODBYE_SECONDS)
    except FAILURES:
        connection.terminate()
