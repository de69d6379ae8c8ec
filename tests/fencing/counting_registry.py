"""A registry that counts what it is asked, and fences for one job on it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.core.errors import Fenced, Unavailable
from holdfast.core.job import Job
from holdfast.fencing import Authority, Fence
from holdfast.ports import EventPage, Grant
from holdfast.registry.local import LocalRegistry
from holdfast.testing.world import Opener, World, open_world
from tests.conftest import cas_store, memory_store, sqlite_store
from tests.stores.postgres.running_server import postgres_store

STORES = [memory_store, sqlite_store, cas_store, postgres_store]


class CountingRegistry(LocalRegistry):
    """A registry that counts what it is asked, can be cut off, and is looked at all the time unless
    `patient`."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store, world.ids)
        self.read_ids: list[str] = []
        self.calls = self.ends = 0
        self.cut = self.deaf = self.patient = False

    async def status_many(self, job_ids: Sequence[str]) -> list[Job | None]:
        if self.cut:
            raise Unavailable("The store is away.")
        self.read_ids += job_ids
        self.calls += 1
        return await super().status_many(job_ids)

    async def events(self, *, after: str | None = None, limit: int = 1000) -> EventPage:
        if self.cut or self.deaf:
            raise Unavailable("The store is away.")
        page = await super().events(after=after, limit=limit)
        self.ends += not page.events
        return page

    async def changes(
        self,
        *,
        since: int | None = None,
        timeout: float,  # noqa: ASYNC109
        ready: bool = False,
    ) -> None:
        if self.patient:
            await super().changes(since=since, timeout=timeout, ready=ready)
        else:
            await asyncio.sleep(0.005)


@asynccontextmanager
async def counting_world(
    folder: Path, opener: Opener = memory_store
) -> AsyncIterator[tuple[World, CountingRegistry]]:
    async with open_world(opener, folder) as world:
        yield world, CountingRegistry(world)


async def to_token(world: World, token: int) -> Grant:
    """The job's grant with that token."""
    job = await world.registry.status("job-1")
    while True:
        if job.lease is not None:
            grant = Grant(job=job, fencing_token=job.fencing_token, attempt=job.attempt, lease_seconds=60)
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


async def wait_until_read(registry: CountingRegistry) -> None:
    """Until whoever listens has read the feed to its end, as it is now."""
    reads = registry.ends
    deadline = asyncio.get_running_loop().time() + 30
    while registry.ends < reads + 2:  # the first may have begun before
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)
