"""Everything at once, by seed: many processes that do anything, lose answers, die and come back."""

import asyncio
from random import Random

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.state import State
from holdfast.ports import Grant
from holdfast.registry.local import LocalRegistry
from tests.stores.cas.faulty_objects import ChaoticObjects, Crashed
from tests.stores.cas.shared_objects import (
    ACTOR,
    SharedObjects,
    check,
    enqueue,
    external_event,
    output,
)


class RandomProcesses:
    """Six processes that do anything, and die, and are started again."""

    def __init__(self, seed: int) -> None:
        self.shared = SharedObjects()
        self.random = Random(seed)
        self.steps = 300
        self.made: set[str] = set()
        self.ended: set[str] = set()
        self.tokens: dict[str, set[int]] = {}

    async def process(self, name: str) -> None:
        while self.steps > 0:
            objects = ChaoticObjects(self.shared.objects, self.random)
            registry = self.shared.registry(objects)
            while self.steps > 0 and objects.calls < objects.life:
                self.steps -= 1
                if self.random.random() < 0.1:
                    self.shared.clock.advance(self.random.choice([1, 20, 70]))
                try:
                    await self.step(registry, name)
                except (HoldfastError, Crashed):
                    continue

    async def step(self, registry: LocalRegistry, name: str) -> None:
        number = self.random.randrange(30)
        job_id = f"job-{number}"
        match self.random.choices(
            ["enqueue", "claim", "record", "cancel", "expire", "feed"], [30, 40, 10, 5, 5, 10]
        ):
            case ["enqueue"]:
                lock = f"lock-{number % 3}" if number % 2 else None
                await enqueue(registry, job_id, lock=lock)
                self.made.add(job_id)
            case ["claim"]:
                limit = self.random.randrange(1, 4)
                for grant in await registry.claim(["default"], owner=name, limit=limit):
                    await self.work(registry, grant)
            case ["record"]:
                about = self.random.choice([None, "job-1", "job-2"])
                await registry.record([external_event(self.shared, f"e-{number}-{about}", about)])
            case ["cancel"]:
                await registry.cancel(job_id, actor=ACTOR)
            case ["expire"]:
                await registry.expire()
            case _:
                await registry.events(limit=50)

    async def work(self, registry: LocalRegistry, grant: Grant) -> None:
        if grant.job.spec.lock:
            tokens = self.tokens.setdefault(grant.job.spec.lock, set())
            assert grant.fencing_token not in tokens
            tokens.add(grant.fencing_token)
        if self.random.random() < 0.6:
            await registry.heartbeat(grant)
            await registry.publish(grant, [output(self.shared, 1), output(self.shared, 2)])
        match self.random.randrange(4):
            case 0 | 1:
                await registry.complete(grant, Success())
                self.ended.add(grant.job_id)
            case 2:
                await registry.release(grant)
            case _:
                """It forgets the job."""


@pytest.mark.parametrize("seed", range(20))
async def test_processes_that_die_and_lose_answers_at_random_lose_no_job_and_no_event(
    seed: int,
) -> None:
    processes = RandomProcesses(seed)
    await asyncio.gather(*(processes.process(f"p-{n}") for n in range(6)))
    shared, registry = processes.shared, processes.shared.registry()

    jobs: tuple[Job, ...] = ()
    for _ in range(50):
        shared.clock.advance(100)
        for grant in await registry.claim(["default"], owner="last", limit=10):
            await registry.complete(grant, Success())
        jobs = (await registry.list_jobs(limit=1000)).jobs
        if all(job.ended for job in jobs):
            break

    states = {job.job_id: job.state for job in jobs}
    assert all(job.ended for job in jobs)
    assert processes.made <= states.keys()
    assert all(states[job_id] is State.SUCCEEDED for job_id in processes.ended)
    await check(registry)
    await registry.expire()
    assert await shared.hints() == []
