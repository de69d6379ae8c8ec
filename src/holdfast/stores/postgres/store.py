"""The PostgreSQL store: one database, any number of processes on any number of machines."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from holdfast.core.access import Key
from holdfast.core.errors import HoldfastError, Invalid, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job, Resource
from holdfast.core.state import State
from holdfast.ports import (
    Census,
    Clock,
    Decision,
    Filter,
    Finding,
    HistoryPage,
    Ids,
    One,
    Page,
    Pruned,
    Slice,
    Work,
)
from holdfast.stores import filters
from holdfast.stores.held import Held
from holdfast.stores.owners import shut_out
from holdfast.stores.postgres import clock_steps
from holdfast.stores.postgres.address import Address, address_of
from holdfast.stores.postgres.choosing import Choice, Seen
from holdfast.stores.postgres.committing import Commit, Misguessed
from holdfast.stores.postgres.epochs import epoch_of
from holdfast.stores.postgres.errors import AGAIN, FAILURES, Busy, NoRoom, translate
from holdfast.stores.postgres.examining import examine, examine_server
from holdfast.stores.postgres.joining import ELSEWHERE, Guest, guest_of, homeless, refused, taken
from holdfast.stores.postgres.listening import Herald, Listener
from holdfast.stores.postgres.marks import Marks
from holdfast.stores.postgres.migrating import migrate
from holdfast.stores.postgres.partitions import JOBS_PER_PARTITION, drop_husks, room_for_events
from holdfast.stores.postgres.place import Place
from holdfast.stores.postgres.pruning import prune
from holdfast.stores.postgres.reading import Reading
from holdfast.stores.postgres.rows import key_row
from holdfast.stores.postgres.server_time import ServerTime, Stepped
from holdfast.stores.postgres.sessions import Session, Sessions
from holdfast.stores.postgres.statements import statement
from holdfast.stores.signal import Signal
from holdfast.system import BootClock, SystemClock

T = TypeVar("T")

TRIES_MAX = 20
WAITS_MAX = 2
COMMITS_PER_CLEANING = 200
COUNTS_MAX = 2_000
PRUNE_SECONDS = 300


class PostgresStore:
    """Tables in one schema of one database. Every commit is one statement or one short transaction;
    `retries` counts those that were undone, since somebody else had been there, and decided again."""

    def __init__(self, address: Address, clock: Clock | None, ids: Ids) -> None:
        system = SystemClock()
        self._address = address
        ready, due = Marks(clock or system), Marks(clock or system)
        time = ServerTime(BootClock())
        self._place = Place(address.schema, ready, due, Held(), time, clock=clock)
        self._sessions = Sessions(address, system, ids)
        self._signal = Signal(clock or system)
        self._channel = f"{address.schema}_commit"
        self._herald = Herald(self._sessions, self._channel, system)
        self._listener = Listener(self._sessions, self._channel, self._signal, system, ids)
        self._ids = ids
        self._secret = b""
        self.commits = 0
        self.retries = 0
        self._counts = 0
        self._room = 0

    @classmethod
    async def open(
        cls, url: str, *, ids: Ids, clock: Clock | None = None, create: bool = True
    ) -> "PostgresStore":
        """Connect, and make or bring forward the tables; without `create`, only if there are some.
        `clock` replaces the server's, for tests."""
        store = cls(address_of(url), clock, ids)
        try:
            await store._open(create=create)
        except BaseException:
            await store.close()
            raise
        store._sessions.renew = store._open
        return store

    @classmethod
    async def examine_server(cls, url: str, *, ids: Ids) -> list[Finding]:
        """Connect, and say what the server guarantees, though our tables are not there."""
        store = cls(address_of(url), None, ids)
        sessions, address = store._sessions, store._address

        async def work(session: Session) -> list[Finding]:
            return await examine_server(session, address, SystemClock(), pooled=sessions.pooled)

        try:
            return await sessions.use(work, patient=False)
        finally:
            await store.close()

    async def _open(self, *, create: bool = False) -> None:
        """Find the tables and their epoch; also anew, when another server answers than before."""
        self._place.held.forget()
        self._place.time.forget()
        pending = await self._sessions.use(lambda s: self._begin(s, create=create), patient=False)
        if pending:
            await shut_out(self, pending)
            await self._forget("shutting_out")

    async def _begin(self, session: Session, *, create: bool) -> str | None:
        schema, ids = self._address.schema, self._ids
        await migrate(session, self._address, create=create)
        self._secret = await _secret_of(session, schema, ids)
        epoch, pending = await epoch_of(session, schema, ids)
        self._place = replace(self._place, epoch=epoch)
        await self._make_room(session)
        if not self._place.time.heard:
            await clock_steps.look(session, self._place)
        return pending

    async def _forget(self, name: str) -> None:
        sql = statement("delete_meta", self._address.schema)
        await self._sessions.use(lambda session: session.fetch(sql, name))

    async def _make_room(self, session: Session) -> None:
        self._room = await room_for_events(session, self._address.schema)

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        choosing = any(not isinstance(work.selection, One) for work in works)
        first = True

        async def attempt(session: Session) -> list[list[Decision]]:
            nonlocal first
            hopeful, first = first, False  # a second try locks what it reads, and guesses nothing
            locked = choosing or self._sessions.pooled or not hopeful
            if not (hopeful and self._place.time.compared):  # perhaps the clock was set
                await clock_steps.compare(session, self._place)
            try:
                return await self._attempt(session, works, locked=locked, hopeful=hopeful)
            except Misguessed:
                return await self._attempt(session, works, locked=locked)

        try:
            return await self._commit(attempt)
        except Unavailable as error:
            if error.applied != "unknown" or not all(map(_is_fresh, works)):
                raise
        try:  # nobody else knows these ids: they are there, or not
            return await self._commit(attempt)
        except HoldfastError as error:  # which says nothing about the first time
            raise Unavailable(error.message, applied="unknown") from error

    async def _commit(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Do `work`, again if it was undone because somebody else had been there."""
        waits = 0
        for _ in range(TRIES_MAX):
            try:
                return await self._sessions.use(work, deciding=True)
            except AGAIN as error:
                self.retries += 1
                waits += isinstance(error, Busy)
                if waits == WAITS_MAX:
                    raise translate(error, self._address) from error
            except NoRoom:
                await self._sessions.use(self._make_room)
            except Stepped:
                await self._settle()
        raise Unavailable("The jobs change too fast to be written; nothing was applied.")

    async def _settle(self) -> None:
        """The server's clock does not tell what it should: see to it, before anything is decided."""
        await self._sessions.use(lambda session: clock_steps.settle(session, self._place))

    async def _attempt(
        self, session: Session, works: Sequence[Work], *, locked: bool, hopeful: bool = False
    ) -> list[list[Decision]]:
        """Decide and commit. Unlocked, one statement reads, and one writes if nothing has changed."""
        channel = self._herald.channel()
        commit = Choice(
            session, self._place, works, locked=locked, hopeful=hopeful, channel=channel
        )
        # Behind a pooler it may be a replica that answers: only who locks what it reads finds out.
        seen = Seen.MORE if self._sessions.pooled else await commit.glance()
        if seen is Seen.NOTHING:
            return [[] for _ in works]
        if seen is Seen.FEW:
            if not await commit.seize():
                session.uncertain = False
                return await self._attempt(session, works, locked=locked)
        elif locked:
            async with session.transaction():
                await commit.run()
        else:
            await commit.run()
        if commit.wrote:
            commit.remember()
            self._committed(channel, ready=commit.readied)
            await self._keep_house(session, commit)
        return commit.answers

    def _committed(self, channel: str, *, ready: bool) -> None:
        self._signal.set(ready=ready)
        self._herald.committed(channel, ready=ready)

    async def _keep_house(self, session: Session, commit: Commit) -> None:
        """What has to be done now and then, by whoever commits. A failure here is nobody's loss."""
        self.commits += 1
        self._counts += commit.counts
        if self.commits % COMMITS_PER_CLEANING and self._counts < COUNTS_MAX // 2:
            return
        self._counts = 0
        try:
            await session.fetch(statement("add_up_counts", self._address.schema), COUNTS_MAX)
            if commit.last_seq + JOBS_PER_PARTITION > self._room:
                await self._make_room(session)
        except FAILURES:
            session.whole = False

    async def transact_within(
        self, connection: object, works: Sequence[Work]
    ) -> list[list[Decision]]:
        """Decide and write as part of the transaction that `connection` is in: it all happens if and only
        if its owner commits."""
        guest = guest_of(connection)
        for n in range(TRIES_MAX):
            try:
                async with guest.savepoint():
                    await self._check_home(guest)
                    if n:
                        await clock_steps.look(guest, self._place, ours=False)
                    commit = Commit(
                        guest, self._place, works, locked=False, ours=False, channel=self._channel
                    )
                    return await commit.run()
            except HoldfastError:
                raise
            except Exception as error:
                if homeless(error):
                    await self._sessions.use(self._make_room)
                elif not taken(error):
                    raise refused(error) from error
                last = error
        raise refused(last) from last

    async def _check_home(self, guest: Guest) -> None:
        """Another store's tables look like ours, but do not have our secret."""
        rows = await guest.fetch(statement("get_meta", self._address.schema), "secret")
        if [row[0] for row in rows] != [self._secret.hex()]:
            raise Invalid(ELSEWHERE)

    async def record(self, events: Sequence[Event]) -> int:
        async def work(session: Session) -> int:
            channel = self._herald.channel()
            commit = Commit(session, self._place, (), locked=False, channel=channel)
            new = await commit.record(events)
            if new:
                self._committed(channel, ready=False)
            return new

        return await self._commit(work)

    async def prune(self, *, ended_before: datetime, output_before: datetime, limit: int) -> Pruned:
        async def work(session: Session) -> Pruned:
            schema = self._address.schema
            async with session.transaction(seconds=PRUNE_SECONDS):
                pruned = await prune(session, schema, ended_before, output_before, limit)
            if pruned.jobs < limit:
                await drop_husks(session, schema)
            return pruned

        return await self._commit(work)

    async def _read(
        self, question: Callable[[Reading], Awaitable[T]], *, scanning: bool = False
    ) -> T:
        return await self._sessions.use(
            lambda s: question(Reading(s, self._place)), scanning=scanning
        )

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        return await self._read(lambda r: r.get(job_ids))

    async def list_jobs(
        self, which: Filter, *, after: str | None, limit: int, newest: bool = False
    ) -> Page:
        return await self._read(
            lambda r: r.list_jobs(which, after=after, limit=limit, newest=newest), scanning=True
        )

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        return await self._read(lambda r: r.counts(queue))

    async def census(self, limit: int) -> Census:
        return await self._read(lambda r: r.census(limit, self.retries), scanning=True)

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        many = len(job_ids) > filters.HISTORIES_QUICK_MAX
        return await self._read(lambda r: r.histories(job_ids), scanning=many)

    async def history(self, job_id: str, *, after: str | None, limit: int) -> HistoryPage:
        return await self._read(lambda r: r.history(job_id, after, limit), scanning=True)

    async def published(self, job_id: str, token: int, *, first: int) -> list[int]:
        return await self._read(lambda r: r.published(job_id, token, first=first))

    async def log(
        self, job_id: str, *, after: str | None, limit: int, output: bool = True
    ) -> Slice:
        return await self._read(
            lambda r: r.log(job_id, after=after, limit=limit, output=output), scanning=True
        )

    async def feed(self, *, after: str | None, limit: int) -> Slice:
        return await self._read(lambda r: r.feed(after=after, limit=limit), scanning=True)

    async def tail(self) -> str:
        return await self._read(lambda r: r.tail())

    async def resource(self, key: str) -> Resource:
        return await self._read(lambda r: r.resource(key))

    async def keys(self) -> list[Key]:
        return await self._read(lambda r: r.keys())

    async def put_key(self, key: Key) -> None:
        sql = statement("put_api_key", self._address.schema)
        await self._commit(lambda session: session.write(sql, *key_row(key)))
        self._signal.set(ready=False)

    async def now(self) -> datetime:
        if self._place.clock:
            return self._place.clock.now()

        async def work(session: Session) -> datetime:
            asked = self._place.time.ask()
            now = await Reading(session, self._place).now()
            if not self._place.time.hear(now, asked):
                raise Stepped
            return now

        try:
            return await self._sessions.use(work)
        except Stepped:
            await self._settle()
        return await self.now()

    async def secret(self) -> bytes:
        return self._secret

    async def examine(self) -> list[Finding]:
        async def work(session: Session) -> list[Finding]:
            reading, pooled = Reading(session, self._place), self._sessions.pooled
            return await examine(session, reading, self._address, SystemClock(), pooled=pooled)

        return await self._sessions.use(work, scanning=True)

    def mark(self, *, ready: bool = False) -> int:
        return self._signal.mark(ready=ready)

    async def wait(self, mark: int, timeout: float, *, ready: bool = False) -> None:  # noqa: ASYNC109
        if self._signal.mark(ready=ready) == mark:
            self._listener.start()
            await self._signal.wait(mark, self._listener.patience(timeout), ready=ready)

    def describe(self) -> str:
        return (
            f"PostgreSQL at {self._address.shown}, schema {self._address.schema}: acknowledged writes"
            " survive kill -9 and power loss of the server; any number of processes and machines"
        )

    async def close(self) -> None:
        await self._herald.close()
        await self._listener.close()
        await self._sessions.close()


async def _secret_of(session: Session, schema: str, ids: Ids) -> bytes:
    """The store's secret; whoever comes first makes it."""
    get, put = statement("get_meta", schema), statement("put_meta", schema)
    rows = await session.fetch(get, "secret")
    if not rows:
        await session.fetch(put, "secret", ids.secret().hex())
        rows = await session.fetch(get, "secret")
    return bytes.fromhex(rows[0][0])


def _is_fresh(work: Work) -> bool:
    return isinstance(work.selection, One) and work.selection.fresh
