"""gRPC: the application for gRPC clients, at an address of its own. Their calls become ASGI requests, so
that one edge, one authentication and one set of services serve every protocol."""

import asyncio
import logging
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc
from grpc import StatusCode
from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.server.app import ServerApp
from holdfast.server.edge import Receive, Scope
from holdfast.server.http_server import (
    CHECK_CERTIFICATES,
    IDLE_SECONDS,
    SHUTDOWN_SECONDS,
    UNREAD_SECONDS,
    ListenAddress,
)
from holdfast.server.limits import (
    HEADER_BYTES_MAX,
    REQUEST_BYTES_MAX,
    REQUEST_SECONDS_MAX,
    STALLED_SECONDS_MAX,
)
from holdfast.server.listener import connections_max
from holdfast.wire.errors import INTERNAL_ERROR

log = logging.getLogger("holdfast.server")

Call: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]

CALLS_PER_CONNECTION_MAX = 1_000
CONNECTIONS_SHARE = 4
"""A quarter as many connections are allowed by gRPC as by HTTP."""

PING_SECONDS = 60
"""After how long a silent client is pinged."""

CLIENT_PING_SECONDS_MIN = 10
"""How often a client may ping us. By default, pings on a silent stream end the connection."""

OPTIONS = {
    "grpc.so_reuseport": 0,  # else two servers could share an address unnoticed
    "grpc.max_receive_message_length": REQUEST_BYTES_MAX,  # also when unpacked
    "grpc.max_metadata_size": HEADER_BYTES_MAX,
    "grpc.absolute_max_metadata_size": HEADER_BYTES_MAX,
    "grpc.max_concurrent_streams": CALLS_PER_CONNECTION_MAX,
    "grpc.server_handshake_timeout_ms": int(REQUEST_SECONDS_MAX * 1000),
    "grpc.max_connection_idle_ms": IDLE_SECONDS * 1000,
    "grpc.keepalive_time_ms": PING_SECONDS * 1000,
    "grpc.http2.min_ping_interval_without_data_ms": CLIENT_PING_SECONDS_MIN * 1000,
}
PREFIX_BYTES = 5
_METHOD = re.compile(r"/[\w.]+\.\w+/\w+\Z")
NOT_READ = "The client did not read the response in time. Call again, from your last cursor."
NO_METHOD = "There is no such method. See docs/service.md for the methods of this server."
_CODES = {code.value[0]: code for code in StatusCode}
_STATUSES = {
    HTTPStatus.BAD_REQUEST: StatusCode.INVALID_ARGUMENT,
    HTTPStatus.FORBIDDEN: StatusCode.PERMISSION_DENIED,
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: StatusCode.RESOURCE_EXHAUSTED,
}
"""The codes for the HTTP statuses of `edge.rejection`; any other means that there is no such method."""


@asynccontextmanager
async def serve_grpc(app: ServerApp, place: ListenAddress) -> AsyncIterator[str]:
    """Serve the application by gRPC as well, until it stops; yields the address."""
    calls = _Calls(app)
    most = {"grpc.max_allowed_incoming_connections": connections_max() // CONNECTIONS_SHARE}
    server = grpc.aio.server(options=list({**OPTIONS, **most}.items()))
    server.add_generic_rpc_handlers((calls,))
    port = _listen(server, place)
    await server.start()
    ending = asyncio.create_task(calls.end(server))
    try:
        yield _address(replace(place, port=port))
    finally:
        app.context.stop()
        await ending
        await app.context.close()


def _listen(server: grpc.aio.Server, place: ListenAddress) -> int:
    address = _address(place)
    try:
        if place.certificate is None or place.certificate_key is None:
            return server.add_insecure_port(address)
        pair = place.certificate_key.read_bytes(), place.certificate.read_bytes()
        return server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    except OSError as error:
        raise Invalid(
            f"--tls-cert or --tls-key cannot be used: {error}", advice=CHECK_CERTIFICATES
        ) from error
    except RuntimeError as error:
        why = "it is in use or not of this machine, or --tls-cert and --tls-key cannot be used."
        raise Invalid(
            f"Cannot listen on {address} for gRPC: {why}",
            advice="Stop what listens there, or use another address: --grpc HOST:PORT",
        ) from error


def _address(place: ListenAddress) -> str:
    return place.url.partition("//")[2]


class _Calls(grpc.GenericRpcHandler):
    """The calls under way. Each is a task, cancelled when its client disconnects or its time is up."""

    def __init__(self, app: ServerApp) -> None:
        self._app = app
        self._sending: dict[asyncio.Timeout, None] = {}
        self._running = 0
        self._finished = asyncio.Event()

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        if not _METHOD.match(details.method):
            return None
        serve = partial(self._serve, details.method, details.invocation_metadata)
        return grpc.stream_stream_rpc_method_handler(serve)

    async def end(self, server: grpc.aio.Server) -> None:
        """When the application stops, finish the calls under way. Clients that do not read get less time:
        once for the rest of the response, and once for its status."""
        await self._app.context.stopping.wait()
        soon = asyncio.get_running_loop().time() + UNREAD_SECONDS
        for limit in self._sending:
            limit.reschedule(soon)
        leaving = asyncio.create_task(server.stop(SHUTDOWN_SECONDS))
        if self._running:
            await self._finished.wait()
        await server.stop(UNREAD_SECONDS)
        await leaving

    async def _serve(self, path: str, metadata: Metadata, _: object, call: Call) -> None:
        response = _Response()
        self._running += 1
        try:
            send = partial(self._send, call, response)
            await self._app(_scope(path, metadata), _receive_from(call), send)
        except TimeoutError:
            response.end(StatusCode.UNAVAILABLE, NOT_READ)
        except Exception as error:
            log.error("%s failed", path, exc_info=error)
            response.end(StatusCode.INTERNAL, INTERNAL_ERROR)
        finally:
            self._running -= 1
            if not self._running and self._app.context.stopping.is_set():
                self._finished.set()
        call.set_trailing_metadata(tuple(response.trailers))
        call.set_code(response.code)
        call.set_details(response.details)

    async def _send(self, call: Call, response: "_Response", message: dict[str, Any]) -> None:
        for one in response.feed(message):
            async with asyncio.timeout(STALLED_SECONDS_MAX) as limit:
                self._sending[limit] = None
                try:
                    await call.write(one)
                finally:
                    del self._sending[limit]


def _scope(path: str, metadata: Metadata) -> Scope:
    """Return the call as an ASGI request. It has no Host header: a page in a browser cannot speak gRPC."""
    headers = [
        (name.encode(), value.encode())
        for name, value in metadata
        if isinstance(value, str) and not name.startswith("grpc-")
    ]
    return {
        "type": "http",
        "http_version": "2",
        "method": "POST",
        "scheme": "http",
        "root_path": "",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [*headers, (b"content-type", b"application/grpc")],
        "extensions": {"http.response.trailers": {}},
    }


def _receive_from(call: Call) -> Receive:
    """Return a `receive` for the messages of the client. A disconnect cancels the task of the call."""
    whole = False

    async def receive() -> dict[str, Any]:
        nonlocal whole
        if whole:
            await asyncio.get_running_loop().create_future()
        one: Any = await call.read()
        whole = one is grpc.aio.EOF
        body = b"" if whole else b"\0" + len(one).to_bytes(4, "big") + one
        return {"type": "http.request", "body": body, "more_body": not whole}

    return receive


class _Response:
    """The response of the application to a call, and its status."""

    def __init__(self) -> None:
        self.code, self.details = StatusCode.UNIMPLEMENTED, NO_METHOD
        self.trailers: list[tuple[str, str | bytes]] = []
        self._framed = False
        self._rest = b""

    def feed(self, message: dict[str, Any]) -> Iterator[bytes]:
        """Take what the application sends, and return the messages that are complete by now."""
        if message["type"] == "http.response.body":
            self._rest += message.get("body", b"")
            if self._framed:
                yield from self._messages()
            elif self.code in _STATUSES.values():
                self.details = self._rest.decode().strip()
            return
        headers = dict(message["headers"])
        self._framed = headers.get(b"content-type", b"").startswith(b"application/grpc")
        self.code = _STATUSES.get(message.get("status", 200), self.code)
        if b"grpc-status" in headers:
            self._status(headers)

    def end(self, code: StatusCode, details: str) -> None:
        self.code, self.details = code, details

    def _messages(self) -> Iterator[bytes]:
        while len(self._rest) >= PREFIX_BYTES:
            size = PREFIX_BYTES + int.from_bytes(self._rest[1:PREFIX_BYTES], "big")
            if len(self._rest) < size:
                return
            one, self._rest = self._rest[PREFIX_BYTES:size], self._rest[size:]
            yield one

    def _status(self, headers: dict[bytes, bytes]) -> None:
        self.end(
            _CODES[int(headers[b"grpc-status"])],
            unquote(headers.get(b"grpc-message", b"").decode()),
        )
        for name, value in headers.items():
            if name.endswith(b"-bin"):
                self.trailers.append((name.decode(), b64decode(value + b"==")))
