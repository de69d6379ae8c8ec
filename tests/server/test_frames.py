"""Bad frames, bodies and headers: an improper request is refused, and costs the other clients nothing."""

import gzip
import json
import socket
import struct
import zlib
from pathlib import Path

import pytest

from holdfast.server import edge, publish_streams
from holdfast.server.limits import HEADER_BYTES_MAX, PUBLISH_BYTES_MAX, REQUEST_BYTES_MAX
from holdfast.wire.generated.job.v1 import job_pb
from tests.server.raw_http_client import (
    EVENTS,
    JOBS,
    JSON,
    PROTO,
    REGISTRY,
    STREAM,
    RawClient,
    ThreadedServer,
    expect,
    frame,
    parse_response,
)
from tests.server.server_process import server_process

ENQUEUE = JOBS + "EnqueueJob"
DEQUEUE = JOBS + "DequeueJob"
PUBLISH = EVENTS + "PublishJobEvents"
GOOD = b'{"jobParams":{"command":"true"}}'
NONE = b'{"queue":"none"}'
GZIP = {"content-encoding": "gzip"}
GZIP_STREAM = {"connect-content-encoding": "gzip"}
GIB = 2**30
RSS_BYTES = 5 * PUBLISH_BYTES_MAX
INVALID, EXHAUSTED = "invalid_argument", "resource_exhausted"


@pytest.mark.parametrize("path", [DEQUEUE, PUBLISH, EVENTS + "StreamJobEvents", REGISTRY + "Watch"])
@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([frame(b"{}", length=1000)], INVALID),
        ([frame(b'{"a":1}', length=3)], INVALID),
        ([frame(b"{}", length=2**32 - 1)], EXHAUSTED),
        ([frame(b"{}", length=PUBLISH_BYTES_MAX + 1)], EXHAUSTED),
        ([frame(b"{}", 2)], INVALID),
        ([frame(b"{}", 4)], INVALID),
        ([frame(b"{}", 255)], INVALID),
        ([b"\0\0\0"], INVALID),
        ([frame(b"{")], INVALID),
        ([frame(b"[" * 100_000)], INVALID),
        ([frame(b'{"nope":1}')], INVALID),
    ],
)
def test_a_frame_must_be_one(server: ThreadedServer, path: str, frames: list[bytes], code: str) -> None:
    expect(server.stream(path, frames), code)


@pytest.mark.parametrize("path", [DEQUEUE, EVENTS + "StreamJobEvents", REGISTRY + "Watch"])
def test_only_a_publish_may_be_large(server: ThreadedServer, path: str) -> None:
    expect(server.stream(path, [frame(b"{}", length=REQUEST_BYTES_MAX + 1)]), EXHAUSTED, "larger")


def test_a_compressed_frame_says_how(server: ThreadedServer) -> None:
    expect(server.stream(DEQUEUE, [frame(gzip.compress(NONE), 1)], GZIP_STREAM), "ok")
    expect(server.stream(DEQUEUE, [frame(NONE, 1)], GZIP_STREAM), INVALID)
    expect(server.stream(DEQUEUE, [frame(gzip.compress(NONE)[:-9], 1)], GZIP_STREAM), INVALID)

    without = server.stream(DEQUEUE, [frame(gzip.compress(NONE), 1)])

    assert without.code == "internal", "so says the protocol"
    assert "compress" in without.message


def test_one_request_is_one_message(server: ThreadedServer) -> None:
    for some in ([], [frame(NONE), frame(NONE)]):
        expect(server.stream(DEQUEUE, some), "unimplemented", "messages")
    expect(server.stream(PUBLISH, []), "ok")


@pytest.mark.parametrize("how", ["br", "zstd", "deflate", "GZIP", "../x"])
def test_only_gzip_is_understood(server: ThreadedServer, how: str) -> None:
    expect(server.send(ENQUEUE, GOOD, {"content-encoding": how}), "unimplemented", "gzip")
    zipped = server.stream(DEQUEUE, [frame(NONE)], {"connect-content-encoding": how})
    expect(zipped, "unimplemented", "gzip")


def test_gzip_must_be_whole(server: ThreadedServer) -> None:
    expect(server.send(ENQUEUE, gzip.compress(GOOD), GZIP), "ok")
    for cut in (gzip.compress(GOOD)[:-9], GOOD, b"\x1f\x8b", gzip.compress(GOOD) + b"x"):
        expect(server.send(ENQUEUE, cut, GZIP), INVALID, "decompress")


def test_a_gzip_bomb_takes_no_memory_however_often_it_comes(tmp_path: Path) -> None:
    bomb = _bomb()
    assert len(bomb) < REQUEST_BYTES_MAX

    with server_process("memory://", tmp_path) as process:
        client = RawClient(process.url)
        expect(client.send(ENQUEUE, GOOD), "ok")
        before = process.rss_peak()
        for _ in range(10):
            expect(client.send(ENQUEUE, bomb, GZIP), EXHAUSTED, "larger")
            for path in (DEQUEUE, PUBLISH):
                expect(client.stream(path, [frame(bomb, 1)], GZIP_STREAM), EXHAUSTED, "larger")
        grown = process.rss_peak() - before

    assert grown < RSS_BYTES, f"grew by {grown:,} bytes"


def _bomb() -> bytes:
    """A GiB of zeros in less than a MiB."""
    zeros = zlib.compressobj(9, wbits=-15)
    block = zeros.compress(bytes(2**24)) + zeros.flush(zlib.Z_FULL_FLUSH)
    head = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    return head + block * (GIB // 2**24) + b"\x03\0" + struct.pack("<II", 0, GIB % 2**32)


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/xml", "application/", STREAM, "application/grpc"]
)
def test_a_content_type_that_is_not_spoken(server: ThreadedServer, kind: str) -> None:
    expect(
        server.send(ENQUEUE, GOOD, {"content-type": kind}),
        "415",
        "gRPC" if "gr" in kind else "/json",
    )
    if kind != STREAM:
        expect(server.send(DEQUEUE, frame(NONE), {"content-type": kind}), "415")


def test_only_posts_to_methods_there_are(server: ThreadedServer) -> None:
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH"):
        expect(server.send(ENQUEUE, b"", method=method), "405", "POST")
    query = "?encoding=json&message=%7B%7D"
    expect(server.send(JOBS + "GetJob" + query, b"", method="GET"), "405", "POST")
    for path in (JOBS + "Nope", "/job.v1.Nope/GetJob", "/", "/../etc/passwd", ENQUEUE + "/x"):
        expect(server.send(path, GOOD), "404", "Not found")
    for nonsense in (b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\r\n\r\n"):
        assert parse_response(server.raw(nonsense)).status == 400


@pytest.mark.parametrize("text", [b"\xff\xff", b"\x0a", b"\x1a\x05x", b"\xa3\x06" * 100_000])
def test_protobuf_that_is_cut_or_too_deep(server: ThreadedServer, text: bytes) -> None:
    whole = job_pb.EnqueueJobRequest(job_params=job_pb.JobParams(command="true")).to_binary()
    expect(server.send(ENQUEUE, whole, {"content-type": PROTO}), "ok")
    expect(server.send(ENQUEUE, text, {"content-type": PROTO}), INVALID, "EnqueueJobRequest")
    expect(server.send(ENQUEUE, whole[:-1], {"content-type": PROTO}), INVALID)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("0", "deadline_exceeded"),
        ("-1", INVALID),
        ("1e3", INVALID),
        ("9223372036854775808", INVALID),
        ("99999999999", INVALID),
        ("nope", INVALID),
        ("9999999999", "ok"),
    ],
)
def test_deadlines(server: ThreadedServer, text: str, code: str) -> None:
    deadline = {"connect-timeout-ms": text}
    made = b'{"queue":"deadlines","jobParams":{"command":"true"}}'
    expect(server.send(ENQUEUE, made, deadline), code)
    expect(server.stream(DEQUEUE, [frame(b'{"queue":"deadlines"}')], deadline), code)


def test_headers_are_short_text(server: ThreadedServer) -> None:
    expect(server.send(ENQUEUE, GOOD, {"x": "a" * (HEADER_BYTES_MAX - 500)}), "ok")
    for more in (1, 10_000):
        expect(server.send(ENQUEUE, GOOD, {"x": "a" * (HEADER_BYTES_MAX + more)}), "431", "KiB")
    expect(server.send(ENQUEUE + "?" + "a" * HEADER_BYTES_MAX, GOOD), "431", "KiB")
    expect(server.send(ENQUEUE, GOOD, {f"x-{n}": "a" for n in range(2500)}), "431", "KiB")
    expect(server.send(ENQUEUE, GOOD, {"x": "a" * 1000 * HEADER_BYTES_MAX}), "400", "too large")
    for name in ("x", "authorization"):
        expect(server.send(ENQUEUE, GOOD, {name: "\xff\xfe"}), "400", "UTF-8")
    for length in ("nope", "-1", "1, 2"):
        expect(server.send(ENQUEUE, GOOD, {"content-length": length}), "400")
    expect(server.send(ENQUEUE, GOOD, {"transfer-encoding": "chunked"}), "400")


def test_headers_without_end_are_cut_off(server: ThreadedServer) -> None:
    with server.connect() as plug:
        plug.sendall(f"POST {ENQUEUE} HTTP/1.1\r\nhost: localhost\r\nx: ".encode())
        cut = False
        for _ in range(200):
            try:
                plug.sendall(b"a" * 65536)
            except OSError:
                cut = True
                break

        assert cut


def test_a_body_that_is_too_large_is_not_read_to_its_end(server: ThreadedServer) -> None:
    large = GOOD + b" " * (REQUEST_BYTES_MAX - len(GOOD))
    expect(server.send(ENQUEUE, large), "ok")
    expect(server.send(ENQUEUE, large + b" "), EXHAUSTED, "larger")
    chunk = b"%x\r\n%b\r\n" % (len(large), large)
    chunked = {"content-length": "", "transfer-encoding": "chunked"}
    expect(server.send(ENQUEUE, chunk + b"0\r\n\r\n", chunked), "ok")
    expect(server.send(ENQUEUE, chunk + b"1\r\n \r\n0\r\n\r\n", chunked), EXHAUSTED, "larger")
    expect(server.send(ENQUEUE, chunk * 2, {"content-length": str(1000 * len(large))}), EXHAUSTED)
    with server.connect() as plug:
        head = f"POST {ENQUEUE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {JSON}\r\n"
        plug.sendall(head.encode() + b"transfer-encoding: chunked\r\n\r\n" + chunk * 3)
        assert _until(plug, b"resource_exhausted"), "answered before it ends"


def _until(plug: socket.socket, words: bytes) -> bool:
    """Whether the server says these words before it closes."""
    got = b""
    while words not in got and (part := plug.recv(65536)):
        got += part
    return words in got


def test_a_body_that_does_not_come_is_not_waited_for(
    server: ThreadedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge, "REQUEST_SECONDS_MAX", 1.0)
    monkeypatch.setattr(publish_streams, "STALLED_SECONDS_MAX", 1.0)
    for path, kind in ((ENQUEUE, JSON), (DEQUEUE, STREAM), (PUBLISH, STREAM)):
        slow = [_slow(server, path, kind) for _ in range(20)]
        server.fine()
        for plug in slow:
            with plug:
                assert _until(plug, b"deadline_exceeded")


def _slow(server: ThreadedServer, path: str, kind: str) -> socket.socket:
    plug = server.connect()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: 900\r\n\r\n"
    plug.sendall(head.encode() + b"\0")
    return plug


def test_a_stream_of_very_many_messages(server: ThreadedServer) -> None:
    token = server.claim("many")["taskToken"]
    tiny = frame(json.dumps({"taskToken": token}).encode())
    expect(server.stream(PUBLISH, [tiny * 20_000]), "ok")
    expect(server.stream(PUBLISH, [frame(b"{}") * 100_000]), INVALID, "task token")


def test_a_request_cut_in_its_middle_does_nothing(server: ThreadedServer) -> None:
    asked = b'{"queue":"cut","jobParams":{"command":"true"}}'
    head = f"POST {ENQUEUE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {JSON}\r\n".encode()
    for sent in range(0, len(asked), 5):
        whole = head + b"content-length: %d\r\n\r\n" % len(asked) + asked[:sent]
        server.raw(whole, half_close=True)
        server.raw(head + b"transfer-encoding: chunked\r\n\r\n40\r\n" + asked, half_close=True)

    assert "counts" not in server.call(REGISTRY + "Counts", {"queue": "cut"}).json()
