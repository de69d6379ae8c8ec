"""The roles of one process of a run: `process_roles.py ROLE ORDER`. `process_group.py` starts them."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import open_loop
import postgres_limit
import profiling
import verbs
from holdfast.sdk.open import open_registry
from postgres_limit import Bare
from process_group import Part, play


async def bare_enqueue(url: str, jobs: int, batch: int) -> AsyncGenerator[Any, float]:
    bare = await Bare.open(url)
    yield None
    yield await postgres_limit.enqueue(bare, jobs, batch)
    await bare.close()


async def bare_drain(url: str, batch: int) -> AsyncGenerator[Any, float]:
    bare = await Bare.open(url)
    yield None
    yield await postgres_limit.drain(bare, batch)
    await bare.close()


async def bare_retire(url: str, first: int, jobs: int, batch: int) -> AsyncGenerator[Any, float]:
    bare = await Bare.open(url)
    yield None
    yield await postgres_limit.retire(bare, first, jobs, batch)
    await bare.close()


async def bare_wake(url: str, jobs: int) -> AsyncGenerator[Any, float]:
    bare = await Bare.open(url)
    yield None
    yield await postgres_limit.awaken(bare, jobs)
    await bare.close()


async def enqueue(url: str, jobs: int) -> AsyncGenerator[Any, float]:
    registry = await open_registry(url)
    chunks = [verbs.requests(start, verbs.CHUNK) for start in range(0, jobs, verbs.CHUNK)]
    yield None
    for chunk in chunks:
        await registry.enqueue_many(chunk, actor=verbs.ACTOR)
    yield len(chunks) * verbs.CHUNK
    await registry.close()


async def drain(url: str) -> AsyncGenerator[Any, float]:
    registry = await open_registry(url)
    yield None
    yield await verbs.drain_all(registry)
    await registry.close()


async def rss(url: str, jobs: int) -> AsyncGenerator[Any, float]:
    """Megabytes by which enqueueing raises the RSS of a fresh process."""
    registry = await open_registry(url)
    yield None
    before = _rss_bytes()
    for start in range(0, jobs, verbs.CHUNK):
        await registry.enqueue_many(verbs.requests(start, verbs.CHUNK), actor=verbs.ACTOR)
    yield (_rss_bytes() - before) / 1e6
    await registry.close()


def _rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def wake(url: str, jobs: int) -> AsyncGenerator[Any, float]:
    registry = await open_registry(url)
    yield None
    yield await verbs.awaken(registry, jobs)
    await registry.close()


ROLES: dict[str, Part] = {
    "bare_enqueue": bare_enqueue,
    "bare_drain": bare_drain,
    "bare_retire": bare_retire,
    "bare_wake": bare_wake,
    "enqueue": enqueue,
    "drain": drain,
    "rss": rss,
    "wake": wake,
    "arrive": open_loop.arrive,
    "work": open_loop.work,
    "profile_enqueue": profiling.profile_enqueue,
    "profile_drain": profiling.profile_drain,
}

if __name__ == "__main__":
    role, order = sys.argv[1:]
    asyncio.run(play(ROLES[role], json.loads(order)))
