"""Clients that read slowly or not at all: their cost, when they are cut off; little is kept in memory."""

import asyncio
import socket
import struct
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast.core.access import Scope
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.sdk.open import open_local
from holdfast.server.context import ServerSettings
from holdfast.wire.generated.holdfast.v1.registry_pb import WatchRequest
from holdfast.wire.generated.job.v1 import job_pb as pb
from tests.server.job_v1_client import STREAM, JobV1Client, cut, outputs, raw_call
from tests.server.running_server import serving
from tests.server.served_registry import LARGE, PATIENCE_SECONDS, open_served, traced
from tests.server.server_process import server_process, sqlite_url, until

SILENT = 100
SILENT_BYTES = 640 * 1024
"""What a stream that nobody reads may cost: a page, a message, and buffers."""


@pytest.mark.long
async def test_streams_that_nobody_reads_cost_little_and_slow_nobody(tmp_path: Path) -> None:
    """Each has a megabyte to send, and none of it is taken."""

    with server_process(sqlite_url(tmp_path), tmp_path) as server:
        clients = JobV1Client(server.url)
        made = [await clients.enqueue() for _ in range(SILENT)]
        taken = await clients.dequeue(max_jobs=SILENT)
        assert len(taken) == SILENT
        for one in taken:
            for first in (1, 11, 21, 31):
                await clients.publish(
                    one.task_token,
                    *(outputs(n, n, b"x" * 50_000) for n in range(first, first + 10)),
                )
        memory, most, slowest = server.rss(), 0, 0.0
        asked = [pb.StreamJobEventsRequest(job_id=job_id) for job_id in made]
        silent = [raw_call(server.url, STREAM, one, received_bytes=4096) for one in asked]
        for _ in range(60):
            began = time.monotonic()
            await clients.get(made[0])
            slowest = max(slowest, time.monotonic() - began)
            most = max(most, server.rss())
            await asyncio.sleep(0.05)
        for connection in silent:
            cut(connection, reset=True)

        print(f"{SILENT} silent streams: {(most - memory) / SILENT / 1024:.0f} KiB each")  # noqa: T201
        print(f"RSS {memory / 1e6:.0f} to {most / 1e6:.0f} MB; slowest call {slowest:.3f} s")  # noqa: T201
        assert most - memory < SILENT * SILENT_BYTES
        assert slowest < 5


async def test_a_client_that_reads_nothing_for_long_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.server.connection.STALLED_SECONDS_MAX", 1.0)

    registry = await open_local(sqlite_url(tmp_path))
    async with serving(registry) as served:
        clients = JobV1Client(served.url)
        job_id = await clients.enqueue()
        token = (await clients.taken()).task_token
        for n in range(1, 101):
            await clients.publish(token, outputs(n, n, b"x" * 50_000))
        before = set(served.server.server_state.connections)
        asked = pb.StreamJobEventsRequest(job_id=job_id)
        silent = await asyncio.to_thread(raw_call, served.url, STREAM, asked, 4096)
        await until(lambda: bool(served.server.server_state.connections - before))
        await until(lambda: not served.server.server_state.connections - before)
        silent.close()
    await registry.close()


async def test_what_was_published_is_not_kept_in_memory(tmp_path: Path) -> None:
    with server_process(sqlite_url(tmp_path), tmp_path) as server:
        clients = JobV1Client(server.url)
        await clients.enqueue()
        token = (await clients.taken()).task_token
        before = server.rss()
        for n in range(1, 201):
            await clients.publish(token, outputs(n, n, b"x" * 300_000))
        grown = server.rss() - before
        print(f"60 MB published: RSS grew by {grown / 1e6:.0f} MB")  # noqa: T201
        assert grown < 30 * 1024 * 1024


async def test_little_is_remembered_of_jobs_for_the_feed(tmp_path: Path) -> None:
    registry = await open_local(sqlite_url(tmp_path))
    asked = [JobRequest(spec=Spec(queue="q", payload=LARGE)) for _ in range(60)]
    await registry.enqueue_many(asked, actor="user:a")
    _, key = await registry.create_key(name="dash", scopes=[Scope.OBSERVE], queues=["q"], actor="user:root")
    async with serving(registry, ServerSettings(keys=True)) as served:
        remote = served.remote(key)
        await remote.now()
        with traced() as grown:
            assert len((await remote.events(limit=1000)).events) == 60
            assert grown() < 60 * 250_000 / 4
        await remote.close()
    await registry.close()


async def test_a_client_that_reads_slowly_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.connection.STALLED_SECONDS_MAX", 1.5)

    async with open_served() as served:
        asked = JobRequest(spec=Spec(queue="q"), job_id="long")
        grant = await served.registry.acquire("long", owner="w", create=asked)
        for number in range(1, 101):
            await served.registry.publish(grant, [served.output(number, b"z" * 60_000)])
        connections = served.server.server.server_state.connections
        reading = asyncio.create_task(asyncio.to_thread(read_slowly, served.server.url, 5.0))
        await until(lambda: bool(connections))
        [connection] = connections
        await asyncio.sleep(4)
        assert not connection.transport.is_closing()
        assert await reading > 100_000


def read_slowly(url: str, seconds: float) -> int:
    """How much is read of a stream in so long, a little at a time."""
    place, body = urlsplit(url), WatchRequest(job_id="long").to_binary()
    body = struct.pack(">BI", 0, len(body)) + body
    with socket.socket() as plug:
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plug.settimeout(PATIENCE_SECONDS)
        plug.connect((place.hostname, place.port))
        head = (
            f"POST /holdfast.v1.RegistryService/Watch HTTP/1.1\r\nhost: {place.netloc}\r\n"
            f"content-type: application/connect+proto\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        plug.sendall(head.encode() + body)
        total, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            total += len(plug.recv(4_000))
            time.sleep(0.05)
    return total
