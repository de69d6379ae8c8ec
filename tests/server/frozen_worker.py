"""A worker in a process of its own, to be frozen: it claims a job, and goes on when it reads a line.

It says `held`, then waits for a line; then, for each verb of an owner, how the server answered.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from connectrpc.errors import ConnectError

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import HoldfastError
from holdfast.core.event import Event
from holdfast.core.lifecycle import Success
from holdfast.sdk.open import open_remote
from holdfast.wire.generated.job.v1 import job_pb as pb
from tests.server.job_v1_client import JobV1Client, outputs

LEASE_SECONDS = 1

Verbs = dict[str, Callable[[], Awaitable[object]]]


async def native(url: str) -> Verbs:
    """An owner by holdfast.v1."""
    registry = open_remote(url)
    lease = timedelta(seconds=LEASE_SECONDS)
    [grant] = await registry.claim(["default"], owner="worker-7", lease=lease)
    said = Event(
        WorkerEventType.OUTPUT,
        EventClass.WORKER,
        datetime.now(UTC),
        sequence=1,
        stream="stdout",
        data=b"first",
    )
    return {
        "heartbeat": lambda: registry.heartbeat(grant),
        "publish": lambda: registry.publish(grant, [said]),
        "complete": lambda: registry.complete(grant, Success(result="first")),
    }


async def foreign(url: str) -> Verbs:
    """An owner by job.v1."""
    clients = JobV1Client(url)
    taken = await clients.taken(visibility_timeout_seconds=LEASE_SECONDS)
    token = taken.task_token
    return {
        "heartbeat": lambda: clients.jobs.update_job(pb.UpdateJobRequest(task_token=token)),
        "publish": lambda: clients.publish(token, outputs(1, 1, b"first")),
        "complete": lambda: clients.complete(token),
    }


OWNERS = {"holdfast.v1": native, "job.v1": foreign}


async def main(protocol: str, url: str) -> None:
    verbs = await OWNERS[protocol](url)
    tell("held")
    await asyncio.to_thread(sys.stdin.readline)
    for name, act in verbs.items():
        tell(f"{name} {await answer(act)}")


async def answer(act: Callable[[], Awaitable[object]]) -> str:
    try:
        await act()
    except HoldfastError as error:
        return type(error).__name__
    except ConnectError as error:
        return error.code.name
    return "done"


def tell(words: str) -> None:
    print(words, flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
