"""Which jobs replay others, read in the logs of these: a server has no verb for it."""

import asyncio
from collections.abc import Sequence

from holdfast.core.catalogue import EventType
from holdfast.core.errors import NotFound
from holdfast.ports import Registry

LOGS_AT_ONCE = 16


async def replays_in_logs(registry: Registry, job_ids: Sequence[str]) -> list[list[str]]:
    """Return for each job the ids of the jobs that replay it, the first one first."""
    gate = asyncio.Semaphore(LOGS_AT_ONCE)

    async def gated(job_id: str) -> list[str]:
        async with gate:
            return await _replays(registry, job_id)

    return await asyncio.gather(*map(gated, job_ids))


async def _replays(registry: Registry, job_id: str) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        try:
            page = await registry.logs(job_id, after=cursor, output=False)
        except NotFound:
            return found
        replayed = (event for event in page.events if event.event_type == EventType.REPLAYED)
        found += [str(event.attributes.get("replayed_as")) for event in replayed]
        if not page.events:
            return found
        cursor = page.cursor
