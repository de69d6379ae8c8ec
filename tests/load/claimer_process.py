"""The processes of the load tests. Each is told what to be: `drain`, `work` or `nursery`.

An acknowledgement is a line in a file, appended by one `write` after the registry has answered: what a
process knew to be done before it was killed.
"""

import asyncio
import os
import random
import sys
from datetime import datetime, timedelta

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import Fenced
from holdfast.core.event import Event
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import ENDED
from holdfast.ports import Grant, Request
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_registry

LEASE = timedelta(seconds=2)
ROUNDS_MAX = 100_000


class Acknowledged:
    """A file that any number of processes append whole lines to."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def say(*words: object) -> None:
    """One whole line on stdout, in one write."""
    os.write(sys.stdout.fileno(), (" ".join(map(str, words)) + "\n").encode())


async def drain(registry: LocalRegistry, owner: str) -> list[str]:
    """Claim and complete one job after the other until none is left; the ids of all of them."""
    mine: list[str] = []
    while grants := await registry.claim(["default"], owner=owner):
        for grant in grants:
            await registry.complete(grant, Success())
            mine.append(grant.job_id)
    return mine


async def drain_by_tasks(url: str, owner: str, tasks: int) -> None:
    registry = await open_registry(url)
    found = await asyncio.gather(*(drain(registry, f"{owner}-{n}") for n in range(tasks)))
    await registry.close()
    say(*(job_id for mine in found for job_id in mine))


async def work(url: str, owner: str, acknowledged: Acknowledged) -> None:
    """Do every job there is, until all have ended; be killed at any moment."""
    chance = random.Random(owner)
    registry = await open_registry(url)
    for _ in range(ROUNDS_MAX):
        mark = registry.mark()
        grants = await registry.claim(["default"], owner=owner, limit=5, lease=LEASE)
        for grant in grants:
            try:
                await attempt(registry, grant, chance, acknowledged)
            except Fenced:
                continue
        if not grants:
            if not set(await registry.counts()) - ENDED:
                break
            await registry.changed(since=mark, timeout=0.2)
    await registry.close()


async def attempt(
    registry: LocalRegistry, grant: Grant, chance: random.Random, acknowledged: Acknowledged
) -> None:
    await registry.heartbeat(grant)
    await registry.publish(grant, [output(1, await registry.now())])
    await asyncio.sleep(chance.uniform(0, 0.08))
    draw = chance.random()
    if draw < 0.1:
        failure = Failure(message="the network hiccuped", code="TransientError")
        job = await registry.complete(grant, failure)
    elif draw < 0.2:
        job = await registry.release(grant, reason="somebody else may have it")
    else:
        job = await registry.complete(grant, Success(result={"by": grant.fencing_token}))
    acknowledged.add(job.job_id, job.state, job.version)


def output(sequence: int, now: datetime) -> Event:
    return Event(
        event_type=WorkerEventType.OUTPUT,
        event_class=EventClass.WORKER,
        occurred_at=now,
        sequence=sequence,
        stream="stdout",
        data=b"working\n",
    )


async def write(url: str, owner: str, acknowledged: Acknowledged) -> None:
    """Write every kind of transition as fast as possible, from four tasks that share commits."""
    registry = await open_registry(url)
    say("writing")

    async def one(n: int) -> None:
        for _ in range(ROUNDS_MAX):
            job = await registry.enqueue(Request(spec=Spec()), actor="user:load")
            acknowledged.add(job.job_id, job.state, job.version)
            for grant in await registry.claim(["default"], owner=f"{owner}-{n}", limit=2):
                await registry.heartbeat(grant)
                if n == 0:
                    await registry.release(grant)
                else:
                    await registry.complete(grant, Success())

    await asyncio.gather(*(one(n) for n in range(4)))


def nursery(url: str, acknowledged: Acknowledged) -> None:
    """For each line on stdin fork a writer, say its pid, and say when it is gone.

    A fork costs milliseconds where a new interpreter costs hundreds: a thousand kills need that.
    """
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            asyncio.run(write(url, line.strip(), acknowledged))
            os._exit(0)
        say(pid)
        os.waitpid(pid, 0)
        say("gone")


def main(role: str, url: str, name: str, more: str) -> None:
    if role == "drain":
        asyncio.run(drain_by_tasks(url, name, int(more)))
    elif role == "work":
        asyncio.run(work(url, name, Acknowledged(more)))
    elif role == "nursery":
        nursery(url, Acknowledged(more))
    else:
        raise SystemExit(f"no such role: {role}")


if __name__ == "__main__":
    main(*sys.argv[1:])
