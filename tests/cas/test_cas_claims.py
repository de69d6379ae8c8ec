"""Many processes that make and claim jobs at once: every job is made once and had once."""

import asyncio
from random import Random

import pytest
from cas_worlds import (
    Site,
    check,
    enqueue,
    enqueue_many,
    in_event_loop,
    listed,
    types,
)

from holdfast.core.errors import Conflict
from holdfast.core.lifecycle import Success
from holdfast.core.state import State
from holdfast.ports import Grant, VersionToken


@pytest.mark.parametrize("seed", range(3))
@in_event_loop
async def test_of_64_processes_that_acquire_one_job_one_gets_it(seed: int) -> None:
    site, random = Site(), Random(seed)
    await enqueue(site.registry(), "job-1")

    answers = await asyncio.gather(
        *(site.jittery(random).acquire("job-1", owner=f"w-{n}") for n in range(64)),
        return_exceptions=True,
    )

    [grant] = [answer for answer in answers if isinstance(answer, Grant)]
    refused = [answer for answer in answers if isinstance(answer, Conflict)]
    assert len(refused) == 63
    assert all(f"owned by {grant.job.owner}" in str(answer) for answer in refused)
    assert grant.fencing_token == 1
    assert await types(site.registry(), "job-1") == ["job_queued", "job_claimed"]
    site.clock.advance(60)
    await check(site.registry())


@pytest.mark.parametrize("seed", range(3))
@in_event_loop
async def test_processes_that_claim_together_get_every_job_once(seed: int) -> None:
    site, random = Site(), Random(seed)
    await enqueue_many(site.registry(), [f"j-{n}" for n in range(40)])
    got: list[str] = []

    async def worker(name: str) -> None:
        registry = site.jittery(random)
        while grants := await registry.claim(["default"], owner=name, limit=3):
            for grant in grants:
                got.append(grant.job_id)
                await registry.complete(grant, Success())

    await asyncio.gather(*(worker(f"w-{n}") for n in range(8)))

    assert sorted(got) == sorted(f"j-{n}" for n in range(40))
    site.clock.advance(60)
    await check(site.registry())
    assert await site.hints() == []


@pytest.mark.parametrize("seed", range(3))
@in_event_loop
async def test_jobs_made_by_one_call_keep_its_order(seed: int) -> None:
    site = Site()
    registry = site.jittery(Random(seed))
    names = [f"job-{n}" for n in range(30)]
    await enqueue_many(registry, names)

    in_list = await listed(registry)
    grants = await registry.claim(["default"], owner="w", limit=30)

    assert in_list == names
    assert [grant.job_id for grant in grants] == names


@in_event_loop
async def test_a_job_that_processes_make_at_once_is_listed_once() -> None:
    site, random = Site(), Random(0)

    async def process(n: int) -> None:
        await enqueue_many(site.jittery(random), [*(f"own-{n}-{k}" for k in range(n)), "shared"])

    await asyncio.gather(*(process(n) for n in range(4)))

    registry = site.registry()
    markers = await site.objects.list_keys("index/")
    assert sum(key.endswith("/shared") for key in markers) > 1
    assert (await listed(registry)).count("shared") == 1
    assert await registry.counts() == {State.QUEUED: 7}


@in_event_loop
async def test_a_late_twin_of_a_claim_is_not_granted_what_the_claim_has_had() -> None:
    site, asked, answered = Site(), asyncio.Event(), asyncio.Event()
    read = site.objects.get

    async def once_slow(key: str) -> tuple[bytes, VersionToken] | None:
        found = await read(key)
        if key.startswith("claims/"):
            site.objects.get = read  # type: ignore[method-assign]
            asked.set()
            await answered.wait()
        return found

    registry = site.registry()
    await enqueue(registry, "job-1")
    site.objects.get = once_slow  # type: ignore[method-assign]
    late = asyncio.create_task(site.registry().claim(["default"], owner="w-1", op_id="op-1"))
    await asked.wait()
    for owner, op_id in (("w-1", "op-1"), ("w-2", "op-2")):
        [grant] = await registry.claim(["default"], owner=owner, op_id=op_id)
        await registry.release(grant)
    answered.set()

    assert await late == []

    await check(registry)
