"""Scenario 12: a client that is gone before its job comes holds nothing."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest
from protobuf import Message

from holdfast.core.state import State
from holdfast.ports import Grant
from holdfast.sdk.open import open_local
from holdfast.server.grants import Grants
from holdfast.wire.generated.holdfast.v1.registry_pb import AcquireRequest, ClaimRequest
from holdfast.wire.generated.job.v1 import job_pb as pb
from holdfast.wire.mapping import to_duration
from tests import ROOT
from tests.server.job_v1_client import (
    CLAIM,
    DEQUEUE,
    JobV1Client,
    ask_and_leave,
    cut,
    ids,
    leave_and_listen,
    raw_call,
)
from tests.server.served_registry import ServedRegistry
from tests.server.server_process import server_process, sqlite_url, until

TIMES = 40
AT_ONCE_SECONDS = 20.0
"""Far below the 300 seconds of a lease that nobody holds."""

ASKED = pb.DequeueJobRequest(max_jobs=1)
CLAIMED = ClaimRequest(queues=["default"], owner="w", lease=to_duration(timedelta(minutes=5)))
WAITER = """
import asyncio, sys
from tests.server.job_v1_client import JobV1Client
print("waits", flush=True)
asyncio.run(JobV1Client(sys.argv[1]).dequeue())
"""

Departure = Callable[[JobV1Client, Random], Awaitable[str | None]]


async def asks_and_leaves(clients: JobV1Client, chance: Random) -> str | None:
    """The job is there; the client is gone before it is granted."""
    job_id = await clients.enqueue()
    await asyncio.to_thread(ask_and_leave, clients.url, DEQUEUE, ASKED)
    return job_id


async def claims_and_leaves(clients: JobV1Client, chance: Random) -> str | None:
    """The same in holdfast.v1."""
    job_id = await clients.enqueue()
    await asyncio.to_thread(ask_and_leave, clients.url, CLAIM, CLAIMED)
    return job_id


async def leaves_at_the_grant(clients: JobV1Client, chance: Random) -> str | None:
    """The job is there; the client leaves at any moment. What came by then it has."""
    job_id = await clients.enqueue()
    moment = chance.random() * 0.004

    def ask() -> bytes:
        return leave_and_listen(raw_call(clients.url, DEQUEUE, ASKED), moment)

    return None if job_id.encode() in await asyncio.to_thread(ask) else job_id


async def leaves_as_it_comes(clients: JobV1Client, chance: Random) -> str | None:
    """The client waits, and leaves as the job comes."""
    connection = await asyncio.to_thread(raw_call, clients.url, DEQUEUE, ASKED)
    await asyncio.sleep(0.01)
    making = asyncio.create_task(clients.enqueue())
    heard = await asyncio.to_thread(leave_and_listen, connection, chance.random() * 0.006)
    job_id = await making
    return None if job_id.encode() in heard else job_id


async def leaves_while_it_waits(clients: JobV1Client, chance: Random) -> str | None:
    connection = await asyncio.to_thread(raw_call, clients.url, DEQUEUE, ASKED)
    await asyncio.sleep(chance.random() * 0.02)
    cut(connection, reset=False)
    return await clients.enqueue()


async def vanishes_while_it_waits(clients: JobV1Client, chance: Random) -> str | None:
    connection = await asyncio.to_thread(raw_call, clients.url, DEQUEUE, ASKED)
    await asyncio.sleep(0.02)
    cut(connection, reset=True)
    await asyncio.sleep(0.02)
    return await clients.enqueue()


DEPARTURES: list[Departure] = [
    asks_and_leaves,
    claims_and_leaves,
    leaves_at_the_grant,
    leaves_as_it_comes,
    leaves_while_it_waits,
    vanishes_while_it_waits,
]


@pytest.mark.parametrize("depart", DEPARTURES)
def test_a_job_granted_to_nobody_is_free_at_once(tmp_path: Path, depart: Departure) -> None:
    chance = Random(12)

    async def body(url: str) -> None:
        clients = JobV1Client(url)
        slowest, left = 0.0, 0
        for _ in range(TIMES):
            job_id = await depart(clients, chance)
            if job_id is None:
                continue
            left += 1
            began = time.monotonic()
            async with asyncio.timeout(AT_ONCE_SECONDS):
                while not (taken := await clients.dequeue()):
                    pass
            slowest = max(slowest, time.monotonic() - began)
            assert ids(taken) == [job_id]
            await clients.complete(taken[0].task_token)
        print(f"{left} of {TIMES} departures; then had after {slowest:.3f} s at most")  # noqa: T201
        assert left

    with server_process(sqlite_url(tmp_path), tmp_path, "--poll", "1s") as server:
        asyncio.run(body(server.url))
    asyncio.run(check_budgets(tmp_path))


async def check_budgets(folder: Path) -> None:
    registry = await open_local(sqlite_url(folder))
    jobs = (await registry.list_jobs(limit=1000)).jobs
    assert jobs
    assert {(job.failures, job.crashes) for job in jobs} == {(0, 0)}
    assert (await registry.verify()).mismatches == ()
    await registry.close()


def test_a_client_that_is_killed_while_it_waits_holds_nothing(tmp_path: Path) -> None:
    async def body(url: str) -> None:
        clients = JobV1Client(url)
        for _ in range(3):
            waiter = await asyncio.to_thread(waiting, url)
            await asyncio.sleep(0.5)
            waiter.send_signal(signal.SIGKILL)
            await asyncio.to_thread(waiter.communicate)
            job_id = await clients.enqueue()
            async with asyncio.timeout(AT_ONCE_SECONDS):
                taken = await clients.taken()
            assert ids([taken]) == [job_id]
            await clients.complete(taken.task_token)

    with server_process(sqlite_url(tmp_path), tmp_path, "--poll", "30s") as server:
        asyncio.run(body(server.url))
    asyncio.run(check_budgets(tmp_path))


def waiting(url: str) -> "subprocess.Popen[bytes]":
    """A process that waits for a job."""
    place = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-c", WAITER, url],
        env={**os.environ, "PYTHONPATH": place},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"waits\n"
    return process


async def leaves_with_the_grant(served: ServedRegistry, method: str, asked: Message) -> None:
    """A client that is gone between the commit and the answer."""
    place, body = urlsplit(served.server.url), asked.to_binary()
    _, writer = await asyncio.open_connection(place.hostname, place.port)
    left, real = asyncio.Event(), Grants.seal

    async def seal(self: Grants, grants: list[Grant]) -> list[Grant]:
        writer.transport.abort()
        left.set()
        connections = served.server.server.server_state.connections
        await until(lambda: all(one.transport.is_closing() for one in connections))
        return await real(self, grants)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Grants, "seal", seal)
        head = (
            f"POST /holdfast.v1.RegistryService/{method} HTTP/1.1\r\nhost: {place.netloc}\r\n"
            f"content-type: application/proto\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await left.wait()
        await until(lambda: not served.server.server.server_state.tasks)
    await served.server.app.context.grants.close()


@pytest.mark.parametrize("op_id", [None, "op-1"])
async def test_only_a_claim_without_a_name_is_given_back(op_id: str | None, served: ServedRegistry) -> None:
    """Who names a claim asks again, elsewhere too, and may have been answered there."""
    expected = State.QUEUED if op_id is None else State.ASSIGNED
    job = await served.enqueue()
    claim = ClaimRequest(queues=["q"], owner="w", op_id=op_id)
    await leaves_with_the_grant(served, "Claim", claim)
    assert (await served.registry.status(job.job_id)).state is expected

    other = await served.enqueue("other")
    acquire = AcquireRequest(job_id=other.job_id, owner="w", op_id=op_id and "op-2")
    await leaves_with_the_grant(served, "Acquire", acquire)
    assert (await served.registry.status(other.job_id)).state is expected

    again = await served.connect.registry.claim(claim)
    assert [grant.job.job_id for grant in again.grants if grant.job] == [job.job_id]
