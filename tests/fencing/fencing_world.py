"""A registry that counts what it is asked, and fences for one job on it."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from conftest import cas_store, memory_store, sqlite_store
from holdfast.core.errors import Fenced, Unavailable
from holdfast.core.job import Job
from holdfast.fencing import Authority, Fence
from holdfast.ports import Grant, Slice
from holdfast.registry.local import LocalRegistry
from holdfast.testing.world import Opener, World, play
from postgres_world import postgres_store

STORES = [memory_store, sqlite_store, cas_store, postgres_store]


class Asked(LocalRegistry):
    """A registry that counts what it is asked, can be cut off, and is looked at all the time unless
    `patient`."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store, world.ids)
        self.asked: list[str] = []
        self.calls = self.ends = 0
        self.cut = self.deaf = self.patient = False

    async def get_many(self, job_ids: Sequence[str]) -> list[Job | None]:
        if self.cut:
            raise Unavailable("The store is away.")
        self.asked += job_ids
        self.calls += 1
        return await super().get_many(job_ids)

    async def feed(self, *, after: str | None = None, limit: int = 1000) -> Slice:
        if self.cut or self.deaf:
            raise Unavailable("The store is away.")
        page = await super().feed(after=after, limit=limit)
        self.ends += not page.events
        return page

    async def changed(
        self,
        *,
        since: int | None = None,
        timeout: float,  # noqa: ASYNC109
        ready: bool = False,
    ) -> None:
        if self.patient:
            await super().changed(since=since, timeout=timeout, ready=ready)
        else:
            await asyncio.sleep(0.005)


Body = Callable[[World, Asked], Coroutine[Any, Any, None]]


def run(tmp_path: Path, body: Body, opener: Opener = memory_store) -> None:
    async def main(world: World) -> None:
        await body(world, Asked(world))

    play(opener, tmp_path, main)


async def to_token(world: World, token: int) -> Grant:
    """The job's grant with that token."""
    job = await world.registry.get("job-1")
    while True:
        if job.lease is not None:
            grant = Grant(
                job=job, fencing_token=job.fencing_token, attempt=job.attempt, lease_seconds=60
            )
            if grant.fencing_token >= token:
                return grant
            await world.registry.release(grant)
        job = (await world.claim()).job


def fence(token: int, lock: str | None = None) -> Fence:
    return Fence(resource="account-17", token=token, job_id="job-1", lock=lock)


async def verdicts(authority: Authority, *tokens: int) -> list[bool]:
    found = []
    for token in tokens:
        try:
            await authority.check(fence(token))
        except Fenced:
            found.append(False)
        else:
            found.append(True)
    return found


async def heard(registry: Asked) -> None:
    """Until whoever listens has read the feed to its end, as it is now."""
    reads = registry.ends
    deadline = asyncio.get_running_loop().time() + 30
    while registry.ends < reads + 2:  # the first may have begun before
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)
