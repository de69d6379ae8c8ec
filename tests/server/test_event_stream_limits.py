"""Limits of event streams and of keys: how many streams may be open, and how often a key may call."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import pytest

from holdfast.core.access import Scope
from holdfast.server import calls, event_streams
from holdfast.server.context import ServerSettings
from holdfast.server.limits import STREAMS_PER_JOB_MAX, STREAMS_PER_PRINCIPAL_MAX
from tests.server.raw_http_client import (
    EVENTS,
    JOBS,
    REGISTRY,
    STREAM,
    RawResponse,
    ThreadedServer,
    expect,
    frame,
    threaded_server,
)

EXHAUSTED = "resource_exhausted"


@contextmanager
def _watch(server: ThreadedServer, job_id: str, key: str | None = None) -> Iterator[None]:
    """A stream that is open: it has said something."""
    body = frame(json.dumps({"jobId": job_id}).encode())
    head = f"POST {REGISTRY}Watch HTTP/1.1\r\nhost: localhost\r\ncontent-type: {STREAM}\r\n"
    if key is not None:
        head += f"authorization: Bearer {key}\r\n"
    with server.connect() as plug:
        plug.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
        got = b""
        while b"job_queued" not in got:
            part = plug.recv(65536)
            assert part, got
            got += part
        yield


def _streams(server: ThreadedServer, job_id: str, key: str | None = None) -> list[RawResponse]:
    headers = {"connect-timeout-ms": "300"} | ({"authorization": f"Bearer {key}"} if key else {})
    paths = (EVENTS + "StreamJobEvents", REGISTRY + "Watch")
    return [server.stream(path, [{"jobId": job_id}], headers) for path in paths]


def test_a_job_has_ten_streams_and_no_eleventh(server: ThreadedServer) -> None:
    job_id = server.enqueue("streams")
    with ExitStack() as stack:
        for _ in range(STREAMS_PER_JOB_MAX):
            stack.enter_context(_watch(server, job_id))

        for answer in _streams(server, job_id):
            expect(answer, EXHAUSTED, f"{STREAMS_PER_JOB_MAX} streams")
        assert {one.code for one in _streams(server, server.enqueue("others"))} == {"deadline_exceeded"}

    _freed(lambda: _streams(server, job_id))


def _freed(look: Callable[[], list[RawResponse]]) -> None:
    for _ in range(100):
        if {one.code for one in look()} == {"deadline_exceeded"}:
            return
    pytest.fail("the places of streams that are gone were not given back")


def test_a_server_has_so_many_streams(server: ThreadedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "STREAMS_MAX", 3)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(_watch(server, server.enqueue("few")))
        for answer in _streams(server, server.enqueue("few")):
            expect(answer, EXHAUSTED, "another server")


def test_a_key_has_twenty_streams_and_its_share_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    with threaded_server(ServerSettings(keys=True)) as server:
        ana, bob, eve = (_key(server, name) for name in ("ana", "bob", "eve"))
        ids = [_made(server, ana) for _ in range(STREAMS_PER_PRINCIPAL_MAX + 1)]
        with ExitStack() as stack:
            for job_id in ids[:STREAMS_PER_PRINCIPAL_MAX]:
                stack.enter_context(_watch(server, job_id, ana))
            for answer in _streams(server, ids[-1], ana):
                expect(answer, EXHAUSTED, f"ana has {STREAMS_PER_PRINCIPAL_MAX} streams")
            assert _streams(server, ids[-1], bob)[0].code == "deadline_exceeded"

        monkeypatch.setattr(calls, "RATE_BURST_MAX", 2)
        monkeypatch.setattr(calls, "RATE_PER_SECOND_MAX", 0.001)
        headers = {"authorization": f"Bearer {eve}"}
        codes = [server.call(JOBS + "ListJobs", {}, headers).code for _ in range(4)]
        assert codes == ["ok", "ok", EXHAUSTED, EXHAUSTED]
        assert server.call(JOBS + "ListJobs", {}).code == "unauthenticated"


def _key(server: ThreadedServer, name: str) -> str:
    made = server.registry.create_key(
        name=name, scopes=list(Scope), life=timedelta(days=1), actor="user:root"
    )
    return str(server.do(made)[1])


def _made(server: ThreadedServer, key: str) -> str:
    asked = {"jobParams": {"command": "true"}}
    headers = {"authorization": f"Bearer {key}"}
    return str(server.call(JOBS + "EnqueueJob", asked, headers).json()["jobId"])
