"""Servers that stop, in good order or by kill -9, and servers that share the work."""

import asyncio
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError

from holdfast.sdk.open import open_local, open_remote
from holdfast.wire.generated.job.v1 import job_pb as pb
from tests.server.job_v1_client import STREAM, JobV1Client, Monitor, cut, outputs, raw_call
from tests.server.load_clients import LoadClients
from tests.server.server_process import LONG, ServerProcess, server_process, sqlite_url, until
from tests.stores.postgres.running_server import fresh_url

LEAVE_SECONDS = 16.0
LOAD_SECONDS = 20.0 if LONG else 2.5


@asynccontextmanager
async def crowd(store: str, *servers: ServerProcess) -> AsyncIterator[LoadClients]:
    """Clients of all the servers, at work; at the end, what they were told is compared with the store."""
    found = LoadClients("http://" + ",".join(one.url.removeprefix("http://") for one in servers))
    await found.start()
    yield found
    await found.stop()
    registry = await open_local(store)
    await found.check(registry)
    await registry.close()


async def test_a_server_that_is_told_to_stop_ends_its_streams_and_loses_nothing(
    tmp_path: Path,
) -> None:
    store = sqlite_url(tmp_path)

    with (
        server_process(store, tmp_path, "--poll", "60s") as first,
        server_process(store, tmp_path) as second,
    ):
        async with crowd(store, first, second) as people:
            clients, elsewhere = JobV1Client(first.url), JobV1Client(second.url)
            job_id = await clients.enqueue("streamed")
            token = (await clients.taken(queue="streamed")).task_token
            await clients.publish(token, outputs(1, 70))
            monitors = [Monitor(clients, job_id), Monitor(clients, job_id, from_sequence=500)]
            polls = [asyncio.create_task(clients.dequeue(queue="none")) for _ in range(20)]
            publishing = asyncio.create_task(endless(clients, token))
            await until(lambda: len(monitors[0].heard) == 70)
            done = people.done
            await until(lambda: people.done > done + 20)

            began = time.monotonic()
            first.stop()
            async with asyncio.timeout(60):
                answers = await asyncio.gather(*polls)
                assert await publishing is Code.UNAVAILABLE
                await asyncio.gather(*(one.task for one in monitors))
                code = await first.exit_code()
            took, done = time.monotonic() - began, people.done
            await until(lambda: people.done > done + 20)

            print(f"stopped in {took:.2f} s, {people.done} jobs done")  # noqa: T201
            assert code == 0, first.log.read_text()
            assert took < LEAVE_SECONDS
            assert answers == [[]] * 20
            assert [going_on(one) for one in monitors] == [71, 500]
            later = Monitor(elsewhere, job_id, from_sequence=71)
            await elsewhere.publish(token, outputs(71, 100))
            await elsewhere.complete(token)
            await later.task
            assert monitors[0].sequences + later.sequences == list(range(1, 101))
        assert "Traceback" not in first.log.read_text()


async def endless(clients: JobV1Client, token: str) -> Code:
    """Publish in a stream that stays open, as workers do; how it ended."""

    async def requests() -> AsyncIterator[pb.PublishJobEventsRequest]:
        yield pb.PublishJobEventsRequest(task_token=token, events=outputs(1, 70))
        await asyncio.Event().wait()

    with pytest.raises(ConnectError) as ended:
        await clients.events.publish_job_events(requests())
    return ended.value.code


def going_on(monitor: Monitor) -> int:
    """Where the server said to read on."""
    assert monitor.error is not None
    assert monitor.error.code is Code.UNAVAILABLE
    [place] = re.findall(r"from sequence (\d+)", monitor.error.message)
    return int(place)


async def test_a_stream_that_nobody_reads_does_not_keep_a_server_for_long(tmp_path: Path) -> None:
    with server_process(sqlite_url(tmp_path), tmp_path) as server:
        clients = JobV1Client(server.url)
        job_id = await clients.enqueue()
        token = (await clients.taken()).task_token
        for n in range(1, 201):
            await clients.publish(token, outputs(n, n, b"x" * 50_000))
        asked = pb.StreamJobEventsRequest(job_id=job_id)
        silent = raw_call(server.url, STREAM, asked, received_bytes=4096)
        await asyncio.sleep(1)
        began = time.monotonic()
        server.stop()
        code, took = await server.exit_code(), time.monotonic() - began
        cut(silent, reset=True)
        print(f"stopped in {took:.2f} s beside a silent stream")  # noqa: T201
        assert code == 0, server.log.read_text()
        assert took < LEAVE_SECONDS / 2
        assert "Traceback" not in server.log.read_text()


def test_when_one_of_two_servers_is_killed_clients_go_on_at_the_other(tmp_path: Path) -> None:
    async def body(store: str, first: ServerProcess, second: ServerProcess) -> None:
        async with crowd(store, first, second) as people:
            await asyncio.sleep(LOAD_SECONDS)
            done = people.done
            assert done
            first.kill()
            began = time.monotonic()
            await until(lambda: people.done > done + 20)
            pause = time.monotonic() - began
            await asyncio.sleep(LOAD_SECONDS)
        print(f"{people.done} jobs done, {people.heard} events heard; {people.troubles}")  # noqa: T201
        print(f"20 more jobs were done {pause:.2f} s after the kill")  # noqa: T201
        assert people.done > done + 20

    store = asyncio.run(fresh_url(tmp_path))
    with server_process(store, tmp_path) as first, server_process(store, tmp_path) as second:
        asyncio.run(body(store, first, second))


async def test_a_watcher_leaves_a_server_that_has_fallen_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is frozen: its connections stay open, and nothing comes."""
    monkeypatch.setattr("holdfast.wire.server_connection.SILENT_SECONDS", 3.0)
    store = sqlite_url(tmp_path)

    with server_process(store, tmp_path) as first, server_process(store, tmp_path) as second:
        registry = open_remote(f"{first.url},{second.url.removeprefix('http://')}")
        clients, heard = JobV1Client(second.url), []

        async def watch() -> None:
            async for event in registry.watch():
                heard.append(event.job_id)

        watching = asyncio.create_task(watch())
        made = [await clients.enqueue()]
        await until(lambda: heard == made)
        first.process.send_signal(signal.SIGSTOP)
        made.append(await clients.enqueue())
        await until(lambda: heard == made)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await registry.close()


async def test_queue_and_events_can_be_served_apart(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)

    with (
        server_process(store, tmp_path, "--services", "jobs") as jobs,
        server_process(store, tmp_path, "--services", "events") as events,
    ):
        clients, wrong = JobV1Client(jobs.url, events.url), JobV1Client(events.url, jobs.url)
        job_id = await clients.enqueue()
        token = (await clients.taken()).task_token
        monitor = Monitor(clients, job_id)
        for first in range(1, 101, 10):
            await clients.publish(token, outputs(first, first + 9))
        await clients.complete(token)
        await monitor.task
        assert (monitor.error, monitor.sequences) == (None, list(range(1, 101)))
        for call in (wrong.enqueue(), wrong.publish(token, outputs(101, 101))):
            with pytest.raises(ConnectError) as refused:
                await call
            assert refused.value.code in (Code.NOT_FOUND, Code.UNIMPLEMENTED)
