"""The listener of the HTTP server: how many connections are open, and which is closed for another.

A connection on which no call was let in yet is closed first, the oldest one. So connections that say nothing
can neither use up the descriptors of the process nor keep out clients that have a key. What is at work is not
closed; so one key has calls under way on half of the connections at most, and more of them are refused. It is
the call that counts, and not who opened the connection: one from a proxy carries the calls of all keys.
"""

import asyncio
import errno
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from msgspec import Struct

from holdfast.server.limits import (
    CONNECTIONS_MAX,
    DESCRIPTORS_MAX,
    KEY_SHARE,
    REQUEST_SECONDS_MAX,
)

Peer: TypeAlias = tuple[str, int]
ACCEPTED_AT_ONCE = 64
RETRY_SECONDS = 0.1
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Opened(Struct, eq=False):
    """One connection, from accept on. `abort` and `idle` are known when its protocol has begun, which for
    TLS is after the handshake."""

    peer: Peer
    socket: socket.socket
    abort: Callable[[], None] | None = None
    idle: Callable[[], bool] = lambda: True
    key_id: str | None = None
    """The key of the call under way, once that was let in."""

    def close(self) -> None:
        """Close it, whatever it is doing."""
        if self.abort is not None:
            self.abort()
        else:
            with suppress(OSError):  # it is gone already
                self.socket.shutdown(socket.SHUT_RDWR)


class Connections:
    """The open connections of a server, oldest first. `most` may be open; of those on which no call was
    let in yet, `most_of_address` from one address; of those with a call under way, a share for each key."""

    def __init__(self, most: int, most_of_address: int) -> None:
        self.most = most
        self.most_of_address = most_of_address
        self._strangers: dict[Peer, Opened] = {}
        self._clients: dict[Peer, Opened] = {}
        self._of_address: Counter[str] = Counter()
        self._of_key: Counter[str] = Counter()
        self._leaving: list[Opened] = []

    def __len__(self) -> int:
        return len(self._strangers) + len(self._clients)

    def full(self) -> bool:
        """Whether so many are being closed that the next one has to wait for their descriptors."""
        self._leaving = [one for one in self._leaving if one.socket.fileno() >= 0]
        return len(self._leaving) >= max(1, self.most // 8)

    def add(self, accepted: socket.socket, peer: Peer) -> Opened:
        """Take in a connection, and close another for it when there are too many."""
        if len(self) >= self.most or self._of_address[peer[0]] >= self.most_of_address:
            self._forget_closed()
        if self._of_address[peer[0]] >= self.most_of_address:
            self._part(next(one for one in self._strangers.values() if one.peer[0] == peer[0]))
        elif len(self) >= self.most and (other := self._least()) is not None:
            self._part(other)
        self._strangers[peer] = opened = Opened(peer, accepted)
        self._of_address[peer[0]] += 1
        if len(self) > self.most:
            self._part(opened)
        return opened

    def most_of_key(self) -> int:
        """On how many connections one key may have calls under way."""
        return max(1, self.most // KEY_SHARE)

    def let_in(self, opened: Opened, key_id: str | None) -> bool:
        """Let in a call on this connection: it is closed after all those where none was. False: its key has
        as many under way as one may have."""
        if opened not in (self._strangers.get(opened.peer), self._clients.get(opened.peer)):
            return True  # it is closed already
        if key_id is not None and opened.key_id is None:
            if self._of_key[key_id] >= self.most_of_key():
                return False
            opened.key_id = key_id
            self._of_key[key_id] += 1
        if opened.peer in self._strangers:
            self._forget(opened)
            self._clients[opened.peer] = opened
        return True

    def answered(self, opened: Opened) -> None:
        """The call under way on this connection has its answer."""
        if (key_id := opened.key_id) is not None:
            opened.key_id = None
            self._of_key[key_id] -= 1
            if not self._of_key[key_id]:
                del self._of_key[key_id]

    def end(self, opened: Opened) -> None:
        """Forget a connection that is closed."""
        self.answered(opened)
        self._forget(opened)

    def _forget(self, opened: Opened) -> None:
        if self._clients.get(opened.peer) is opened:
            del self._clients[opened.peer]
        elif self._strangers.get(opened.peer) is opened:
            del self._strangers[opened.peer]
            self._of_address[opened.peer[0]] -= 1
            if not self._of_address[opened.peer[0]]:
                del self._of_address[opened.peer[0]]

    def _least(self) -> Opened | None:
        """Which is closed for another: the oldest that is unknown, or idle."""
        idle = (one for one in self._clients.values() if one.idle())
        return next(iter(self._strangers.values()), None) or next(idle, None)

    def _part(self, opened: Opened) -> None:
        self.end(opened)
        self._leaving.append(opened)
        opened.close()

    def _forget_closed(self) -> None:
        """Forget those that ended before their protocol began."""
        for one in [*self._strangers.values(), *self._clients.values()]:
            if one.socket.fileno() < 0:
                self.end(one)


class Listener:
    """Accepts connections on a socket, as many as there may be, and begins a protocol on each."""

    def __init__(
        self,
        listening: socket.socket,
        connections: Connections,
        protocol: Callable[[Opened], asyncio.Protocol],
        certificate: ssl.SSLContext | None,
    ) -> None:
        self._socket = listening
        self._connections = connections
        self._protocol = protocol
        self._certificate = certificate
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        self._beginning: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._again = None
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if self._connections.full():
                return  # those are closed first
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._loop.remove_reader(self._socket.fileno())
                self._again = self._loop.call_later(RETRY_SECONDS, self.start)
                return
            accepted.setblocking(False)
            opened = self._connections.add(accepted, address[:2])
            task = self._loop.create_task(self._begin(opened))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def _begin(self, opened: Opened) -> None:
        """Begin the protocol; with a certificate, after a handshake in good time."""
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._protocol(opened),
                opened.socket,
                ssl=self._certificate,
                ssl_handshake_timeout=REQUEST_SECONDS_MAX if self._certificate else None,
            )
        except OSError:  # also of TLS: it left, or spoke something else
            opened.socket.close()
            self._connections.end(opened)

    def close(self) -> None:
        """Accept no more."""
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._socket.fileno())
        for task in self._beginning:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._beginning, return_exceptions=True)


def connections_max() -> int:
    """So many connections by HTTP as leave half of the descriptors of this process for all else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, soft // 2)


def raise_descriptor_limit() -> None:
    """Let this process have as many descriptors as it may: many systems begin with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if resource.RLIM_INFINITY != soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
