"""Notifications of commits between processes; where none can arrive, the store is polled instead."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from holdfast.core.errors import HoldfastError
from holdfast.ports import Clock, Ids
from holdfast.stores.commit_signal import CommitSignal
from holdfast.stores.postgres.errors import FAILURES
from holdfast.stores.postgres.sessions import Connection, Sessions
from holdfast.system import jittered

T = TypeVar("T")

POLL_SECONDS = 1.0
RECONNECT_SECONDS = 1.0
QUIET_SECONDS = 0.005
CARRIER_SECONDS_MAX = 0.02
"""How long commits wait to be told of by another one that is under way."""
NOTHING_READY = "nothing ready"
"""The payload of a commit that made no job claimable; that of all others is empty."""


class Notice(Struct, frozen=True, gc=False):
    """What one commit tells. `channel` is the one that it notifies; empty, a later notification tells of it.
    It also tells of the first `covers` commits that were left to a later one: `ready` says whether one of
    those may have made a job ready."""

    channel: str = ""
    covers: int = 0
    ready: bool = False

    def payload(self, *, ready: bool) -> str:
        """Return the payload of the notification of a commit that may have made a job ready itself."""
        return "" if ready or self.ready else NOTHING_READY


NO_NOTICE = Notice()


class Notifier:
    """Decides which commits carry a notification. PostgreSQL commits one notifying transaction at a time, so
    the first commit after a quiet time carries one, and those that follow closely leave theirs to the next
    that does. If none comes soon, a notification is sent for them on its own."""

    def __init__(self, sessions: Sessions, channel: str, clock: Clock) -> None:
        self._sessions = sessions
        self._channel = channel
        self._clock = clock
        self._notified_at = float("-inf")
        self._under_way: Notice | None = None
        # The commits without a notification are numbered: how many there are, the last that may have made a
        # job ready, the last that was told, and since when the others wait.
        self._left = self._left_ready = self._told = 0
        self._left_since = 0.0
        self._task: asyncio.Task[None] | None = None

    async def attach(self, commit: Callable[[Notice], Awaitable[T]]) -> T:
        """Make a commit, which passes its notice to `committed` if it lands."""
        notice = self.begin()
        try:
            return await commit(notice)
        finally:
            self.end(notice)

    def begin(self) -> Notice:
        """Return what the commit that begins now tells. It is passed to `committed` if the commit lands, and
        to `end` in any case."""
        if self._under_way or self._clock.monotonic() - self._notified_at < QUIET_SECONDS:
            return NO_NOTICE
        # All that were counted so far have landed: whoever gets this notification can see them.
        self._under_way = Notice(self._channel, self._left, self._left_ready > self._told)
        return self._under_way

    def end(self, notice: Notice) -> None:
        if notice is self._under_way:
            self._under_way = None

    def committed(self, notice: Notice, *, ready: bool) -> None:
        """Account for a commit that has landed; if it carried no notification, see to it that one follows."""
        now = self._clock.monotonic()
        if notice.channel:
            self._told = max(self._told, notice.covers)
            self._notified_at = self._left_since = now
            return
        if self._left == self._told:
            self._left_since = now
        self._left += 1
        if ready:
            self._left_ready = self._left
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._tell_rest())

    async def _tell_rest(self) -> None:
        """Wait for a commit that tells of those before it, but not for long."""
        try:
            while self._told < self._left:
                patience = CARRIER_SECONDS_MAX if self._under_way else QUIET_SECONDS
                rest = self._left_since + patience - self._clock.monotonic()
                if rest > 0:
                    await self._clock.sleep(min(rest, QUIET_SECONDS))
                else:
                    await self._send()
        finally:
            self._task = None

    async def _send(self) -> None:
        notice = Notice(self._channel, self._left, self._left_ready > self._told)
        self._under_way = self._under_way or notice
        sql = "SELECT pg_notify($1, $2)"
        try:
            await self._sessions.use(
                lambda session: session.fetch(sql, self._channel, notice.payload(ready=False)), patient=False
            )
        except HoldfastError:
            pass  # only a hint: a waiting process reads again by itself
        finally:
            self.end(notice)
        self.committed(notice, ready=False)

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


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
