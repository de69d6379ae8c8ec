"""What may read much leaves connections for what is quick."""

import asyncio

import pytest
from postgres_place import fresh_store_url, opened, run

from holdfast.core.spec import Spec
from holdfast.ports import Page, Request
from holdfast.registry.local import LocalRegistry
from holdfast.stores.postgres.reading import Reading
from holdfast.system import SystemIds


def test_what_is_quick_does_not_wait_behind_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        async def slow(*_: object, **__: object) -> Page:
            begun.set()
            await go.wait()
            return Page((), None)

        async with opened(fresh_store_url()) as store:
            registry = LocalRegistry(store, SystemIds())
            await registry.enqueue(Request(spec=Spec(), job_id="job"), actor="user:ana")
            [grant] = await registry.claim(["default"], owner="w")
            monkeypatch.setattr(Reading, "list_jobs", slow)
            lists = [asyncio.create_task(registry.list_jobs()) for _ in range(10)]
            await begun.wait()
            many = [registry.get_many(["job"]) for _ in range(20)]
            await asyncio.gather(registry.heartbeat(grant), registry.keys(), *many)
            assert not any(one.done() for one in lists)
            go.set()
            await asyncio.gather(*lists)

    run(body())
