"""Connections: what a client without a key may send and hold open, and what it costs the others."""

import asyncio
import json
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.access import Scope
from holdfast.registry.local import LocalRegistry
from holdfast.server.context import ServerSettings
from holdfast.stores.memory import MemoryStore
from holdfast.system import SteadyClock, SystemIds
from tests.server.grpc_client import grpc_server
from tests.server.raw_http_client import (
    ThreadedServer,
    frame,
    parse_response,
    read_response,
    threaded_server,
    unharmed,
)
from tests.server.running_server import serving

MEBIBYTE = 1024 * 1024
POST = (
    b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n%s\r\n"
)
BODY = json.dumps({"spec": {"kind": "x"}}).encode()
CHUNK = b"%x\r\n%s\r\n" % (len(BODY), BODY)
STREAM = b"/v1/events/stream"
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def server(caplog: pytest.LogCaptureFixture) -> Iterator[ThreadedServer]:
    with threaded_server(ServerSettings(poll_seconds=0.05)) as one:
        yield one
        unharmed(one, caplog)


@pytest.fixture
def guarded() -> Iterator[ThreadedServer]:
    with threaded_server(ServerSettings(keys=True)) as one:
        yield one


def _key(server: ThreadedServer, name: str = "ana") -> bytes:
    made = server.registry.create_key(name=name, scopes=tuple(Scope), actor="user:root")
    return str(server.do(made)[1]).encode()


def _get(path: bytes, key: bytes) -> bytes:
    words = b"GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n"
    return words % (path, key)


def _taken(server: ThreadedServer, begin: bytes, again: bytes) -> int:
    """How many bytes of what is sent for ever are taken before the connection is closed."""
    many = again * (MEBIBYTE // len(again))
    sent = 0
    with server.connect() as plug:
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        try:
            plug.sendall(begin)
            while sent < 64 * MEBIBYTE:
                plug.sendall(many)
                sent += len(many)
        except OSError:
            pass
    return sent


ENDLESS = {
    "one header": (POST[:-4] + b"x: ", b"a"),
    "headers": (POST[:-4], b"x: y\r\n"),
    "one trailer": (POST % b"" + b"2\r\n{}\r\n0\r\nx: ", b"a"),
    "trailers": (POST % b"" + b"2\r\n{}\r\n0\r\n", b"x: y\r\n"),
    "a chunk's size": (POST % b"", b"0"),
    "a chunk's extension": (POST % b"" + b"2;x=", b"a"),
    "extensions": (POST % b"", b"1;x=yyyyyyyyyyyyyyyy\r\n \r\n"),
    "tiny chunks": (POST % b"", b"1\r\n \r\n"),
    "empty lines": (HEALTH, b"\r\n"),
    "trailers of a publish stream": (
        POST.replace(b"/v1/jobs", b"/job.v1.JobEventsService/PublishJobEvents").replace(
            b"application/json", b"application/connect+json"
        )
        % b""
        + b"7\r\n%s\r\n0\r\n" % frame(b"{}"),
        b"x: y\r\n",
    ),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_what_has_no_end_is_cut_off(server: ThreadedServer, what: str) -> None:
    assert _taken(server, *ENDLESS[what]) < 16 * MEBIBYTE


@pytest.mark.parametrize("what", ["trailers", "one trailer", "tiny chunks"])
def test_it_is_cut_off_also_when_it_was_refused_before(guarded: ThreadedServer, what: str) -> None:
    assert _taken(guarded, *ENDLESS[what]) < 16 * MEBIBYTE


def test_a_key_in_a_trailer_lets_nobody_in(guarded: ThreadedServer) -> None:
    key = b"Authorization: Bearer " + _key(guarded) + b"\r\n"
    in_header = guarded.raw(POST % key + CHUNK + b"0\r\n\r\n")
    in_trailer = guarded.raw(POST % b"" + CHUNK + b"0\r\n" + key + b"\r\n")

    assert (parse_response(in_header).status, parse_response(in_trailer).status) == (201, 401)


def test_small_trailers_are_allowed_and_dropped(server: ThreadedServer) -> None:
    got = server.raw(POST % b"" + CHUNK + b"0\r\nx: y\r\nAuthorization: z\r\n\r\n")

    assert parse_response(got).status == 201


def test_a_large_body_in_small_chunks_is_no_offence(server: ThreadedServer) -> None:
    """As clients send it that write a length, and then so many bytes."""
    padding = b"".join(b"5\r\n     \r\n1e\r\n%s\r\n" % (b" " * 30) for _ in range(20_000))

    assert parse_response(server.raw(POST % b"" + padding + CHUNK + b"0\r\n\r\n")).status == 201


def test_what_is_left_of_an_answered_request_has_to_come_in_time(
    guarded: ThreadedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.server.connection.REQUEST_SECONDS_MAX", 0.1)
    with guarded.connect() as plug:
        plug.sendall(POST % b"" + b"2\r\n{}\r\n")

        answered = plug.recv(1 << 16)
        assert answered.startswith(b"HTTP/1.1 401")
        while rest := plug.recv(1 << 16):  # until the server closes
            answered += rest


def test_few_requests_are_taken_ahead_of_their_answers(server: ThreadedServer) -> None:
    with server.connect() as plug:
        plug.sendall(HEALTH * 20)
        got = b""
        while got.count(b"HTTP/1.1 200") < 20:
            got += plug.recv(1 << 16)
    with server.connect() as plug:
        got = b""
        plug.sendall(HEALTH * 700)
        try:
            while got.count(b"HTTP/1.1 200") < 700 and (part := plug.recv(1 << 16)):
                got += part
        except ConnectionResetError:
            pass
    assert got.count(b"HTTP/1.1 200") < 100


def test_idle_connections_keep_nobody_out(guarded: ThreadedServer) -> None:
    """There may be 20 connections: a client that was let in stays, one that comes is answered."""
    bounds = guarded.served.server.open_connections
    bounds.limit, bounds.limit_per_address = 20, 20
    ask = b"GET /v1/now HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + _key(guarded) + b"\r\n\r\n"
    with guarded.connect() as client:
        client.sendall(ask)
        assert parse_response(read_response(client)).status == 200

        idle = [guarded.connect() for _ in range(100)]
        halves = [_begun(guarded) for _ in range(100)]
        assert parse_response(guarded.raw(ask)).status == 200
        client.sendall(ask)
        assert parse_response(read_response(client)).status == 200

        assert len(bounds) <= 20
        for plug in idle:
            assert _closed(plug)
        for plug in halves:
            plug.close()


def _begun(server: ThreadedServer) -> socket.socket:
    plug = server.connect()
    plug.sendall(POST[:-4])
    return plug


def _closed(plug: socket.socket) -> bool:
    with plug:
        try:
            while plug.recv(1 << 16):  # what it was answered before
                pass
        except ConnectionResetError:
            pass
        return True


def test_one_address_has_a_part_of_the_connections(guarded: ThreadedServer) -> None:
    bounds = guarded.served.server.open_connections
    bounds.limit_per_address = 5

    plugs = [guarded.connect() for _ in range(12)]

    assert all(_closed(plug) for plug in plugs[:7])
    plugs[-1].sendall(HEALTH)
    assert plugs[-1].recv(1 << 16).startswith(b"HTTP/1.1 200")
    assert len(bounds) == 5
    for plug in plugs[7:]:
        plug.close()


def test_a_client_at_work_is_not_closed_for_a_new_one(guarded: ThreadedServer) -> None:
    """Where all are clients that were let in, an idle one is closed; without any, the new one."""
    bounds = guarded.served.server.open_connections
    bounds.limit = bounds.limit_per_address = 2
    ana, bob = _key(guarded), _key(guarded, "bob")
    with guarded.connect() as first, guarded.connect() as second:
        for plug, words in ((first, _get(STREAM, ana)), (second, _get(b"/v1/now", bob))):
            plug.sendall(words)
            assert plug.recv(1 << 16).startswith(b"HTTP/1.1 200")

        third = guarded.connect()
        third.sendall(_get(STREAM, bob))
        assert third.recv(1 << 16).startswith(b"HTTP/1.1 200")
        assert _closed(second)
        assert _closed(guarded.connect())
        third.close()


def test_one_key_has_half_of_the_connections_at_work_and_another_key_comes_in(
    guarded: ThreadedServer,
) -> None:
    bounds = guarded.served.server.open_connections
    bounds.limit = bounds.limit_per_address = 8
    ana, bob = _key(guarded), _key(guarded, "bob")
    plugs = [guarded.connect() for _ in range(8)]
    answers = []
    for plug in plugs:
        plug.sendall(_get(STREAM, ana))
        answers.append(plug.recv(1 << 16))

    assert [one.startswith(b"HTTP/1.1 200") for one in answers] == [True] * 4 + [False] * 4
    for one in answers[4:]:
        assert one.startswith(b"HTTP/1.1 429")
        assert b"retry-after: 1\r\n" in one.lower()
    assert [parse_response(guarded.raw(_get(b"/v1/now", bob))).status for _ in range(4)] == [200] * 4
    assert parse_response(guarded.raw(_get(b"/v1/now", ana))).status == 429

    plugs[0].close()  # its place is free once the server has seen that
    while parse_response(guarded.raw(_get(b"/v1/now", ana))).status == 429:
        pass
    for plug in plugs[1:]:
        plug.close()


def test_a_connection_counts_for_the_key_whose_call_is_under_way(guarded: ThreadedServer) -> None:
    """A proxy sends the calls of all keys over the same connections."""
    bounds = guarded.served.server.open_connections
    bounds.limit = bounds.limit_per_address = 2
    ana, bob = _key(guarded), _key(guarded, "bob")
    with guarded.connect() as proxied, guarded.connect() as streaming:

        def status(key: bytes) -> int:
            proxied.sendall(_get(b"/v1/now", key))
            return parse_response(read_response(proxied)).status

        before = [status(key) for key in (ana, bob, ana, bob, ana)]
        streaming.sendall(_get(STREAM, ana))
        assert streaming.recv(1 << 16).startswith(b"HTTP/1.1 200")

        assert before == [200] * 5
        assert [status(key) for key in (ana, bob, ana, bob)] == [429, 200, 429, 200]


def test_an_upgrade_is_not_offered(server: ThreadedServer, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("wsproto")
    asked = (
        b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\n\r\n"
    )

    statuses = [
        parse_response(server.raw(asked % path)).status for path in (b"/nothing", b"/v1/now", b"/health")
    ]

    assert statuses == [404, 200, 200]
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_metadata_without_end_is_cut_off_by_grpc(tmp_path: Path) -> None:
    """Headers go on in frames of their own for ever, and so do trailers."""
    with grpc_server(tmp_path) as served:
        host, _, port = served.grpc.rpartition(":")
        for trailers in (False, True):
            sent = 0
            with socket.create_connection((host, int(port)), timeout=60) as plug:
                try:
                    plug.sendall(_begun_by_grpc(trailers=trailers))
                    while sent < 64 * MEBIBYTE:
                        plug.sendall(_h2_frame(9, 0, b"\x00\x01x\x7f\x80\x7e" + b"a" * 16_000))
                        sent += 16_000
                except OSError:
                    pass
            assert sent < 16 * MEBIBYTE


def _h2_frame(kind: int, flags: int, data: bytes, stream: int = 1) -> bytes:
    return len(data).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + data


def _begun_by_grpc(*, trailers: bool) -> bytes:
    """A call by HTTP/2 whose headers, or trailers, do not end in their first frame."""
    headers = b"".join(
        b"\x00%c%s%c%s" % (len(name), name, len(value), value)
        for name, value in (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", b"/job.v1.JobEventsService/PublishJobEvents"),
            (b":authority", b"localhost"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
    )
    begun = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _h2_frame(4, 0, b"", 0)
    if not trailers:
        return begun + _h2_frame(1, 0, headers)
    return begun + _h2_frame(1, 4, headers) + _h2_frame(1, 1, b"\x00\x01x\x01y")


def test_an_answer_is_sent_at_once_and_does_not_wait_for_the_network_to_be_filled() -> None:
    """40 calls one after the other: with Nagle's algorithm on, most of them waited 40 ms."""

    async def main() -> float:
        ids = SystemIds()
        registry = LocalRegistry(MemoryStore(SteadyClock(), ids), ids)
        async with serving(registry) as served:
            remote = served.remote()
            await remote.now()
            begun = time.perf_counter()
            for _ in range(40):
                await remote.now()
            took = time.perf_counter() - begun
            await remote.close()
        await registry.close()
        return took

    assert min(asyncio.run(main()) for _ in range(3)) < 0.9
