"""What may read much has a thread and a connection of its own."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from threading import Event

import apsw
import pytest

from holdfast.stores import filters
from holdfast.stores.sqlite import queries
from holdfast.testing.world import World, open_world, output
from tests.conftest import sqlite_store


@pytest.mark.parametrize("scan", ["list_jobs", "histories"])
async def test_what_is_quick_does_not_wait_behind_scans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scan: str
) -> None:
    begun, go = Event(), Event()
    read = getattr(queries, scan)

    def slow(*asked: object, **more: object) -> object:
        begun.set()
        assert go.wait(60)
        return read(*asked, **more)

    def scanned(world: World) -> Coroutine[None, None, object]:
        if scan == "list_jobs":
            return world.registry.list_jobs()
        return world.store.histories(["job"] * (filters.HISTORIES_QUICK_MAX + 1))

    async with open_world(sqlite_store, tmp_path) as world:
        await world.enqueue("job")
        grant = await world.claim("w")
        monkeypatch.setattr(queries, scan, slow)
        lists = [asyncio.create_task(scanned(world)) for _ in range(3)]
        await asyncio.to_thread(begun.wait, 60)

        try:
            await world.registry.heartbeat(grant)
            [job] = await world.registry.status_many(["job"])
            await world.registry.list_keys()
            await world.registry.counts("default")
        finally:
            assert not any(one.done() for one in lists)
            go.set()
        await asyncio.gather(*lists)
        assert job is not None


@pytest.mark.parametrize("reader", ["logs", "events"])
async def test_a_slice_of_a_log_ends_by_its_bytes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    rows: list[tuple[object, ...]] = []
    read = getattr(queries, reader)

    def counted(_: apsw.Cursor, row: tuple[object, ...]) -> tuple[object, ...]:
        rows.append(row)
        return row

    def traced(connection: apsw.Connection, *asked: object, **more: object) -> object:
        connection.row_trace = counted
        return read(connection, *asked, **more)

    async with open_world(sqlite_store, tmp_path) as world:
        await world.enqueue("job")
        grant = await world.claim("w")
        for n in range(1, 21):
            await world.registry.publish(grant, [output(n, "x" * 10_000, world=world)])
        monkeypatch.setattr(filters, "EVENT_PAGE_BYTES", 50_000)
        monkeypatch.setattr(queries, reader, traced)

        page = await (
            world.registry.events(limit=1000)
            if reader == "events"
            else world.registry.logs("job", limit=1000)
        )

        said = [event for event in page.events if event.sequence]
        assert 4 <= len(said) <= 6
        assert len([row for row in rows if "output" in row]) == len(said)
