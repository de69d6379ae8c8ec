"""Serving: an application on an address, until it is told to stop."""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import uvicorn
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.core.errors import HoldfastError, Invalid
from holdfast.ports import Clock, Ids
from holdfast.server.app import App
from holdfast.server.limits import HEADER_BYTES_MAX

LEAVE_SECONDS = 10
EXPIRE_SECONDS = 5.0


class Place(Struct, frozen=True, kw_only=True):
    """Where a server listens, and what protects it there."""

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    certificate_key: Path | None = None
    proxy: bool = False

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}"


def check_place(place: Place, *, keys: bool) -> None:
    """Raise `Invalid` for a place where everybody could come in, or listen to keys as they pass."""
    if (place.certificate is None) != (place.certificate_key is None):
        raise Invalid("Give both --tls-cert and --tls-key, or neither.")
    if _loopback(place.host):
        return
    if not keys:
        raise Invalid(
            f"{place.host} can be reached from other machines: make a key (holdfast keys create) and"
            " start with --keys, or listen on 127.0.0.1."
        )
    if place.certificate is None and not place.proxy:
        raise Invalid(
            f"Keys would cross the network to {place.host} unencrypted: give --tls-cert and --tls-key,"
            " or say --behind-proxy if a proxy in front of it has TLS."
        )


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Connection(HttpToolsProtocol):
    """One client's connection. Headers without end are cut off: the parser itself would keep them all."""

    _head_bytes = 0
    _in_head = False

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > 2 * HEADER_BYTES_MAX and not self.transport.is_closing():
                self.send_400_response("The headers are too large.")

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()


class Server(uvicorn.Server):
    """An HTTP server that ends its streams, and then itself, when it is told to stop."""

    def __init__(self, app: App, place: Place, clock: Clock, ids: Ids) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=LEAVE_SECONDS,
                http=Connection,
                ssl_certfile=place.certificate,
                ssl_keyfile=place.certificate_key,
            )
        )
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._app = app
        self._place = place
        self._clock = clock
        self._ids = ids

    async def run_until_stopped(self, opened: Callable[[Place], None]) -> None:
        """Serve. `opened` is told where, once clients are answered."""
        self._loop = asyncio.get_running_loop()
        with _listening(self._place) as sockets:
            port = sockets.getsockname()[1]
            place = Place(
                host=self._place.host,
                port=port,
                certificate=self._place.certificate,
                certificate_key=self._place.certificate_key,
                proxy=self._place.proxy,
            )
            expiring = asyncio.create_task(self._expire())
            watching = asyncio.create_task(self._told(lambda: opened(place)))
            try:
                await self.serve(sockets=[sockets])
            finally:
                for task in (expiring, watching):
                    task.cancel()
                await self._app.context.close()

    async def _told(self, opened: Callable[[], None]) -> None:
        while not self.started:
            await self._clock.sleep(0.005)
        opened()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Streams are ended first: a server waits for its answers to end."""
        self._loop.call_soon_threadsafe(self._app.context.stop)
        super().handle_exit(sig, frame)
        self._captured_signals.clear()  # it is not raised again: a stop we were asked for is no error

    async def _expire(self) -> None:
        """Close what has lapsed, whoever held it. Every server does this; none has to."""
        while True:
            await self._clock.sleep(EXPIRE_SECONDS * (0.75 + self._ids.chance() / 2))
            with suppress(HoldfastError):
                await self._app.context.registry.expire()


def _listening(place: Place) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((place.host, place.port))
    except OSError as error:
        listener.close()
        raise Invalid(f"Cannot listen on {place.host}:{place.port}: {error.strerror}.") from error
    listener.listen(2048)
    listener.setblocking(False)
    return listener
