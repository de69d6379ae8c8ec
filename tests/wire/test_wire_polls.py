"""Those who wait: long polls by the hundred, and streams that nobody reads."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from wire_load_clients import ECHO, STREAM, Clients, cut, ids, outputs, raw_call
from wire_load_world import ServerProcess, server_process, sqlite_url, until

from holdfast.ports import Request
from holdfast.sdk.open import open_local, open_remote
from holdfast.wire.generated.job.v1 import job_pb as pb
from holdfast.wire.job_params import spec_of
from wire_world import serving

POLLS = 500
POLL_BYTES = 60 * 1024
"""What a client that waits may cost a server, connection and all."""

SILENT = 100
SILENT_BYTES = 640 * 1024
"""What a stream that nobody reads may cost: a page, a message, and buffers."""


def connections(server: ServerProcess) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def test_five_hundred_wait_at_little_cost_and_each_gets_one_job(tmp_path: Path) -> None:
    async def body(server: ServerProcess) -> None:
        clients = Clients(server.url)
        await clients.enqueue("elsewhere")
        memory, files = server.rss(), connections(server)
        polls = [asyncio.create_task(clients.dequeue(max_jobs=1)) for _ in range(POLLS)]
        await until(lambda: connections(server) >= files + POLLS)
        await asyncio.sleep(1)
        grown, used, began = server.rss() - memory, server.cpu_seconds(), time.monotonic()
        await asyncio.sleep(3)
        idle = (server.cpu_seconds() - used) / (time.monotonic() - began)
        assert not any(poll.done() for poll in polls)

        began = time.monotonic()
        made = [await clients.enqueue() for _ in range(POLLS // 2)]
        made += await enqueue_together(server.url, POLLS - len(made))
        enqueued = time.monotonic() - began
        taken = await asyncio.gather(*polls)
        took = time.monotonic() - began

        print(f"{POLLS} polls: {grown / POLLS / 1024:.0f} KiB each, idle CPU {idle:.1%}")  # noqa: T201
        print(f"{POLLS} jobs enqueued in {enqueued:.1f} s, all taken after {took:.1f} s")  # noqa: T201
        assert grown < POLLS * POLL_BYTES
        assert idle < 0.25
        assert [len(some) for some in taken] == [1] * POLLS
        assert sorted(one for some in taken for one in ids(some)) == sorted(made)
        assert took - enqueued < 10

    with server_process(sqlite_url(tmp_path), tmp_path, "--poll", "60s") as server:
        asyncio.run(body(server))


async def enqueue_together(url: str, count: int) -> list[str]:
    """Jobs that all come with one commit: whoever gets one must send the next."""
    registry = open_remote(url)
    asked = [Request(spec=spec_of(ECHO, "default")) for _ in range(count)]
    jobs = await registry.enqueue_many(asked, actor="user:ana")
    await registry.close()
    return [job.job_id for job in jobs]


def test_a_poll_ends_without_a_message_and_jobs_come_in_their_order(tmp_path: Path) -> None:
    async def body(server: ServerProcess) -> None:
        clients = Clients(server.url)
        began = time.monotonic()
        assert await clients.dequeue() == []
        assert 0.9 < time.monotonic() - began < 20

        made = [await clients.enqueue() for _ in range(6)]
        assert ids(await clients.dequeue(max_jobs=3)) == made[:3]
        assert [ids(await clients.dequeue())[0] for _ in range(3)] == made[3:]

    with server_process(sqlite_url(tmp_path), tmp_path, "--poll", "1s") as server:
        asyncio.run(body(server))


@pytest.mark.long
def test_streams_that_nobody_reads_cost_little_and_slow_nobody(tmp_path: Path) -> None:
    """Each has a megabyte to send, and none of it is taken."""

    async def body(server: ServerProcess) -> None:
        clients = Clients(server.url)
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

    with server_process(sqlite_url(tmp_path), tmp_path) as server:
        asyncio.run(body(server))


def test_a_client_that_reads_nothing_for_long_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.server.connection.STALLED_SECONDS_MAX", 1.0)

    async def body() -> None:
        registry = await open_local(sqlite_url(tmp_path))
        async with serving(registry) as served:
            clients = Clients(served.url)
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

    asyncio.run(body())


def test_what_was_published_is_not_kept_in_memory(tmp_path: Path) -> None:
    async def body(server: ServerProcess) -> None:
        clients = Clients(server.url)
        await clients.enqueue()
        token = (await clients.taken()).task_token
        before = server.rss()
        for n in range(1, 201):
            await clients.publish(token, outputs(n, n, b"x" * 300_000))
        grown = server.rss() - before
        print(f"60 MB published: RSS grew by {grown / 1e6:.0f} MB")  # noqa: T201
        assert grown < 30 * 1024 * 1024

    with server_process(sqlite_url(tmp_path), tmp_path) as server:
        asyncio.run(body(server))
