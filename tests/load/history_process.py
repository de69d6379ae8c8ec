"""A process of the history run: claimers who do everything to the same jobs, and record it all.

It says `ready`, and begins at `go`; it says `enough` after its share of operations, and goes on until
`finish`: then every job is brought to its end.
"""

import asyncio
import random
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import HoldfastError
from holdfast.core.event import Event
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Success
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import ENDED
from holdfast.ports import Grant, JobRequest, Registry
from holdfast.sdk.open import open_registry
from holdfast.system import SystemIds
from holdfast.testing.recorder import LineFile, Recorder, recorded

LEASE = timedelta(seconds=1)
HOT = 16
SPEC = Spec(
    retry=Retry(
        max_failures=100,
        max_crashes=100,
        backoff=timedelta(milliseconds=1),
        backoff_max=timedelta(milliseconds=5),
    )
)
HICCUP = Failure(message="the network hiccuped", code="TransientError")
SECONDS_MAX = 500

T = TypeVar("T")


class Load:
    """What the claimers of one process share."""

    def __init__(self, registry: Registry, recorder: Recorder, name: str, jobs: int) -> None:
        self.registry = registry
        self.recorder = recorder
        self.name = name
        self.jobs = [f"job-{n}" for n in range(jobs)]
        self.chance = random.Random(name)
        self.ids = SystemIds()
        self.old: deque[Grant] = deque(maxlen=64)
        self.finishing = False

    async def claimer(self, owner: str, mine: list[str]) -> None:
        for job_id in mine:
            while await self.enqueue(job_id) is None:
                continue
        while not self.finishing:
            try:
                await self.turn(owner)
            except HoldfastError:
                continue
        while not await self.ended():
            for grant in await self.recorder.claim(["default"], owner=owner, limit=5, lease=LEASE):
                try:
                    await self.recorder.complete(grant, Success())
                except HoldfastError:
                    continue

    async def ended(self) -> bool:
        await asyncio.sleep(0.02)
        return not set(await self.registry.counts()) - ENDED

    async def turn(self, owner: str) -> None:
        """One thing, by chance: mostly an attempt at a job, now and then something in its way."""
        draw = self.chance.random()
        if draw < 0.15:
            await self.recorder.status(self.chance.choice(self.jobs))
        elif draw < 0.27:
            await self.haunt()
        elif draw < 0.35:
            job_id = self.chance.choice(self.jobs[:HOT])
            acquire = self.recorder.acquire
            grant = await self.sent(lambda op_id: acquire(job_id, owner=owner, op_id=op_id, lease=LEASE))
            await self.attempt(grant)
        elif draw < 0.355:
            await self.enqueue(self.chance.choice(self.jobs))
        elif draw < 0.356:
            await self.cancel(self.chance.choice(self.jobs))
        else:
            claim = self.recorder.claim
            limit = self.chance.choice((1, 1, 1, 2))
            grants = await self.sent(
                lambda op_id: claim(["default"], owner=owner, limit=limit, op_id=op_id, lease=LEASE)
            )
            if not grants:
                await asyncio.sleep(0.002)
            for grant in grants or ():
                await self.attempt(grant)

    async def attempt(self, grant: Grant | None) -> None:
        """Work on a job and give it back in some way; or leave it, and let the lease lapse."""
        if grant is None:
            return
        self.old.append(grant)
        recorder, chance = self.recorder, self.chance
        if chance.random() < 0.03:
            return
        if chance.random() < 0.6:
            await self.sent(lambda _: recorder.heartbeat(grant))
        if chance.random() < 0.1:
            await recorder.publish(grant, [await self.output()])
        if chance.random() < 0.05:
            await self.sent(lambda op_id: recorder.aggregate(grant, op_id=op_id))
        draw = chance.random()
        if draw < 0.55:
            await self.sent(lambda op_id: recorder.release(grant, op_id=op_id))
        else:
            outcome = Success() if draw > 0.997 else HICCUP
            await self.sent(lambda op_id: recorder.complete(grant, outcome, op_id=op_id))

    async def haunt(self) -> None:
        """Act under a token of long ago, as a worker does that was frozen and thawed."""
        if not self.old:
            return
        grant, recorder = self.chance.choice(self.old), self.recorder
        match self.chance.randrange(5):
            case 0:
                await recorder.heartbeat(grant)
            case 1:
                await recorder.complete(grant, Success())
            case 2:
                await recorder.release(grant)
            case 3:
                await recorder.aggregate(grant)
            case _:
                await recorder.publish(grant, [await self.output()])

    async def enqueue(self, job_id: str) -> Job | None:
        request = JobRequest(spec=SPEC, job_id=job_id)
        return await self.sent(lambda _: self.recorder.enqueue(request, actor="user:load"))

    async def cancel(self, job_id: str) -> None:
        hard, cancel = self.chance.random() < 0.2, self.recorder.cancel
        for _ in range(2):
            await self.sent(lambda op_id: cancel(job_id, actor="user:load", op_id=op_id, hard=hard))

    async def sent(self, call: Callable[[str], Awaitable[T]]) -> T | None:
        """The answer; now and then leave before it comes, and perhaps send the same again."""
        op_id = self.ids.new()
        if self.chance.random() < 0.96:
            return await call(op_id)
        try:
            async with asyncio.timeout(self.chance.uniform(0, 0.01)):
                return await call(op_id)
        except TimeoutError:
            return await call(op_id) if self.chance.random() < 0.6 else None

    async def output(self) -> Event:
        return Event(
            event_type=WorkerEventType.OUTPUT,
            event_class=EventClass.WORKER,
            occurred_at=await self.registry.now(),
            sequence=1,
            stream="stdout",
            data=b"working\n",
        )

    async def conduct(self, share: int) -> None:
        """Say when the share is done; go on until told to finish, or until nobody is there to tell."""
        while self.recorder.operations < share:  # noqa: ASYNC110  # nobody tells a counter's reader
            await asyncio.sleep(0.05)
        say("enough")
        await asyncio.to_thread(sys.stdin.readline)
        self.finishing = True


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def run(url: str, history: Path, place: int, of: int, jobs: int, share: int) -> None:
    registry = await open_registry(url)
    lines = LineFile(history)
    name = f"p{place}"
    load = Load(registry, recorded(registry, SystemIds(), lines.keep, process=name), name=name, jobs=jobs)
    claimers = 64 // of
    say("ready")
    sys.stdin.readline()
    try:
        async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
            group.create_task(load.conduct(share))
            for n in range(claimers):
                mine = load.jobs[place * claimers + n :: 64]
                group.create_task(load.claimer(f"{name}-{n}", mine))
    finally:
        lines.close()
        await registry.close()


if __name__ == "__main__":
    url, history, *numbers = sys.argv[1:]
    asyncio.run(run(url, Path(history), *map(int, numbers)))
