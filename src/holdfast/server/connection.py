"""One client's HTTP connection: limits on size and time that the parser does not have."""

import asyncio
import fcntl
import socket
import sys
import termios
from contextlib import suppress
from functools import partial

import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from holdfast.server.limits import (
    HEADER_BYTES_MAX,
    PIPELINED_MAX,
    PUBLISH_BYTES_MAX,
    REQUEST_SECONDS_MAX,
    STALLED_SECONDS_MAX,
)
from holdfast.server.listener import Connections, OpenConnection

PARSED_BYTES = HEADER_BYTES_MAX
"""How much is given to the parser at a time: it would read all there is before anything is counted."""

SO_NWRITE = 0x1024
"""The option of macOS that returns how many bytes of a socket are not sent yet."""

FRAMING_TOO_LARGE = "The headers, or what is between the chunks of the body, are too large."


class TooManyPipelined(Exception):
    """The client pipelined too many requests; raised in the parser, to stop it."""


class HttpConnection(HttpToolsProtocol):
    """One client's connection. The parser would keep any amount of headers and trailers; here they are
    counted, and trailers are not kept: RFC 9110, 6.5.1. What is not body (headers, sizes of chunks, their
    extensions, trailers) may be as much as the body and 64 KiB, and 32 KiB in a row.

    The connection of a client that sends nothing for `REQUEST_SECONDS_MAX` while a request is due, or reads
    nothing for `STALLED_SECONDS_MAX`, is closed."""

    _in_head = False
    _whole = True
    _in_row = 0
    """Bytes since the last byte of a body."""
    _framing = 0
    """Bytes of this request that are not part of its body; `_body` counts those that are."""
    _body = 0
    _part = 0
    """Bytes of a body in the part that is being parsed."""
    _after = 0
    """Bytes of a request that arrived after its response was sent."""
    _running: RequestResponseCycle | None = None
    _read_timeout: asyncio.TimerHandle | None = None
    _write_timeout: asyncio.TimerHandle | None = None

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        connections: Connections,
        opened: OpenConnection,
    ) -> None:
        super().__init__(config, state, {})
        self._open_connections = connections
        self._opened = opened

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_read_timeout()
        self._opened.abort, self._opened.idle = transport.abort, self._idle

    def _idle(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), PARSED_BYTES):
            part = data[start : start + PARSED_BYTES]
            self._part = 0
            super().data_received(part)
            if self.transport.is_closing():
                return
            self._count(len(part))

    def _count(self, size: int) -> None:
        rest = size - self._part
        self._body += self._part
        self._in_row = rest if self._part else self._in_row + rest
        self._framing += rest
        if self._in_row > 2 * HEADER_BYTES_MAX or self._framing > 4 * HEADER_BYTES_MAX + self._body:
            self._refuse()
        elif self.cycle is not None and self.cycle.response_complete and not self._whole:
            self._after += size
            if self._after > PUBLISH_BYTES_MAX:
                self.transport.abort()

    def _refuse(self) -> None:
        answered = self.cycle is not None and self.cycle.response_started and not self._in_head
        if answered or self.pipeline:
            self.transport.abort()
        else:
            self.send_400_response(FRAMING_TOO_LARGE)

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: the request is served as plain HTTP."""

    def on_message_begin(self) -> None:
        self._in_head, self._whole = True, False
        self._in_row = self._framing = self._body = self._part = self._after = 0
        super().on_message_begin()
        self._start_read_timeout()
        self.scope["state"]["client_gone"] = self.transport.is_closing
        self.scope["state"]["admit"] = partial(self._open_connections.admit, self._opened)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_read_timeout()
        super().on_headers_complete()
        if len(self.pipeline) > PIPELINED_MAX:
            self.transport.abort()
            raise TooManyPipelined

    def on_body(self, body: bytes) -> None:
        self._part += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._whole = True
        self._stop_read_timeout()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Limit the time for the rest of a request that was answered before all of it arrived."""
        self._open_connections.end_call(self._opened)
        super().on_response_complete()
        if not self._whole and self.cycle.response_complete and not self.transport.is_closing():
            self._start_read_timeout()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_write_timeout()

    def _start_write_timeout(self) -> None:
        left = self._unread()
        self._write_timeout = self.loop.call_later(STALLED_SECONDS_MAX, self._check_reader, left)

    def _check_reader(self, before: int) -> None:
        """Close the connection if the client has read nothing since; a slow client has read something."""
        if self._unread() >= before:
            self.transport.abort()
        else:
            self._start_write_timeout()

    def _unread(self) -> int:
        """Return how many bytes wait for the client: here, and in the buffer of the kernel."""
        return self.transport.get_write_buffer_size() + _in_kernel(self.transport.get_extra_info("socket"))

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_timeout()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._running is not None:  # uvicorn notifies only the last request that arrived
            self._running.disconnected = not self._running.response_complete
            self._running.message_event.set()
        self._stop_write_timeout()
        self._stop_read_timeout()
        self._open_connections.remove(self._opened)

    def _start_read_timeout(self) -> None:
        if self._read_timeout is None:
            self._read_timeout = self.loop.call_later(REQUEST_SECONDS_MAX, self.transport.abort)

    def _stop_read_timeout(self) -> None:
        if self._read_timeout is not None:
            self._read_timeout.cancel()
            self._read_timeout = None

    def _stop_write_timeout(self) -> None:
        if self._write_timeout is not None:
            self._write_timeout.cancel()
            self._write_timeout = None


def _in_kernel(connection: socket.socket) -> int:
    """Return how many bytes the kernel keeps for the client; 0 where it does not tell."""
    try:
        waiting = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:  # macOS knows that of terminals only
        with suppress(OSError):
            return connection.getsockopt(socket.SOL_SOCKET, SO_NWRITE) if sys.platform == "darwin" else 0
        return 0
    return int.from_bytes(waiting, sys.byteorder)
