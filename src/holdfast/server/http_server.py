"""The HTTP server: the application at an address, until it is told to stop."""

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
from msgspec.structs import replace

from holdfast.core.errors import HoldfastError, Invalid
from holdfast.ports import Clock, Ids
from holdfast.server.app import ServerApp
from holdfast.server.connection import HttpConnection
from holdfast.server.limits import ADDRESS_SHARE
from holdfast.server.listener import Connections, Listener, connections_max
from holdfast.system import SleepWatch, asleep_seconds, jittered

SHUTDOWN_SECONDS = 10
IDLE_SECONDS = 75
"""How long an idle connection is kept open: longer than clients keep theirs."""

UNREAD_SECONDS = 2.0
"""How long a server that stops waits for clients that do not read."""

EXPIRE_SECONDS = 1.0


class ListenAddress(Struct, frozen=True, kw_only=True):
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


OTHER_ADDRESS = "Stop what listens there, or listen at another address of this machine: --listen HOST:PORT"
CHECK_CERTIFICATES = "Check that both are PEM files that this user may read, and that they belong together."


def check_address(place: ListenAddress, *, keys: bool) -> None:
    """Raise `Invalid` for an address that is open without a key, or where keys pass unencrypted."""
    if (place.certificate is None) != (place.certificate_key is None):
        raise Invalid("Give both --tls-cert and --tls-key, or neither.")
    if place.proxy and not keys:
        raise Invalid(
            "Others can reach the server through a proxy: make a key (holdfast keys create), and start"
            " with --keys."
        )
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
            " or --behind-proxy if a proxy in front of the server has TLS."
        )


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class HttpServer(uvicorn.Server):
    """An HTTP server that ends its streams first when it is told to stop."""

    def __init__(self, app: ServerApp, place: ListenAddress, clock: Clock, ids: Ids) -> None:
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
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
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

    async def run_until_stopped(self, opened: Callable[[ListenAddress], None]) -> None:
        """Serve until stopped. `opened` is called with the address once clients can connect."""
        self._loop = asyncio.get_running_loop()
        try:
            self.config.load()
        except OSError as error:
            raise Invalid(
                f"--tls-cert or --tls-key cannot be used: {error}", advice=CHECK_CERTIFICATES
            ) from error
        with _listen(self._place) as listening:
            port = listening.getsockname()[1]
            place = replace(self._place, port=port)
            tasks = (
                asyncio.create_task(self._expire()),
                asyncio.create_task(self._app.context.outputs.sweep_forever()),
                asyncio.create_task(self._call_when_started(lambda: opened(place))),
            )
            try:
                await self.serve(sockets=[listening])
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await self._app.context.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections ourselves: uvicorn and the event loop would accept any number."""
        assert sockets is not None
        protocol = partial(HttpConnection, self.config, self.server_state, self.open_connections)
        await super().startup(sockets=[])
        for one in sockets:
            listener = Listener(one, self.open_connections, protocol, self.config.ssl)
            self.servers.append(cast("asyncio.Server", listener))
            listener.start()

    async def _call_when_started(self, opened: Callable[[], None]) -> None:
        while not self.started:
            await self._clock.sleep(0.005)
        opened()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the streams first: uvicorn waits until all responses have ended."""
        self._loop.call_soon_threadsafe(self._stop)
        super().handle_exit(sig, frame)
        self._captured_signals.clear()  # uvicorn would raise it again, but a requested stop is not an error

    def _stop(self) -> None:
        self._app.context.stop()
        self._loop.call_later(UNREAD_SECONDS, self._abort_unread)

    def _abort_unread(self) -> None:
        """Close the connections of clients that do not read their responses."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, HttpConnection) and connection.flow.write_paused:
                connection.transport.abort()

    async def _expire(self) -> None:
        """Expire leases that have ended, in a loop. Every server and worker does this; none has to. After a
        sleep of the machine the workers on it have a second to renew theirs."""
        watch = SleepWatch(self._clock, asleep_seconds)
        while True:
            seconds = jittered(EXPIRE_SECONDS, self._ids)
            due_at = self._clock.monotonic() + seconds
            await self._clock.sleep(seconds)
            if not watch.late(due_at):
                with suppress(HoldfastError):
                    await self._app.context.registry.expire()


def _listen(place: ListenAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    # With the protocol given, asyncio sets TCP_NODELAY on accepted sockets: else a response waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((place.host, place.port))
    except OSError as error:
        listener.close()
        raise Invalid(
            f"Cannot listen on {place.host}:{place.port}: {error.strerror}.", advice=OTHER_ADDRESS
        ) from error
    listener.listen(2048)
    listener.setblocking(False)
    return listener
