"""Raw HTTP requests to a real server, valid or not, and checks that every response must pass."""

import asyncio
import base64
import json
import logging
import re
import socket
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec import Struct

from holdfast.outputs.lazy import OpenOutputs, no_outputs
from holdfast.ports import Store
from holdfast.registry.local import LocalRegistry
from holdfast.server.context import ServerSettings
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemClock, SystemIds
from holdfast.wire.generated.holdfast.v1.registry_pb import ErrorDetail
from tests.server.running_server import RunningServer, serving

JOBS = "/job.v1.JobService/"
EVENTS = "/job.v1.JobEventsService/"
REGISTRY = "/holdfast.v1.RegistryService/"

JSON = "application/json"
PROTO = "application/proto"
STREAM = "application/connect+json"
WAIT_SECONDS = 60.0

LEAK = re.compile(
    r"Traceback|File \"|\.py\b|site-packages|holdfast\.(server|wire|core|registry|stores)"
    r"|\b[A-Z]\w*(Error|Exception)\b|postgresql:|secret|object at 0x|NoneType"
)


class RawResponse(Struct, frozen=True):
    """What came back. Of a stream: its messages, and the error its end carries."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error, empty when there is none."""
        if self.headers.get("content-type", "").startswith("application/connect"):
            ends = [json.loads(data) for flags, data in frames(self.body) if flags & 2]
            return dict(ends[0].get("error", {})) if ends else {"code": "cut"}
        if self.status == 200 or not self.body.startswith(b"{"):
            return {}
        return dict(json.loads(self.body))

    @property
    def code(self) -> str:
        """The Connect code; `ok`, or the HTTP status where there is no code."""
        told = self.error.get("code")
        return str(told) if told else "ok" if self.status == 200 else str(self.status)

    @property
    def message(self) -> str:
        return str(self.error.get("message", ""))

    @property
    def detail(self) -> ErrorDetail:
        for one in self.error.get("details", ()):
            if one["type"] == "holdfast.v1.ErrorDetail":
                return ErrorDetail.from_binary(base64.b64decode(one["value"] + "==="))
        return ErrorDetail()

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(data) for flags, data in frames(self.body) if not flags & 2]

    def json(self) -> dict[str, Any]:
        assert self.status == 200, self
        return dict(json.loads(self.body))


def frames(body: bytes) -> Iterator[tuple[int, bytes]]:
    while body:
        flags, length = struct.unpack(">BI", body[:5])
        yield flags, body[5 : 5 + length]
        body = body[5 + length :]


def frame(data: bytes, flags: int = 0, length: int | None = None) -> bytes:
    return struct.pack(">BI", flags, len(data) if length is None else length) + data


class RawClient:
    """A client that can send any bytes to the server at an address."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self.address = (place.hostname or "", place.port or 0)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=WAIT_SECONDS)

    def raw(self, *parts: bytes, half_close: bool = False) -> bytes:
        """Send these bytes, and return all that comes until the response is whole or the server closes."""
        with self.connect() as plug:
            try:
                for part in parts:
                    plug.sendall(part)
                if half_close:
                    plug.shutdown(socket.SHUT_WR)
            except OSError:  # it said no before it had heard all
                pass
            return read_response(plug)

    def send(
        self,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "POST",
    ) -> RawResponse:
        told = {"host": "localhost", "content-length": str(len(body))}
        told |= {"content-type": JSON, **(headers or {})}
        lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in told.items() if v != "")]
        return parse_response(self.raw("\r\n".join([*lines, "", ""]).encode("latin-1"), body))

    def call(
        self,
        path: str,
        asked: object,
        headers: Mapping[str, str] | None = None,
    ) -> RawResponse:
        """A call in JSON. A text is sent as it is."""
        body = asked.encode() if isinstance(asked, str) else json.dumps(asked).encode()
        return self.send(path, body, headers)

    def stream(
        self,
        path: str,
        asked: Sequence[object],
        headers: Mapping[str, str] | None = None,
    ) -> RawResponse:
        """A streaming call in JSON; bytes are frames already."""
        body = b"".join(one if isinstance(one, bytes) else frame(json.dumps(one).encode()) for one in asked)
        return self.send(path, body, {"content-type": STREAM, **(headers or {})})


class ThreadedServer(RawClient):
    """A server in a thread of its own, and a client of it."""

    def __init__(
        self, served: RunningServer, registry: LocalRegistry, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(served.url)
        self.served = served
        self.registry = registry
        self.loop = loop

    def do(self, coroutine: Any) -> Any:  # noqa: ANN401
        """Return the result of a coroutine, run on the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(WAIT_SECONDS)

    def fine(self) -> None:
        """Check that the server serves a valid request, and that its store is consistent."""
        made = self.call(JOBS + "EnqueueJob", {"jobParams": {"command": "true"}, "queue": "fine"})
        assert made.code == "ok", made
        verified = self.do(self.registry.verify())
        assert verified.equal, verified.mismatches

    def enqueue(self, queue: str = "default", **more: object) -> str:
        made = self.call(JOBS + "EnqueueJob", {"jobParams": {"command": "true"}, "queue": queue, **more})
        return str(made.json()["jobId"])

    def claim(self, queue: str, **more: object) -> dict[str, Any]:
        """Return a grant of holdfast.v1 on a new job of this queue."""
        self.enqueue(queue)
        asked = {"queues": [queue], "owner": "w", **more}
        return dict(self.call(REGISTRY + "Claim", asked).json()["grants"][0])


def read_response(plug: socket.socket) -> bytes:
    """Return one response, or what came of it before the server closed."""
    got = bytearray()
    try:
        while not _whole(got) and (part := plug.recv(1 << 16)):
            got += part
    except ConnectionResetError:
        pass
    return bytes(got)


def _whole(got: bytearray) -> bool:
    head, end, body = got.partition(b"\r\n\r\n")
    if not end:
        return False
    if b"transfer-encoding: chunked" in head:
        return body.endswith(b"0\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return length is not None and len(body) >= int(length[1])


def parse_response(got: bytes) -> RawResponse:
    """Parse the response in these bytes."""
    assert got, "the server closed without a word"
    head, _, body = got.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = b"".join(_chunks(body))
    return RawResponse(int(first.split()[1]), headers, body)


def _chunks(body: bytes) -> Iterator[bytes]:
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return
        yield body[:length]
        body = body[length + 2 :]


def check_error(answer: RawResponse) -> None:
    """Check that an error is a sentence that helps, and shows nothing of the inside."""
    assert answer.code not in ("internal", "unknown", "cut", "500"), answer
    if answer.code == "ok":
        return
    told = json.dumps(answer.error) if answer.error else answer.body.decode()
    assert not LEAK.search(told), told
    assert len(told) < 4096, told
    assert len(answer.message or told) > 10, told


def expect(answer: RawResponse, code: str, words: str = "") -> None:
    """Check that the response has this code and these words, and shows nothing of the inside."""
    check_error(answer)
    assert answer.code == code, answer
    assert words in (answer.message or answer.body.decode(errors="replace")), answer


def unharmed(server: ThreadedServer, caplog: pytest.LogCaptureFixture) -> None:
    """Check that the server goes on, and that it logged no error of its own."""
    server.fine()
    loud = [one for one in caplog.get_records("call") if one.levelno >= logging.ERROR]
    assert not loud, [one.getMessage() for one in loud]


@contextmanager
def threaded_server(
    settings: ServerSettings | None = None,
    *,
    store: Store | None = None,
    opening: OpenOutputs = no_outputs,
) -> Iterator[ThreadedServer]:
    """A server over a store, in memory unless one is given, in a thread of its own."""
    ids = SystemIds()
    opened: Future[ThreadedServer] = Future()
    leave = asyncio.Event()

    async def serve() -> None:
        registry = LocalRegistry(store or MemoryStore(SystemClock(), ids), ids)
        async with serving(registry, settings, opening) as served:
            opened.set_result(ThreadedServer(served, registry, asyncio.get_running_loop()))
            await leave.wait()
        await registry.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    here = opened.result(WAIT_SECONDS)
    try:
        yield here
    finally:
        here.loop.call_soon_threadsafe(leave.set)
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
