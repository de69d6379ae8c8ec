"""What may read much has a thread and a connection of its own."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from threading import Event

import pytest

from conftest import sqlite_store
from holdfast.stores import filters
from holdfast.stores.sqlite import reading
from holdfast.testing.world import World, play


@pytest.mark.parametrize("scan", ["list_jobs", "histories"])
def test_what_is_quick_does_not_wait_behind_scans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scan: str
) -> None:
    begun, go = Event(), Event()
    read = getattr(reading, scan)

    def slow(*asked: object, **more: object) -> object:
        begun.set()
        assert go.wait(60)
        return read(*asked, **more)

    def scanned(world: World) -> Coroutine[None, None, object]:
        if scan == "list_jobs":
            return world.registry.list_jobs()
        return world.store.histories(["job"] * (filters.HISTORIES_QUICK_MAX + 1))

    async def body(world: World) -> None:
        await world.enqueue("job")
        grant = await world.claim("w")
        monkeypatch.setattr(reading, scan, slow)
        lists = [asyncio.create_task(scanned(world)) for _ in range(3)]
        await asyncio.to_thread(begun.wait, 60)

        try:
            await world.registry.heartbeat(grant)
            [job] = await world.registry.get_many(["job"])
            await world.registry.keys()
            await world.registry.counts("default")
        finally:
            assert not any(one.done() for one in lists)
            go.set()
        await asyncio.gather(*lists)
        assert job is not None

    play(sqlite_store, tmp_path, body)
