"""The server of gRPC itself: how it starts, what it refuses to start with, and how it ends."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from grpc import StatusCode

from holdfast.core.errors import Invalid
from holdfast.registry.local import LocalRegistry
from holdfast.server.app import ServerApp
from holdfast.server.context import ServerSettings
from holdfast.server.edge import Receive, Scope, Send
from holdfast.server.grpc import NOT_READ, serve_grpc
from holdfast.server.http_server import SHUTDOWN_SECONDS, ListenAddress
from holdfast.stores.memory import MemoryStore
from holdfast.system import SteadyClock, SystemClock, SystemIds
from holdfast.wire.errors import INTERNAL_ERROR
from tests.server.grpc_client import EVENTS, GrpcClient, events, grpc_server, refused
from tests.server.programs import PATIENCE_SECONDS, environment, key, store
from tests.server.test_listen_address import certificate

T = TypeVar("T")

PIECES, PIECE_BYTES = 60, 350_000
"""More output than any client takes in before it is read."""


def test_a_server_that_stops_ends_its_calls_with_words(tmp_path: Path) -> None:
    with grpc_server(tmp_path, "--poll", "30s") as server, GrpcClient(server.grpc) as client:
        job_id = client.enqueue()
        [taken] = client.take()
        read = client.ask("StreamJobEvents", {"job_id": job_id}, service=EVENTS)
        waits = client.ask("DequeueJob", {"queue": "empty"})
        over = threading.Event()
        published: list[Any] = []
        writer = threading.Thread(target=publish, args=(client, taken.task_token, over, published))
        writer.start()
        assert next(read).event.sequence == 1

        server.process.terminate()

        with refused(StatusCode.UNAVAILABLE, "shutting down", "sequence 2"):
            next(read)
        assert list(waits) == []
        assert server.process.wait(PATIENCE_SECONDS) == 0
        over.set()
        writer.join()
        assert published == [StatusCode.UNAVAILABLE]
        assert "Stopped" in server.log.read_text()


def publish(client: GrpcClient, token: str, over: threading.Event, ended: list[Any]) -> None:
    """A worker that has said something, and would say more."""

    def batches() -> Iterator[dict[str, Any]]:
        yield {"task_token": token, "events": events(1, 10)}
        over.wait(PATIENCE_SECONDS)

    with refused(StatusCode.UNAVAILABLE, "shutting down"):
        client.ask("PublishJobEvents", batches(), service=EVENTS)
    ended.append(StatusCode.UNAVAILABLE)


def test_with_a_certificate_it_speaks_tls(tmp_path: Path) -> None:
    text = key(tmp_path, "submit,observe")
    pem, private = certificate(tmp_path)
    options = ("--keys", "--tls-cert", str(pem), "--tls-key", str(private))

    with grpc_server(tmp_path, *options) as server:
        with GrpcClient(server.grpc, text, trusted=pem.read_bytes()) as client:
            assert client.enqueue()
        with GrpcClient(server.grpc, text) as open_to_all, refused(StatusCode.UNAVAILABLE):
            open_to_all.enqueue()


class Broken(ServerApp):
    """An application with a fault: it says so many things, and breaks. `broken` once it has."""

    messages, message_bytes = PIECES, PIECE_BYTES
    sent = 0
    broken = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = (b"content-type", b"application/grpc")
        body = b"\0" + self.message_bytes.to_bytes(4, "big") + b"x" * self.message_bytes
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [kind]})
            for _ in range(self.messages):
                await send({"type": "http.response.body", "body": body, "more_body": True})
                self.sent += 1
            raise RuntimeError("canary")
        finally:
            self.broken.set()


def broken() -> Broken:
    ids = SystemIds()
    registry = LocalRegistry(MemoryStore(SteadyClock(), ids), ids)
    app = Broken(registry, SystemClock(), ids, ServerSettings())
    app.broken = threading.Event()
    return app


def served(app: Broken, use: Callable[[Any], T]) -> T:
    """What is made of a call to the application, which says more than is read. It outlasts the server."""

    async def body(clients: ExitStack) -> tuple[T, object]:
        async with serve_grpc(app, ListenAddress(port=0)) as address:
            client = clients.enter_context(GrpcClient(address))
            method: Any = client.channel.unary_stream("/job.v1.JobService/Any")
            call = method(b"", timeout=PATIENCE_SECONDS)
            made = await asyncio.to_thread(use, call)
        return made, call

    with ExitStack() as clients:
        return asyncio.run(body(clients))[0]


def heard_of(app: Broken) -> tuple[int, StatusCode, str]:
    """How much a client hears that reads one thing and waits, and how that ends."""

    def use(call: Any) -> tuple[int, StatusCode, str]:  # noqa: ANN401
        heard = [next(call)]
        assert app.broken.wait(PATIENCE_SECONDS)
        with pytest.raises(grpc.RpcError):
            heard.extend(call)
        return len(heard), call.code(), call.details()

    return served(app, use)


def test_a_fault_is_told_as_one_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    app = broken()
    app.messages, app.message_bytes = 2, 10

    assert heard_of(app) == (2, StatusCode.INTERNAL, INTERNAL_ERROR)
    assert "canary" in caplog.text


def test_a_client_that_does_not_read_is_parted_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.grpc.STALLED_SECONDS_MAX", 0.5)

    heard, code, words = heard_of(broken())

    assert heard < PIECES
    assert (code, words) == (StatusCode.UNAVAILABLE, NOT_READ)


def test_a_server_that_stops_does_not_wait_for_those_who_do_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.server.grpc.UNREAD_SECONDS", 0.2)
    app = broken()

    def use(call: Any) -> float:  # noqa: ANN401
        next(call)
        sent = -1
        while sent < app.sent:
            sent = app.sent
            time.sleep(0.3)
        assert sent < PIECES
        return time.monotonic()

    stopped_at = served(app, use)

    assert time.monotonic() - stopped_at < SHUTDOWN_SECONDS / 2


async def test_an_address_in_use_is_refused_though_others_would_share_it() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Invalid, match=f"Cannot listen on 127.0.0.1:{port} for gRPC"):
            async with serve_grpc(broken(), ListenAddress(port=port)):
                pass


def test_it_is_open_to_no_other_machine_without_keys(tmp_path: Path) -> None:
    assert "start with --keys" in failed(tmp_path, "0.0.0.0:0")


def test_without_its_package_it_says_which(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys; sys.modules['grpc'] = None\n")

    assert "pip install 'holdfast[grpc]'" in failed(tmp_path, "127.0.0.1:0", hidden)


def failed(folder: Path, place: str, first: Path | None = None) -> str:
    """What `serve` says as it refuses to."""
    known = environment()
    path = os.pathsep.join(filter(None, [str(first) if first else "", known["PYTHONPATH"]]))
    options = ("--listen", "127.0.0.1:0", "--grpc", place, "--store", store(folder))
    ended = subprocess.run(
        [sys.executable, "-m", "holdfast", "serve", *options],
        env={**known, "PYTHONPATH": path},
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert ended.returncode not in (0, 1), ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr
