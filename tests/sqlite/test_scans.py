"""What may read much has a thread and a connection of its own."""

import asyncio
from pathlib import Path
from threading import Event

import pytest

from conftest import sqlite_store
from holdfast.ports import Page
from holdfast.stores.sqlite import reading
from holdfast.testing.world import World, play


def test_what_is_quick_does_not_wait_behind_scans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = Event(), Event()

    def slow(*_: object, **__: object) -> Page:
        begun.set()
        assert go.wait(60)
        return Page((), None)

    async def body(world: World) -> None:
        await world.enqueue("job")
        grant = await world.claim("w")
        monkeypatch.setattr(reading, "list_jobs", slow)
        lists = [asyncio.create_task(world.registry.list_jobs()) for _ in range(3)]
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
