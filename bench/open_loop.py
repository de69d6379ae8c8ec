"""Open loop: jobs arrive at moments fixed in advance, however long earlier ones take.

Whatever was meant to happen at a moment is counted from that moment, so that a stall shows in all that it
kept waiting, and not only in the one call that it met.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import msgspec

import verbs
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.sdk.open import open_registry
from process_group import run_together

WORKERS = 64
PROCESSES = 4
HEARTBEAT_AFTER = 0.1
COMPLETE_AFTER = 0.2
GRACE_SECONDS = 2.0
OPERATIONS = ("enqueue", "claim", "heartbeat", "complete")


@dataclass(frozen=True)
class Stream:
    """What the run found."""

    waits: dict[str, verbs.Spread]
    jobs: int
    commits: int
    retries: int


async def until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))


async def arrive(url: str, rate: float, seconds: float) -> AsyncGenerator[Any, float]:
    """Enqueue by the plan: one call per job, each in a task of its own."""
    registry = await open_registry(url)
    chance = random.Random(20261115)
    plan = [0.0]
    while plan[-1] < seconds:
        plan.append(plan[-1] + chance.expovariate(rate))
    start = (yield None) + 1.0
    waits: list[float] = []

    async def enqueue(moment: float) -> None:
        payload = msgspec.Raw(b"%d" % int(moment * 1e9))
        await registry.enqueue(JobRequest(spec=Spec(payload=payload)), actor=verbs.ACTOR)
        waits.append(time.monotonic() - moment)

    async with asyncio.TaskGroup() as tasks:
        for after in plan:
            await until(start + after)
            tasks.create_task(enqueue(start + after))
    yield {"enqueue": waits, **_commits(registry)}
    await registry.close()


async def work(url: str, workers: int, seconds: float) -> AsyncGenerator[Any, float]:
    """Workers that each claim one job, show a sign of life, complete it, and go on."""
    registry = await open_registry(url)
    end = (yield None) + 1.0 + seconds + GRACE_SECONDS
    waits: dict[str, list[float]] = {"start": [], "claim": [], "heartbeat": [], "complete": []}

    async def worker(owner: str) -> None:
        while True:
            mark, began = registry.change_mark(), time.monotonic()
            grants = await registry.claim(["default"], owner=owner)
            now = time.monotonic()
            waits["claim"].append(now - began)
            if not grants:
                if now > end:
                    return
                await registry.changes(since=mark, timeout=1.0)
                continue
            [grant] = grants
            waits["start"].append(now - int(bytes(grant.job.spec.payload)) / 1e9)
            await until(now + HEARTBEAT_AFTER)
            await registry.heartbeat(grant)
            waits["heartbeat"].append(time.monotonic() - now - HEARTBEAT_AFTER)
            await until(now + COMPLETE_AFTER)
            await registry.complete(grant, Success())
            waits["complete"].append(time.monotonic() - now - COMPLETE_AFTER)

    await asyncio.gather(*(worker(f"w{n}") for n in range(workers)))
    yield {**waits, **_commits(registry)}
    await registry.close()


def _commits(registry: Any) -> dict[str, int]:
    store = registry._store
    return {"commits": store.commits, "retries": store.retries}


def measure(url: str, *, rate: float, seconds: float) -> Stream:
    """Run it: one process that enqueues, four that work."""
    order = {"url": url, "workers": WORKERS // PROCESSES, "seconds": seconds}
    orders = [("arrive", {"url": url, "rate": rate, "seconds": seconds})]
    answers = [a.found for a in run_together([*orders, *[("work", order)] * PROCESSES])]
    waits = {
        name: [wait for found in answers for wait in found.get(name, [])] for name in (*OPERATIONS, "start")
    }
    assert len(waits["enqueue"]) == len(waits["complete"]), "not every job was completed"
    return Stream(
        {name: verbs.spread(found, seconds) for name, found in waits.items()},
        len(waits["enqueue"]),
        sum(found["commits"] for found in answers),
        sum(found["retries"] for found in answers),
    )
