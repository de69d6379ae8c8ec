"""What a hostile review found in the server, third part: readers, restarts, keys, and words."""

import asyncio
import re
import socket
import struct
import time
from contextlib import aclosing, closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from wire_load_clients import Clients, Monitor
from wire_load_world import sqlite_url, until
from wire_reviewed_world import LARGE, PATIENCE_SECONDS, Scene, play, traced

import wire_world
from holdfast.cli.serve_log import ServerLog
from holdfast.cli.serving import run
from holdfast.core.access import Key, Scope
from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Success
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant, Request
from holdfast.sdk.open import open_local, open_registry, open_remote
from holdfast.server.context import Settings
from holdfast.server.keyring import Keyring
from holdfast.server.limits import ANSWER_BYTES_MAX, PAGE_BYTES
from holdfast.server.serving import Place
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from wire_world import serving

UUID = "018f3c5e-7c1a-7e6b-9f30-2b5d0f3f8a11"


async def two_attempts(here: Scene) -> Grant:
    """A job whose first attempt said five things and failed, and whose second is under way."""
    spec = Spec(queue="q", retry=Retry(max_failures=5, backoff=timedelta()))
    asked = Request(spec=spec, job_id=UUID)
    first = await here.registry.acquire(UUID, owner="w", create=asked)
    await here.registry.publish(first, [here.output(n, b"first") for n in range(1, 6)])
    await here.registry.complete(first, Failure(message="x"))
    here.clock.advance(days=1)
    [second] = await here.registry.claim(["q"], owner="w")
    return second


def test_a_monitor_says_of_which_attempt_it_has_read_how_much() -> None:
    async def heard(clients: Clients, **fields: Any) -> list[tuple[int, int]]:  # noqa: ANN401
        monitor = Monitor(clients, UUID, **fields)
        await monitor.task
        assert monitor.error is None
        return [(event.attempt, event.sequence) for event in monitor.heard]

    async def body(here: Scene) -> None:
        second = await two_attempts(here)
        await here.registry.publish(second, [here.output(n, b"second") for n in range(1, 8)])
        await here.registry.complete(second, Success())
        clients = Clients(here.served.url)

        rest = [(second.attempt, n) for n in range(1, 8)]
        assert await heard(clients, from_sequence=6, attempt=1) == rest
        assert await heard(clients, from_sequence=5, attempt=1) == [(1, 5), *rest]
        assert await heard(clients, from_sequence=6) == rest[5:]

    play(body)


def test_a_server_that_leaves_does_not_mistake_the_attempt() -> None:
    """What it says is what the monitor asks next: it must pass nothing over."""

    async def body(here: Scene) -> None:
        second = await two_attempts(here)
        async with serving(here.registry) as leaving:
            monitor = Monitor(Clients(leaving.url), UUID, from_sequence=6, attempt=1)
            await until(lambda: bool(leaving.server.server_state.tasks))
            leaving.app.context.stop()
            await monitor.task
        assert monitor.error is not None
        assert "from sequence 6 of attempt 1" in monitor.error.message
        await here.registry.complete(second, Success())

    play(body)


def said(here: Scene, sequence: int) -> Event:
    return Event(
        WorkerEventType.CUSTOM,
        EventClass.WORKER,
        here.clock.now(),
        sequence=sequence,
        attributes={"text": "z" * 50_000},
    )


def test_what_events_say_of_themselves_counts_as_much_as_output() -> None:
    async def body(here: Scene) -> None:
        asked = Request(spec=Spec(queue="q"), job_id="wordy")
        grant = await here.registry.acquire("wordy", owner="w", create=asked)
        for first in range(1, 201, 20):
            events = [said(here, n) for n in range(first, first + 20)]
            await here.registry.publish(grant, events)
        await here.registry.complete(grant, Success())

        stream = here.caller.registry.watch(pb.WatchRequest(job_id="wordy"))
        async with aclosing(stream) as slices:  # type: ignore[type-var]
            sizes = [len(one.to_binary()) async for one in slices]
        assert sum(sizes) > 200 * 50_000
        assert max(sizes) < PAGE_BYTES * 1.1

        log = await here.caller.registry.read_log(pb.ReadLogRequest(job_id="wordy", limit=1000))
        assert len(log.to_binary()) <= ANSWER_BYTES_MAX

    play(body)


def test_little_is_remembered_of_jobs_for_the_feed(tmp_path: Path) -> None:
    async def body() -> None:
        registry = await open_local(sqlite_url(tmp_path))
        asked = [Request(spec=Spec(queue="q", payload=LARGE)) for _ in range(60)]
        await registry.enqueue_many(asked, actor="user:a")
        _, key = await registry.create_key(
            name="dash", scopes=[Scope.OBSERVE], queues=["q"], actor="user:root"
        )
        async with serving(registry, Settings(keys=True)) as served:
            remote = served.remote(key)
            await remote.now()
            with traced() as grown:
                assert len((await remote.feed(limit=1000)).events) == 60
                assert grown() < 60 * 250_000 / 4
            await remote.close()
        await registry.close()

    asyncio.run(body())


def test_a_client_that_reads_slowly_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.connection.STALLED_SECONDS_MAX", 1.5)

    async def body(here: Scene) -> None:
        asked = Request(spec=Spec(queue="q"), job_id="long")
        grant = await here.registry.acquire("long", owner="w", create=asked)
        for number in range(1, 101):
            await here.registry.publish(grant, [here.output(number, b"z" * 60_000)])
        connections = here.served.server.server_state.connections
        reading = asyncio.create_task(asyncio.to_thread(read_slowly, here.served.url, 5.0))
        await until(lambda: bool(connections))
        [connection] = connections
        await asyncio.sleep(4)
        assert not connection.transport.is_closing()
        assert await reading > 100_000

    play(body)


def read_slowly(url: str, seconds: float) -> int:
    """How much is read of a stream in so long, a little at a time."""
    place, body = urlsplit(url), pb.WatchRequest(job_id="long").to_binary()
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


def test_who_waits_for_a_job_waits_also_while_its_server_is_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(here: Scene) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        monkeypatch.setattr(wire_world, "Place", lambda port=port, at=port: Place(port=at))
        job = await here.enqueue()
        async with serving(here.registry) as first:
            remote = first.remote()
            waiting = asyncio.create_task(remote.wait(job.job_id))
            await until(lambda: bool(first.server.server_state.tasks))
        await asyncio.sleep(0.5)
        assert not waiting.done()

        [grant] = await here.registry.claim(["q"], owner="w")
        await here.registry.complete(grant, Success())
        async with serving(here.registry):
            assert (await waiting).state is State.SUCCEEDED
        await remote.close()

    play(body)


def test_who_waits_for_so_long_does_not_wait_longer_for_a_server_that_is_gone() -> None:
    async def body(here: Scene) -> None:
        async with serving(here.registry) as gone:
            remote = gone.remote()
        async with asyncio.timeout(10):
            with pytest.raises(Unavailable):
                await remote.wait("any", timeout=1.0)
        await remote.close()

    play(body)


def test_a_key_made_while_keys_are_read_is_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(here: Scene) -> None:
        keyring = Keyring(here.registry, here.clock, required=True)
        scopes, life = [Scope.OBSERVE], timedelta(days=2)
        here.clock.advance(days=100)

        async def make(name: str) -> str:
            made = await here.registry.create_key(
                name=name, scopes=scopes, life=life, actor="user:root"
            )
            return f"Bearer {made[1]}"

        one, real, reading, go = (
            await make("one"),
            here.registry.keys,
            asyncio.Event(),
            asyncio.Event(),
        )

        async def slowly() -> list[Key]:
            keys = await real()
            reading.set()
            await go.wait()
            return keys

        monkeypatch.setattr(here.registry, "keys", slowly)
        waits = asyncio.create_task(keyring.principal(one))
        await reading.wait()
        monkeypatch.setattr(here.registry, "keys", real)
        two = await make("two")
        keyring.forget()
        go.set()

        first, second = await waits, await keyring.principal(two)
        assert (first and first.name, second and second.name) == ("one", "two")

    play(body)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1,", "http://one:80:80", "http://one:99999", "https://one:http"],
)
def test_an_address_that_is_none_is_refused_with_an_example(url: str) -> None:
    words = f"{url!r} does not name a server. Write http://127.0.0.1:8080"
    with pytest.raises(Invalid, match=re.escape(words)):
        open_remote(url)


def test_an_address_may_be_written_in_capitals() -> None:
    async def body(here: Scene) -> None:
        registry = await open_registry(here.served.url.replace("http", "HTTP"))
        assert await registry.counts() == {}
        await registry.close()

    play(body)


def test_a_server_with_keys_does_not_start_when_none_of_them_counts(tmp_path: Path) -> None:
    async def body() -> None:
        url = sqlite_url(tmp_path)
        registry = await open_local(url)
        key, _ = await registry.create_key(name="a", scopes=[Scope.ADMIN], actor="user:root")
        await registry.revoke_key(key.key_id, actor="user:root")
        await registry.close()
        with closing(ServerLog("text")) as log, pytest.raises(Invalid, match="keys create"):
            async with asyncio.timeout(20):
                await run(url, Place(port=0), Settings(keys=True), log)

    asyncio.run(body())
