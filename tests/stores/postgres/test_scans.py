"""What may read much leaves connections for what is quick."""

import asyncio
from collections.abc import Coroutine

import pytest

from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores import filters
from holdfast.stores.postgres.event_log import PostgresEventLog
from holdfast.stores.postgres.queries import PostgresQueries
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemIds
from tests.stores.postgres.open_stores import fresh_store_url, opened


@pytest.mark.parametrize("scan", ["list_jobs", "histories"])
async def test_what_is_quick_does_not_wait_behind_scans(monkeypatch: pytest.MonkeyPatch, scan: str) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    queries = PostgresQueries if scan == "list_jobs" else PostgresEventLog
    read = getattr(queries, scan)

    async def slow(*asked: object, **more: object) -> object:
        begun.set()
        await go.wait()
        return await read(*asked, **more)

    async with opened(fresh_store_url()) as store:
        registry = LocalRegistry(store, SystemIds())
        await registry.enqueue(JobRequest(spec=Spec(), job_id="job"), actor="user:ana")
        [grant] = await registry.claim(["default"], owner="w")
        monkeypatch.setattr(queries, scan, slow)
        lists = [asyncio.create_task(scanned(store, registry, scan)) for _ in range(10)]
        await begun.wait()
        many = [registry.status_many(["job"]) for _ in range(20)]
        await asyncio.gather(registry.heartbeat(grant), registry.list_keys(), *many)
        assert not any(one.done() for one in lists)
        go.set()
        await asyncio.gather(*lists)


def scanned(store: PostgresStore, registry: LocalRegistry, scan: str) -> Coroutine[None, None, object]:
    if scan == "list_jobs":
        return registry.list_jobs()
    return store.histories(["job"] * (filters.HISTORIES_QUICK_MAX + 1))
