"""One client's HTTP connection: what it may send, and for how long, whatever the parser would take."""

import asyncio
import fcntl
import sys
import termios
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
from holdfast.server.listener import Connections, Opened

PARSED_BYTES = HEADER_BYTES_MAX
"""So much is given to the parser at a time: it would read all there is before anything is counted."""

LARGE = "The headers, or what is between the parts of the body, are too large."


class TooMany(Exception):
    """More requests were sent ahead than are taken; raised in the parser, to stop it."""


class Connection(HttpToolsProtocol):
    """One client's connection. The parser would keep headers and trailers without end; here they are
    counted, and trailers are not kept: RFC 9110, 6.5.1. What is not body (headers, sizes of chunks, their
    extensions, trailers) may be as much as the body and 64 KiB, and 32 KiB in a row.

    A client that says nothing, or does not read, for so long is parted with."""

    _in_head = False
    _whole = True
    _in_row = 0
    """Bytes since the last of a body."""
    _framing = 0
    """Bytes of this request that are not of its body; `_body` those that are."""
    _body = 0
    _part = 0
    """Bytes of a body in what is parsed now."""
    _after = 0
    """Bytes of a request that came when it was answered already."""
    _answering: RequestResponseCycle | None = None
    _hearing: asyncio.TimerHandle | None = None
    _patience: asyncio.TimerHandle | None = None

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        connections: Connections,
        opened: Opened,
    ) -> None:
        super().__init__(config, state, {})
        self._open_connections = connections
        self._opened = opened

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._hear_within()
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
            self.send_400_response(LARGE)

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing is logged: the request is answered as if nothing but HTTP had been asked for."""

    def on_message_begin(self) -> None:
        self._in_head, self._whole = True, False
        self._in_row = self._framing = self._body = self._part = self._after = 0
        super().on_message_begin()
        self._hear_within()
        self.scope["state"]["gone"] = self.transport.is_closing
        self.scope["state"]["let_in"] = partial(self._open_connections.let_in, self._opened)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._heard()
        super().on_headers_complete()
        if len(self.pipeline) > PIPELINED_MAX:
            self.transport.abort()
            raise TooMany

    def on_body(self, body: bytes) -> None:
        self._part += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._whole = True
        self._heard()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Of a request that is answered before all of it came, the rest has to come soon."""
        self._open_connections.answered(self._opened)
        super().on_response_complete()
        if not self._whole and self.cycle.response_complete and not self.transport.is_closing():
            self._hear_within()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def _wait_for_reader(self) -> None:
        left = self._unread()
        self._patience = self.loop.call_later(STALLED_SECONDS_MAX, self._look_at_reader, left)

    def _look_at_reader(self, before: int) -> None:
        """Part with a client that has taken nothing since; one that is slow has taken something."""
        if self._unread() >= before:
            self.transport.abort()
        else:
            self._wait_for_reader()

    def _unread(self) -> int:
        """How much waits for the client: here, and in the system's own buffer."""
        plug = self.transport.get_extra_info("socket")
        waiting = fcntl.ioctl(plug.fileno(), termios.TIOCOUTQ, bytes(4))
        return self.transport.get_write_buffer_size() + int.from_bytes(waiting, sys.byteorder)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._calm()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._answering is not None:  # uvicorn tells only the last request that came
            self._answering.disconnected = not self._answering.response_complete
            self._answering.message_event.set()
        self._calm()
        self._heard()
        self._open_connections.end(self._opened)

    def _hear_within(self) -> None:
        if self._hearing is None:
            self._hearing = self.loop.call_later(REQUEST_SECONDS_MAX, self.transport.abort)

    def _heard(self) -> None:
        if self._hearing is not None:
            self._hearing.cancel()
            self._hearing = None

    def _calm(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
