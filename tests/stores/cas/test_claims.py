"""Many processes that make and claim jobs at once: every job is made once and had once."""

import asyncio
from random import Random

import pytest

from holdfast.core.errors import Conflict
from holdfast.core.lifecycle import Success
from holdfast.core.state import State
from holdfast.ports import Grant, VersionToken
from tests.stores.cas.shared_objects import (
    SharedObjects,
    check,
    enqueue,
    enqueue_many,
    listed,
    types,
)


@pytest.mark.parametrize("seed", range(3))
async def test_of_64_processes_that_acquire_one_job_one_gets_it(seed: int) -> None:
    shared, random = SharedObjects(), Random(seed)
    await enqueue(shared.registry(), "job-1")

    answers = await asyncio.gather(
        *(shared.slow_registry(random).acquire("job-1", owner=f"w-{n}") for n in range(64)),
        return_exceptions=True,
    )

    [grant] = [answer for answer in answers if isinstance(answer, Grant)]
    refused = [answer for answer in answers if isinstance(answer, Conflict)]
    assert len(refused) == 63
    assert all(f"owned by {grant.job.owner}" in str(answer) for answer in refused)
    assert grant.fencing_token == 1
    assert await types(shared.registry(), "job-1") == ["job_queued", "job_claimed"]
    shared.clock.advance(60)
    await check(shared.registry())


@pytest.mark.parametrize("seed", range(3))
async def test_processes_that_claim_together_get_every_job_once(seed: int) -> None:
    shared, random = SharedObjects(), Random(seed)
    await enqueue_many(shared.registry(), [f"j-{n}" for n in range(40)])
    got: list[str] = []

    async def worker(name: str) -> None:
        registry = shared.slow_registry(random)
        while grants := await registry.claim(["default"], owner=name, limit=3):
            for grant in grants:
                got.append(grant.job_id)
                await registry.complete(grant, Success())

    await asyncio.gather(*(worker(f"w-{n}") for n in range(8)))

    assert sorted(got) == sorted(f"j-{n}" for n in range(40))
    shared.clock.advance(60)
    await check(shared.registry())
    assert await shared.hints() == []


@pytest.mark.parametrize("seed", range(3))
async def test_jobs_made_by_one_call_keep_its_order(seed: int, shared: SharedObjects) -> None:
    registry = shared.slow_registry(Random(seed))
    names = [f"job-{n}" for n in range(30)]
    await enqueue_many(registry, names)

    in_list = await listed(registry)
    grants = await registry.claim(["default"], owner="w", limit=30)

    assert in_list == names
    assert [grant.job_id for grant in grants] == names


async def test_a_job_that_processes_make_at_once_is_listed_once() -> None:
    shared, random = SharedObjects(), Random(0)

    async def process(n: int) -> None:
        await enqueue_many(shared.slow_registry(random), [*(f"own-{n}-{k}" for k in range(n)), "shared"])

    await asyncio.gather(*(process(n) for n in range(4)))

    registry = shared.registry()
    markers = await shared.objects.list_keys("index/")
    assert sum(key.endswith("/shared") for key in markers) > 1
    assert (await listed(registry)).count("shared") == 1
    assert await registry.counts() == {State.QUEUED: 7}


async def test_a_late_twin_of_a_claim_is_not_granted_what_the_claim_has_had() -> None:
    shared, asked, answered = SharedObjects(), asyncio.Event(), asyncio.Event()
    read = shared.objects.get

    async def once_slow(key: str) -> tuple[bytes, VersionToken] | None:
        found = await read(key)
        if key.startswith("claims/"):
            shared.objects.get = read  # type: ignore[method-assign]
            asked.set()
            await answered.wait()
        return found

    registry = shared.registry()
    await enqueue(registry, "job-1")
    shared.objects.get = once_slow  # type: ignore[method-assign]
    late = asyncio.create_task(shared.registry().claim(["default"], owner="w-1", op_id="op-1"))
    await asked.wait()
    for owner, op_id in (("w-1", "op-1"), ("w-2", "op-2")):
        [grant] = await registry.claim(["default"], owner=owner, op_id=op_id)
        await registry.release(grant)
    answered.set()

    assert await late == []

    await check(registry)
