"""The processes of the load tests: claimers that drain a store, and submitters and workers to be killed.

An acknowledgement is a line in a file, appended by one `write` after the registry has answered: what a
process knew to be done before it was killed.
"""

import asyncio
import os
import random
import sys
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import Conflict, Fenced, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Success
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import ENDED, State
from holdfast.ports import Grant, JobRequest, Registry
from holdfast.sdk.open import open_registry
from holdfast.system import SystemIds

ACTOR = "user:load"
LEASE = timedelta(seconds=2)
RETRY = Retry(
    max_failures=100,
    max_crashes=100,
    backoff=timedelta(milliseconds=20),
    backoff_max=timedelta(milliseconds=100),
)
ROUNDS_MAX = 100_000
RESENDS_MAX = 20
QUEUED_MAX = 100


class Task(Struct, frozen=True, kw_only=True):
    """What a process is to be, and where it dies: at the n-th passing of a failpoint, or of any."""

    role: str
    folder: str
    name: str = "p"
    failpoint: str | None = None
    passing: int = 0
    files: bool = False
    """Make the writes and syncs of its files failpoints, too."""
    early: bool = False
    """For the control: acknowledge before the registry has answered."""

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/jobs.db"

    def has(self, name: str) -> bool:
        return (Path(self.folder) / name).exists()


class Acknowledged:
    """A file that any number of processes append whole lines to."""

    def __init__(self, task: Task) -> None:
        self.early = task.early
        path = Path(task.folder) / "acknowledged"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())

    def done(self, job: Job) -> None:
        self.add("done", job.job_id, job.state, job.version)

    def made(self, jobs: list[Job]) -> None:
        if not self.early:
            for job in jobs:
                self.done(job)

    def make(self, requests: list[JobRequest]) -> None:
        if self.early:
            for request in requests:
                self.add("done", request.job_id, State.QUEUED, 1)


async def enqueue(registry: Registry, acknowledged: Acknowledged, *job_ids: str, **spec: object) -> None:
    """Make some jobs in one call, and acknowledge them."""
    asked = Spec(retry=RETRY, **spec)  # type: ignore[arg-type]
    requests = [JobRequest(spec=asked, job_id=job_id) for job_id in job_ids]
    acknowledged.make(requests)
    acknowledged.made(await registry.enqueue_many(requests, actor=ACTOR))


async def publish(registry: Registry, acknowledged: Acknowledged, grant: Grant) -> None:
    await registry.publish(grant, [output(1, await registry.now()), output(2, await registry.now())])
    for sequence in (1, 2):
        acknowledged.add("output", grant.job_id, grant.fencing_token, sequence)


def output(sequence: int, now: datetime) -> Event:
    return Event(
        event_type=WorkerEventType.OUTPUT,
        event_class=EventClass.WORKER,
        occurred_at=now,
        sequence=sequence,
        stream="stdout",
        data=b"working\n",
    )


async def record(registry: Registry, acknowledged: Acknowledged, event_id: str) -> None:
    event = Event(
        event_type="invoice_sent",
        event_class=EventClass.EXTERNAL,
        occurred_at=await registry.now(),
        given_id=event_id,
    )
    await registry.record([event])
    acknowledged.add("fact", event_id)


async def submit(task: Task) -> None:
    """Make jobs, cancel a few, and record facts, until told to stop."""
    acknowledged, chance = Acknowledged(task), random.Random(task.name)
    registry = await open_registry(task.url)
    for n in range(ROUNDS_MAX):
        if task.has("stop"):
            break
        if (await registry.counts()).get(State.QUEUED, 0) > QUEUED_MAX:
            await asyncio.sleep(0.01)
            continue
        names = [f"{task.name}-{n}-{m}" for m in range(chance.choice((1, 1, 2, 8)))]
        await enqueue(registry, acknowledged, *names)
        if n % 5 == 0:
            await record(registry, acknowledged, f"{task.name}-{n}")
        if n % 7 == 0:
            try:
                acknowledged.done(await registry.cancel(names[0], actor=ACTOR))
            except Conflict:
                continue  # it has ended
    await registry.close()


async def work(task: Task) -> None:
    """Do every job there is; when told to stop, until all have ended."""
    acknowledged, chance = Acknowledged(task), random.Random(task.name)
    registry = await open_registry(task.url)
    for _ in range(ROUNDS_MAX):
        mark = registry.change_mark()
        grants = await claim(registry, task.name)
        for grant in grants:
            acknowledged.add("claimed", grant.job_id, grant.fencing_token)
        for grant in grants:
            try:
                await attempt(registry, grant, chance, acknowledged)
            except Fenced:
                continue
        if not grants:
            if task.has("stop") and not set(await registry.counts()) - ENDED:
                break
            await registry.changes(since=mark, timeout=0.1)
    await registry.close()


async def claim(registry: Registry, owner: str) -> list[Grant]:
    """Who is not told what it got asks again with the same op_id, and gets no other jobs on top."""
    op_id = SystemIds().new()
    for _ in range(RESENDS_MAX):
        try:
            return await registry.claim(["default"], owner=owner, limit=5, lease=LEASE, op_id=op_id)
        except Unavailable:
            await asyncio.sleep(0.05)
    raise Unavailable(f"{owner} has asked {RESENDS_MAX} times.")


async def attempt(
    registry: Registry, grant: Grant, chance: random.Random, acknowledged: Acknowledged
) -> None:
    acknowledged.done(await registry.heartbeat(grant))
    await publish(registry, acknowledged, grant)
    await asyncio.sleep(chance.uniform(0, 0.01))
    draw = chance.random()
    if draw < 0.1:
        failure = Failure(message="the network hiccuped", code="TransientError")
        job = await registry.complete(grant, failure)
    elif draw < 0.2:
        job = await registry.release(grant, reason="somebody else may have it")
    else:
        job = await registry.complete(grant, Success(result={"by": grant.fencing_token}))
    acknowledged.done(job)


async def drain(registry: Registry, owner: str) -> list[str]:
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
    os.write(sys.stdout.fileno(), " ".join(i for mine in found for i in mine).encode() + b"\n")


def main(role: str, url: str, name: str, tasks: str) -> None:
    if role != "drain":
        raise SystemExit(f"no such role: {role}")
    asyncio.run(drain_by_tasks(url, name, int(tasks)))


if __name__ == "__main__":
    main(*sys.argv[1:])
