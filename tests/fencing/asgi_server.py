"""A real uvicorn for tests, an application that says what it was given, and plain HTTP clients."""

import asyncio
import http.client
import json
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import uvicorn

from holdfast.fencing import HEADER
from holdfast.fencing.asgi import SCOPE_KEY, Application, Receive, Scope, Send

KEY_OF_CLIENT = "dGhlIHNhbXBsZSBub25jZQ=="


class Service:
    """An application that says what it was given; `seen` are the scopes it was called with."""

    def __init__(self) -> None:
        self.seen: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(scope)
        match scope["type"]:
            case "lifespan":
                for step in ("startup", "shutdown"):
                    assert (await receive())["type"] == f"lifespan.{step}"
                    await send({"type": f"lifespan.{step}.complete"})
            case "websocket":
                assert (await receive())["type"] == "websocket.connect"
                await send({"type": "websocket.accept"})
                await send({"type": "websocket.close", "code": 1000})
            case _:
                await self._answer(scope, receive, send)

    @property
    def requests(self) -> list[Scope]:
        return [scope for scope in self.seen if scope["type"] == "http"]

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        said = await receive()
        told = {"fence": scope.get(SCOPE_KEY, "absent"), "body": said["body"].decode()}
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": msgspec.json.encode(told)})


class Answer(msgspec.Struct):
    status: int
    body: Any
    headers: dict[str, str]


async def ask(
    port: int,
    method: str = "PUT",
    headers: Sequence[tuple[str, str]] = (),
    body: bytes = b"hello",
) -> Answer:
    return await asyncio.to_thread(_ask, port, method, headers, body)


async def ask_raw(port: int, value: bytes) -> bytes:
    """The first line of the answer to a request whose header is exactly these bytes."""
    return await asyncio.to_thread(_ask_raw, port, value)


async def shake(port: int) -> int:
    """The status of the answer to a client that asks for a WebSocket."""
    return await asyncio.to_thread(_shake, port)


def _ask(port: int, method: str, headers: Sequence[tuple[str, str]], body: bytes) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.putrequest(method, "/account-17")
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        said = answer.read()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, json.loads(said) if said else None, found)
    finally:
        connection.close()


def _shake(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    try:
        connection.request("GET", "/", headers=headers | {"Sec-WebSocket-Key": KEY_OF_CLIENT})
        return connection.getresponse().status
    finally:
        connection.close()


def _ask_raw(port: int, value: bytes) -> bytes:
    request = b"PUT /account-17 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n"
    request += HEADER.encode() + b": " + value + b"\r\n\r\n"
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        try:
            connection.sendall(request)
            while b"\r\n" not in answer and (more := connection.recv(65536)):
                answer += more
        except (BrokenPipeError, ConnectionResetError):  # it answered before it had read it all
            pass
    return answer.partition(b"\r\n")[0]


@asynccontextmanager
async def served(app: Application) -> AsyncIterator[int]:
    """The port of a real server for the application. Ask it from another thread."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http="h11", lifespan="on", log_level="critical", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        await serving
        listening.close()


@asynccontextmanager
async def serve_behind(
    middleware: Callable[[Application], Application],
) -> AsyncIterator[tuple[int, Service]]:
    """A service behind the middleware, on a port."""
    service = Service()
    async with asyncio.timeout(120), served(middleware(service)) as port:
        yield port, service
