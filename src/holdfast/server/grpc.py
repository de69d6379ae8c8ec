"""gRPC: the application for clients that speak it, at an address of its own. Their calls reach it as ASGI:
one door, one gate and one set of services answer everybody."""

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
from holdfast.server.app import App
from holdfast.server.door import Receive, Scope
from holdfast.server.limits import (
    HEADER_BYTES_MAX,
    REQUEST_BYTES_MAX,
    REQUEST_SECONDS_MAX,
    STALLED_SECONDS_MAX,
)
from holdfast.server.listener import connections_max
from holdfast.server.serving import (
    CERTIFICATES,
    IDLE_SECONDS,
    LEAVE_SECONDS,
    UNREAD_SECONDS,
    Place,
)
from holdfast.wire.errors import FAULT

log = logging.getLogger("holdfast.server")

Call: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]

CALLS_PER_CONNECTION_MAX = 1_000
CONNECTIONS_SHARE = 4
"""By gRPC there may be a quarter of the connections that there may be by HTTP."""

QUIET_SECONDS = 60
"""After which a client that says nothing is asked whether it is still there."""

ASKED_SECONDS_MIN = 10
"""How often a client may ask that of us. By default it would be cut off for asking on a quiet stream."""

OPTIONS = {
    "grpc.so_reuseport": 0,  # else two servers would share an address, and nobody would notice
    "grpc.max_receive_message_length": REQUEST_BYTES_MAX,  # also when unpacked
    "grpc.max_metadata_size": HEADER_BYTES_MAX,
    "grpc.absolute_max_metadata_size": HEADER_BYTES_MAX,
    "grpc.max_concurrent_streams": CALLS_PER_CONNECTION_MAX,
    "grpc.server_handshake_timeout_ms": int(REQUEST_SECONDS_MAX * 1000),
    "grpc.max_connection_idle_ms": IDLE_SECONDS * 1000,
    "grpc.keepalive_time_ms": QUIET_SECONDS * 1000,
    "grpc.http2.min_ping_interval_without_data_ms": ASKED_SECONDS_MIN * 1000,
}
PREFIX_BYTES = 5
_METHOD = re.compile(r"/[\w.]+\.\w+/\w+\Z")
UNREAD = "What was sent to you was not read in time. Ask again, from where you are."
NO_SUCH = "There is no such method here. See docs/service.md for what there is."
_CODES = {code.value[0]: code for code in StatusCode}
_STATUSES = {
    HTTPStatus.BAD_REQUEST: StatusCode.INVALID_ARGUMENT,
    HTTPStatus.FORBIDDEN: StatusCode.PERMISSION_DENIED,
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: StatusCode.RESOURCE_EXHAUSTED,
}
"""What the door says in numbers of HTTP; any other means that nothing is there."""


@asynccontextmanager
async def grpc_beside(app: App, place: Place) -> AsyncIterator[str]:
    """Serve the application by gRPC as well, at the address that is yielded, until the application stops."""
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


def _listen(server: grpc.aio.Server, place: Place) -> int:
    address = _address(place)
    try:
        if place.certificate is None or place.certificate_key is None:
            return server.add_insecure_port(address)
        pair = place.certificate_key.read_bytes(), place.certificate.read_bytes()
        return server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    except OSError as error:
        raise Invalid(
            f"--tls-cert or --tls-key cannot be used: {error}", advice=CERTIFICATES
        ) from error
    except RuntimeError as error:
        words = "it is in use or not of this machine, or --tls-cert and --tls-key are no good."
        raise Invalid(
            f"Cannot listen on {address} for gRPC: {words}",
            advice="Stop what listens there, or take another: --grpc HOST:PORT",
        ) from error


def _address(place: Place) -> str:
    return place.url.partition("//")[2]


class _Calls(grpc.GenericRpcHandler):
    """The calls under way. Each is a task, which is cancelled when its client leaves or its time is up."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._sending: dict[asyncio.Timeout, None] = {}
        self._answering = 0
        self._answered = asyncio.Event()

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        if not _METHOD.match(details.method):
            return None
        answer = partial(self._answer, details.method, details.invocation_metadata)
        return grpc.stream_stream_rpc_method_handler(answer)

    async def end(self, server: grpc.aio.Server) -> None:
        """When the application stops, answer what is under way. Clients that do not read get less time:
        to be given the rest, and then to take how it ends."""
        await self._app.context.stopping.wait()
        soon = asyncio.get_running_loop().time() + UNREAD_SECONDS
        for limit in self._sending:
            limit.reschedule(soon)
        leaving = asyncio.create_task(server.stop(LEAVE_SECONDS))
        if self._answering:
            await self._answered.wait()
        await server.stop(UNREAD_SECONDS)
        await leaving

    async def _answer(self, path: str, metadata: Metadata, _: object, call: Call) -> None:
        said = _Said()
        self._answering += 1
        try:
            await self._app(_scope(path, metadata), _hears(call), partial(self._say, call, said))
        except TimeoutError:
            said.end(StatusCode.UNAVAILABLE, UNREAD)
        except Exception as error:
            log.error("%s failed", path, exc_info=error)
            said.end(StatusCode.INTERNAL, FAULT)
        finally:
            self._answering -= 1
            if not self._answering and self._app.context.stopping.is_set():
                self._answered.set()
        call.set_trailing_metadata(tuple(said.trailers))
        call.set_code(said.code)
        call.set_details(said.words)

    async def _say(self, call: Call, said: "_Said", message: dict[str, Any]) -> None:
        for one in said.hear(message):
            async with asyncio.timeout(STALLED_SECONDS_MAX) as limit:
                self._sending[limit] = None
                try:
                    await call.write(one)
                finally:
                    del self._sending[limit]


def _scope(path: str, metadata: Metadata) -> Scope:
    """The call as a request. No Host: no page of the web can speak gRPC, whatever name it came under."""
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


def _hears(call: Call) -> Receive:
    """What the client sends, message by message. That it leaves is heard otherwise."""
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


class _Said:
    """What the application has said to a call, and how it ends."""

    def __init__(self) -> None:
        self.code, self.words = StatusCode.UNIMPLEMENTED, NO_SUCH
        self.trailers: list[tuple[str, str | bytes]] = []
        self._framed = False
        self._rest = b""

    def hear(self, message: dict[str, Any]) -> Iterator[bytes]:
        """Take what the application sends; gives the messages that are whole by now."""
        if message["type"] == "http.response.body":
            self._rest += message.get("body", b"")
            if self._framed:
                yield from self._messages()
            elif self.code in _STATUSES.values():
                self.words = self._rest.decode().strip()
            return
        headers = dict(message["headers"])
        self._framed = headers.get(b"content-type", b"").startswith(b"application/grpc")
        self.code = _STATUSES.get(message.get("status", 200), self.code)
        if b"grpc-status" in headers:
            self._status(headers)

    def end(self, code: StatusCode, words: str) -> None:
        self.code, self.words = code, words

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
