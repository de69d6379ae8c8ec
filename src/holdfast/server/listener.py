"""The listener of the HTTP server: how many connections may be open, and which is closed for a new one.

The oldest connection on which no call was admitted yet is closed first. So idle connections can neither use
up the descriptors of the process nor keep out clients that have a key. A connection with a call under way
is not closed; so one key may have calls under way on half of the connections, and more of them are refused.
A connection belongs to the key of its current call: one from a proxy carries the calls of all keys.
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
OPEN_MAX = 10_240
"""How many descriptors macOS allows a process that asks for more than it may have."""
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class OpenConnection(Struct, eq=False):
    """One connection, from accept on. `abort` and `idle` are set when its protocol begins, which for TLS is
    after the handshake."""

    peer: Peer
    socket: socket.socket
    abort: Callable[[], None] | None = None
    idle: Callable[[], bool] = lambda: True
    key_id: str | None = None
    """The key of the current call, once it was admitted."""

    def close(self) -> None:
        """Close it, whatever it is doing."""
        if self.abort is not None:
            self.abort()
        else:
            with suppress(OSError):  # it is closed already
                self.socket.shutdown(socket.SHUT_RDWR)


class Connections:
    """The open connections of a server, oldest first. At most `most` may be open; `most_of_address` from
    one address without an admitted call; a share of them with calls of one key."""

    def __init__(self, most: int, most_of_address: int) -> None:
        self.limit = most
        self.limit_per_address = most_of_address
        self._unknown: dict[Peer, OpenConnection] = {}
        self._clients: dict[Peer, OpenConnection] = {}
        self._of_address: Counter[str] = Counter()
        self._of_key: Counter[str] = Counter()
        self._closing: list[OpenConnection] = []

    def __len__(self) -> int:
        return len(self._unknown) + len(self._clients)

    def full(self) -> bool:
        """Whether too many are being closed: the next one has to wait for their descriptors."""
        self._closing = [one for one in self._closing if one.socket.fileno() >= 0]
        return len(self._closing) >= max(1, self.limit // 8)

    def add(self, accepted: socket.socket, peer: Peer) -> OpenConnection:
        """Add a connection, and close another for it when there are too many."""
        if len(self) >= self.limit or self._of_address[peer[0]] >= self.limit_per_address:
            self._forget_closed()
        if self._of_address[peer[0]] >= self.limit_per_address:
            self._close(next(one for one in self._unknown.values() if one.peer[0] == peer[0]))
        elif len(self) >= self.limit and (other := self._closable()) is not None:
            self._close(other)
        self._unknown[peer] = opened = OpenConnection(peer, accepted)
        self._of_address[peer[0]] += 1
        if len(self) > self.limit:
            self._close(opened)
        return opened

    def limit_per_key(self) -> int:
        """Return on how many connections one key may have calls under way."""
        return max(1, self.limit // KEY_SHARE)

    def admit(self, opened: OpenConnection, key_id: str | None) -> bool:
        """Admit a call on this connection, which is then closed later than those without one. False when
        its key has too many calls under way."""
        if opened not in (self._unknown.get(opened.peer), self._clients.get(opened.peer)):
            return True  # it is closed already
        if key_id is not None and opened.key_id is None:
            if self._of_key[key_id] >= self.limit_per_key():
                return False
            opened.key_id = key_id
            self._of_key[key_id] += 1
        if opened.peer in self._unknown:
            self._forget(opened)
            self._clients[opened.peer] = opened
        return True

    def end_call(self, opened: OpenConnection) -> None:
        """Record that the current call on this connection has ended."""
        if (key_id := opened.key_id) is not None:
            opened.key_id = None
            self._of_key[key_id] -= 1
            if not self._of_key[key_id]:
                del self._of_key[key_id]

    def remove(self, opened: OpenConnection) -> None:
        """Forget a connection that is closed."""
        self.end_call(opened)
        self._forget(opened)

    def _forget(self, opened: OpenConnection) -> None:
        if self._clients.get(opened.peer) is opened:
            del self._clients[opened.peer]
        elif self._unknown.get(opened.peer) is opened:
            del self._unknown[opened.peer]
            self._of_address[opened.peer[0]] -= 1
            if not self._of_address[opened.peer[0]]:
                del self._of_address[opened.peer[0]]

    def _closable(self) -> OpenConnection | None:
        """Return the connection to close: the oldest without an admitted call, else an idle one."""
        idle = (one for one in self._clients.values() if one.idle())
        return next(iter(self._unknown.values()), None) or next(idle, None)

    def _close(self, opened: OpenConnection) -> None:
        self.remove(opened)
        self._closing.append(opened)
        opened.close()

    def _forget_closed(self) -> None:
        """Forget the connections that were closed before their protocol began."""
        for one in [*self._unknown.values(), *self._clients.values()]:
            if one.socket.fileno() < 0:
                self.remove(one)


class Listener:
    """Accepts connections on a socket, up to the limit, and begins a protocol on each."""

    def __init__(
        self,
        listening: socket.socket,
        connections: Connections,
        protocol: Callable[[OpenConnection], asyncio.Protocol],
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
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                self._loop.remove_reader(self._socket.fileno())
                self._again = self._loop.call_later(RETRY_SECONDS, self.start)
                return
            accepted.setblocking(False)
            opened = self._connections.add(accepted, address[:2])
            task = self._loop.create_task(self._begin(opened))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def _begin(self, opened: OpenConnection) -> None:
        """Begin the protocol; with a certificate, after a handshake, which has a time limit."""
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._protocol(opened),
                opened.socket,
                ssl=self._certificate,
                ssl_handshake_timeout=REQUEST_SECONDS_MAX if self._certificate else None,
            )
        except OSError:  # also of TLS: the client disconnected, or did not speak TLS
            opened.socket.close()
            self._connections.remove(opened)

    def close(self) -> None:
        """Stop accepting connections."""
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._socket.fileno())
        for task in self._beginning:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._beginning, return_exceptions=True)


def connections_max() -> int:
    """Return how many HTTP connections may be open: at most half of the descriptors of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, soft // 2)


def raise_descriptor_limit() -> None:
    """Raise the limit of open descriptors as far as possible: many systems begin with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if resource.RLIM_INFINITY != soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # macOS allows fewer than its hard limit says
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, OPEN_MAX)), hard))
