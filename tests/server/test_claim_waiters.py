"""Claims and other calls that wait: their cost, their end, and how many places one key has."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from connectrpc.code import Code

from holdfast.core.access import Scope
from holdfast.core.errors import Unavailable
from holdfast.core.job import Job
from holdfast.core.spec import Spec
from holdfast.ports import Grant, JobRequest
from holdfast.sdk.open import open_remote
from holdfast.system import SystemClock, SystemIds
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.job_params import spec_of
from holdfast.wire.remote import RemoteRegistry
from holdfast.wire.server_connection import ServerConnection
from tests.server.connect_client import ConnectClient, refusal_code
from tests.server.job_v1_client import ECHO, JobV1Client, ids
from tests.server.keyed_server import KeyedServer, count, key
from tests.server.served_registry import open_served
from tests.server.server_process import ServerProcess, server_process, sqlite_url, until

SECONDS = 20
PLACES = 2


@pytest.fixture(autouse=True)
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.capacity.connections_max", lambda: 4 * PLACES)


async def claim(caller: ConnectClient) -> object:
    asked = pb.ClaimRequest(queues=["default"], owner="w", wait_seconds=SECONDS)
    return await caller.registry.claim(asked)


async def change(caller: ConnectClient) -> object:
    """Wait until anything has happened."""
    marked = await caller.registry.changes(pb.ChangesRequest())
    asked = pb.ChangesRequest(seconds=SECONDS, mark=marked.mark)
    return await caller.registry.changes(asked)


async def end(caller: ConnectClient) -> object:
    """Wait until something has happened to a job."""
    asked = pb.ChangesRequest(job_id="job")
    marked = await caller.registry.changes(asked)
    asked = pb.ChangesRequest(job_id="job", seconds=SECONDS, mark=marked.mark)
    return await caller.registry.changes(asked)


Wait = Callable[[ConnectClient], Coroutine[Any, Any, object]]


@pytest.mark.parametrize("wait", [claim, change, end])
async def test_one_key_has_a_part_of_the_places_of_those_who_wait(wait: Wait, keyed: KeyedServer) -> None:
    away = JobRequest(spec=Spec(queue="elsewhere"), job_id="job")
    await keyed.registry.enqueue(away, actor="user:root")
    ana, bob = [await key(keyed, name, *Scope) for name in ("ana", "bob")]
    waits = keyed.server.app.context.wait_limit
    first = [asyncio.create_task(wait(ana)) for _ in range(PLACES)]
    await until(lambda: waits.waiting() == PLACES)

    assert await refusal_code(wait(ana)) is Code.RESOURCE_EXHAUSTED
    await count(ana)
    others = [asyncio.create_task(wait(bob)) for _ in range(PLACES)]
    await until(lambda: waits.waiting() == 2 * PLACES)
    for one in first:
        one.cancel()
    await until(lambda: waits.waiting() == PLACES)
    again = asyncio.create_task(wait(ana))
    await until(lambda: waits.waiting() == PLACES + 1)
    assert not again.done()
    for one in (again, *others):
        one.cancel()


async def test_a_client_for_whom_there_is_no_place_to_wait_asks_again(keyed: KeyedServer) -> None:
    await keyed.registry.enqueue(JobRequest(spec=Spec(), job_id="job"), actor="user:root")
    _, text = await keyed.registry.create_key(name="ana", scopes=tuple(Scope), actor="user:root")
    ana = ConnectClient(keyed.server.url, text)
    waits = keyed.server.app.context.wait_limit
    first = [asyncio.create_task(change(ana)) for _ in range(PLACES)]
    await until(lambda: waits.waiting() == PLACES)
    remote = RemoteRegistry(ServerConnection((keyed.server.url,), text), SystemClock(), SystemIds())

    with pytest.raises(Unavailable, match="still queued"):
        await remote.wait("job", timeout=0.2)

    await remote.close()
    for one in first:
        one.cancel()


async def test_a_job_that_lands_before_its_client_waits_comes_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.server.claim_waiters.POLL_SECONDS", 30.0)

    async with open_served() as served:
        real, took = served.registry.claim, list[float]()

        async def claim(*queues: Any, **more: Any) -> list[Grant]:  # noqa: ANN401
            got = await real(*queues, **more)
            if not made:
                made.append(await served.enqueue())
            return got

        monkeypatch.setattr(served.registry, "claim", claim)
        for _ in range(3):
            made, began = list[Job](), time.monotonic()
            asked = pb.ClaimRequest(queues=["q"], owner="w", wait_seconds=20)
            answer = await served.connect.registry.claim(asked)
            took.append(time.monotonic() - began)
            assert len(answer.grants) == 1
        assert max(took) < 5
        assert min(took) < 0.5


async def test_a_job_that_lands_before_its_worker_listens_is_heard_of_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.server.claim_waiters.POLL_SECONDS", 30.0)

    async with open_served() as served:
        took: list[float] = []
        for _ in range(3):
            mark = served.remote.change_mark(ready=True)
            assert await served.remote.claim(["q"], owner="w") == []
            await served.enqueue()
            began = time.monotonic()
            await served.remote.changes(since=mark, timeout=15, ready=True)
            took.append(time.monotonic() - began)
            assert len(await served.remote.claim(["q"], owner="w")) == 1
        assert max(took) < 5
        assert min(took) < 0.5


POLLS = 500


POLL_BYTES = 60 * 1024
"""What a client that waits may cost a server, connection and all."""


def connections(server: ServerProcess) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))


async def test_five_hundred_wait_at_little_cost_and_each_gets_one_job(tmp_path: Path) -> None:
    with server_process(sqlite_url(tmp_path), tmp_path, "--poll", "60s") as server:
        clients = JobV1Client(server.url)
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


async def enqueue_together(url: str, count: int) -> list[str]:
    """Jobs that all come with one commit: whoever gets one must send the next."""
    registry = open_remote(url)
    asked = [JobRequest(spec=spec_of(ECHO, "default")) for _ in range(count)]
    jobs = await registry.enqueue_many(asked, actor="user:ana")
    await registry.close()
    return [job.job_id for job in jobs]
