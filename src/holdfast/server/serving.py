"""Serving: an application on an address, until it is told to stop."""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import cast

import uvicorn
from msgspec import Struct

from holdfast.core.errors import HoldfastError, Invalid
from holdfast.ports import Clock, Ids
from holdfast.server.app import App
from holdfast.server.connection import Connection
from holdfast.server.limits import ADDRESS_SHARE
from holdfast.server.listener import Connections, Listener, connections_max
from holdfast.system import every

LEAVE_SECONDS = 10
IDLE_SECONDS = 75
"""How long a connection is kept that nothing is asked on: longer than clients keep theirs."""

UNREAD_SECONDS = 2.0
"""How long a server that stops waits for clients that do not read."""

EXPIRE_SECONDS = 1.0


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


ELSEWHERE = (
    "Stop what listens there, or listen at another address of this machine: --listen HOST:PORT"
)
CERTIFICATES = (
    "Check that both are PEM files that this user may read, and that they belong together."
)


def check_place(place: Place, *, keys: bool) -> None:
    """Raise `Invalid` for a place where everybody could come in, or listen to keys as they pass."""
    if (place.certificate is None) != (place.certificate_key is None):
        raise Invalid("Give both --tls-cert and --tls-key, or neither.")
    if place.proxy and not keys:
        raise Invalid("A proxy lets others in: make a key (holdfast keys create), and give --keys.")
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


class Server(uvicorn.Server):
    """An HTTP server that ends its streams, and then itself, when it is told to stop."""

    def __init__(self, app: App, place: Place, clock: Clock, ids: Ids) -> None:
        most = connections_max()
        # Behind a proxy all clients have one address.
        self.open_connections = Connections(most, most if place.proxy else most // ADDRESS_SHARE)
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=LEAVE_SECONDS,
                timeout_keep_alive=IDLE_SECONDS,
                ws="none",
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
        try:
            self.config.load()
        except OSError as error:
            raise Invalid(
                f"--tls-cert or --tls-key cannot be used: {error}", advice=CERTIFICATES
            ) from error
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
            checking = asyncio.create_task(self._app.context.checking.sweep_for_ever())
            watching = asyncio.create_task(self._told(lambda: opened(place)))
            try:
                await self.serve(sockets=[sockets])
            finally:
                tasks = (expiring, checking, watching)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await self._app.context.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections ourselves: uvicorn, and the loops, would accept any number."""
        assert sockets is not None
        protocol = partial(Connection, self.config, self.server_state, self.open_connections)
        await super().startup(sockets=[])
        for one in sockets:
            listener = Listener(one, self.open_connections, protocol, self.config.ssl)
            self.servers.append(cast("asyncio.Server", listener))
            listener.start()

    async def _told(self, opened: Callable[[], None]) -> None:
        while not self.started:
            await self._clock.sleep(0.005)
        opened()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Streams are ended first: a server waits for its answers to end."""
        self._loop.call_soon_threadsafe(self._leave)
        super().handle_exit(sig, frame)
        self._captured_signals.clear()  # it is not raised again: a stop we were asked for is no error

    def _leave(self) -> None:
        self._app.context.stop()
        self._loop.call_later(UNREAD_SECONDS, self._cut)

    def _cut(self) -> None:
        """Part with those who do not read what is there for them."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection) and connection.flow.write_paused:
                connection.transport.abort()

    async def _expire(self) -> None:
        """Close what has lapsed, whoever held it. Every server does this; none has to."""

        async def expire() -> None:
            with suppress(HoldfastError):
                await self._app.context.registry.expire()

        await every(EXPIRE_SECONDS, expire, clock=self._clock, ids=self._ids)


def _listening(place: Place) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    # Named, so that what it accepts is known to be TCP and sent at once: else an answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((place.host, place.port))
    except OSError as error:
        listener.close()
        raise Invalid(
            f"Cannot listen on {place.host}:{place.port}: {error.strerror}.", advice=ELSEWHERE
        ) from error
    listener.listen(2048)
    listener.setblocking(False)
    return listener
