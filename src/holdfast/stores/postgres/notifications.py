"""Notifications of commits between processes; where none can arrive, the store is polled instead."""

import asyncio
from functools import partial

from holdfast.core.errors import HoldfastError
from holdfast.ports import Clock, Ids
from holdfast.stores.commit_signal import CommitSignal
from holdfast.stores.postgres.errors import FAILURES
from holdfast.stores.postgres.sessions import Connection, Session, Sessions
from holdfast.system import jittered

POLL_SECONDS = 1.0
RECONNECT_SECONDS = 1.0
QUIET_SECONDS = 0.005
NOTHING_READY = "nothing ready"
"""The payload of a commit that made no job claimable; that of all others is empty."""


def notification_payload(*, ready: bool) -> str:
    """Return the payload of a commit's notification: whether it may have made a job ready."""
    return "" if ready else NOTHING_READY


class Notifier:
    """Decides which commits carry a notification: the first after a quiet time carries its own; those that
    follow closely share one that is sent after them. PostgreSQL commits one notifying transaction at a
    time."""

    def __init__(self, sessions: Sessions, channel: str, clock: Clock) -> None:
        self._sessions = sessions
        self._channel = channel
        self._clock = clock
        self._notified_at = float("-inf")
        self._pending = self._pending_ready = False
        self._task: asyncio.Task[None] | None = None

    def channel(self) -> str:
        """Return the channel that the next commit notifies; empty when it notifies none."""
        quiet = self._clock.monotonic() - self._notified_at
        return self._channel if quiet >= QUIET_SECONDS else ""

    def committed(self, channel: str, *, ready: bool) -> None:
        """Account for a commit; if it carried no notification (`channel` is empty), send one soon."""
        if channel:
            self._notified_at = self._clock.monotonic()
        else:
            self._pending = True
            self._pending_ready |= ready
        if self._pending and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_pending())

    async def _send_pending(self) -> None:
        sql = "SELECT pg_notify($1, $2)"
        try:
            while self._pending:
                await self._clock.sleep(QUIET_SECONDS)
                send = partial(_fetch, sql, self._channel, notification_payload(ready=self._pending_ready))
                # A commit that lands from here on may not be visible when this one arrives.
                self._pending = self._pending_ready = False
                await self._sessions.use(send, patient=False)
        except HoldfastError:
            pass  # only a hint: a waiting process reads again by itself
        finally:
            self._task = None

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


async def _fetch(sql: str, channel: str, payload: str, session: Session) -> None:
    await session.fetch(sql, channel, payload)


class NotificationListener:
    """One connection that listens while a caller waits. A notification is only a hint, and may be missing:
    a waiting caller reads again after a while in any case."""

    def __init__(
        self, sessions: Sessions, channel: str, signal: CommitSignal, clock: Clock, ids: Ids
    ) -> None:
        self._sessions = sessions
        self._channel = channel
        self._signal = signal
        self._clock = clock
        self._ids = ids
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    def wait_seconds(self, seconds: float) -> float:
        """Return how long a caller may wait for a notification before it reads again."""
        if self._connection is not None:
            return seconds
        return min(seconds, jittered(POLL_SECONDS, self._ids))

    def start(self) -> None:
        """Listen, unless a pooler is in between: behind one, a session gets no notifications."""
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
                await connection.add_listener(self._channel, self._on_notification)
                self._connection = connection
                self._signal.set()  # for commits from before this connection listened
                await ended.wait()
            except FAILURES:
                pass
            finally:
                self._connection = None
                self._sessions.drop(connection)
            self._signal.set()

    def _on_notification(self, connection: object, pid: int, channel: str, payload: object) -> None:
        if pid not in self._sessions.pids:
            self._signal.set(ready=payload != NOTHING_READY)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
