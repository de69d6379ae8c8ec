"""Owners that take over from each other all the time, and write under guard while they hold a job."""

import asyncio
from dataclasses import dataclass, field
from random import Random

from holdfast.core.errors import Fenced
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.fencing import Fence, Guard
from holdfast.ports import Grant, JobRequest, Registry

OWNERS = 16
JOBS = 24
WRITES_PER_GRANT = 20


@dataclass
class Load:
    """What came of it. `stale` writes are those of the owner before, after its successor has written."""

    jobs: int = JOBS
    writes: int = 0
    refused: int = 0
    grants: int = 0
    stale: int = 0
    stale_refused: int = 0
    before: dict[str, Fence] = field(default_factory=dict)


def fence_of(grant: Grant) -> Fence:
    lock = grant.job.spec.lock
    assert lock is not None
    return Fence(resource=lock, token=grant.fencing_token, job_id=grant.job_id, lock=lock)


async def false_refusals(registry: Registry, guard: Guard, pattern: str, writes: int) -> Load:
    """So many writes by owners, each with its job in its hand; none may be refused."""
    load = Load()
    queue = pattern.replace(" ", "-")
    for n in range(JOBS):
        spec = Spec(queue=queue, lock=f"{queue}-{n % (JOBS // 2)}")
        await registry.enqueue(JobRequest(spec=spec), actor="user:bench")
    await asyncio.gather(
        *(_own(registry, guard, queue, load, writes, Random(seed)) for seed in range(OWNERS))
    )
    return load


async def _own(registry: Registry, guard: Guard, queue: str, load: Load, writes: int, chance: Random) -> None:
    while load.writes < writes:
        for grant in await registry.claim([queue], owner=f"owner-{id(chance)}"):
            load.grants += 1
            await _hold(registry, guard, grant, load, chance)


async def _hold(registry: Registry, guard: Guard, grant: Grant, load: Load, chance: Random) -> None:
    mine = fence_of(grant)
    for n in range(WRITES_PER_GRANT):
        load.writes += 1
        passed = await _passes(guard, mine)
        load.refused += not passed
        if n == 0 and (zombie := load.before.get(mine.resource)) is not None:
            passed = await _passes(guard, zombie)
            load.stale += 1
            load.stale_refused += not passed
        if chance.random() < 0.1:
            await registry.heartbeat(grant)
    load.before[mine.resource] = mine
    if chance.random() < 0.5:
        await registry.release(grant)
    else:
        await registry.complete(grant, Success())
        spec = Spec(queue=grant.job.spec.queue, lock=mine.resource)
        await registry.enqueue(JobRequest(spec=spec), actor="user:bench")


async def _passes(guard: Guard, fence: Fence) -> bool:
    try:
        await guard.check(fence)
    except Fenced:
        return False
    return True
