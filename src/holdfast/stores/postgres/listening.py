"""Listening: other processes' commits are heard as notifications, and looked for when they are not."""

import asyncio
from functools import partial

from holdfast.core.errors import HoldfastError
from holdfast.ports import Clock, Ids
from holdfast.stores.postgres.errors import FAILURES
from holdfast.stores.postgres.sessions import Connection, Session, Sessions
from holdfast.stores.signal import Signal
from holdfast.system import jittered

POLL_SECONDS = 1.0
RECONNECT_SECONDS = 1.0
QUIET_SECONDS = 0.005
NOTHING_READY = "nothing ready"
"""What a commit tells that lets nobody claim anything; all others tell nothing but that they are."""


def words(*, ready: bool) -> str:
    """What a commit tells: whether it may have made a job ready."""
    return "" if ready else NOTHING_READY


class Herald:
    """Decides which commits carry a notification: one after a quiet moment at once, those that follow
    close together with a single one behind them. PostgreSQL commits one notifier at a time."""

    def __init__(self, sessions: Sessions, channel: str, clock: Clock) -> None:
        self._sessions = sessions
        self._channel = channel
        self._clock = clock
        self._told = float("-inf")
        self._owing = self._owing_ready = False
        self._task: asyncio.Task[None] | None = None

    def channel(self) -> str:
        """The channel that the commit about to be made tells; empty when it tells none."""
        quiet = self._clock.monotonic() - self._told
        return self._channel if quiet >= QUIET_SECONDS else ""

    def committed(self, channel: str, *, ready: bool) -> None:
        """A commit has landed; if it told nobody, tell them soon."""
        if channel:
            self._told = self._clock.monotonic()
        else:
            self._owing = True
            self._owing_ready |= ready
        if self._owing and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        sql = "SELECT pg_notify($1, $2)"
        try:
            while self._owing:
                await self._clock.sleep(QUIET_SECONDS)
                tell = partial(_fetch, sql, self._channel, words(ready=self._owing_ready))
                # What lands from here on may come too late for this one.
                self._owing = self._owing_ready = False
                await self._sessions.use(tell, patient=False)
        except HoldfastError:
            pass  # a hint only: who waits looks by itself
        finally:
            self._task = None

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


async def _fetch(sql: str, channel: str, told: str, session: Session) -> None:
    await session.fetch(sql, channel, told)


class Listener:
    """One connection that listens while somebody waits. A notification is a hint, and so is its absence:
    who waits looks again after a while in any case."""

    def __init__(
        self, sessions: Sessions, channel: str, signal: Signal, clock: Clock, ids: Ids
    ) -> None:
        self._sessions = sessions
        self._channel = channel
        self._signal = signal
        self._clock = clock
        self._ids = ids
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    def patience(self, seconds: float) -> float:
        """How long one may wait for a notification before looking."""
        if self._connection is not None:
            return seconds
        return min(seconds, jittered(POLL_SECONDS, self._ids))

    def start(self) -> None:
        """Listen, unless a pooler stands between: it would forget whom to tell."""
        if self._task is None and not self._sessions.pooled:
            self._task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while not self._sessions.pooled:
            ended = asyncio.Event()
            try:
                connection = await self._sessions.connect()
            except (*FAILURES, HoldfastError):
                await self._clock.sleep(RECONNECT_SECONDS * (0.5 + self._ids.chance()))
                continue
            try:
                connection.add_termination_listener(lambda _, ended=ended: ended.set())
                await connection.add_listener(self._channel, self._hear)
                self._connection = connection
                self._signal.set()  # whatever was committed while nobody listened
                await ended.wait()
            except FAILURES:
                pass
            finally:
                self._connection = None
                self._sessions.drop(connection)
            self._signal.set()

    def _hear(self, connection: object, pid: int, channel: str, payload: object) -> None:
        if pid not in self._sessions.pids:
            self._signal.set(ready=payload != NOTHING_READY)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
