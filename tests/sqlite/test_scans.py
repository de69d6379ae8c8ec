"""What may read much has a thread and a connection of its own."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from threading import Event

import apsw
import pytest

from conftest import sqlite_store
from holdfast.stores import filters
from holdfast.stores.sqlite import reading
from holdfast.testing.world import World, output, play


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


@pytest.mark.parametrize("reader", ["log", "feed"])
def test_a_slice_of_a_log_ends_by_its_bytes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    rows: list[tuple[object, ...]] = []
    read = getattr(reading, reader)

    def counted(_: apsw.Cursor, row: tuple[object, ...]) -> tuple[object, ...]:
        rows.append(row)
        return row

    def traced(connection: apsw.Connection, *asked: object, **more: object) -> object:
        connection.row_trace = counted
        return read(connection, *asked, **more)

    async def body(world: World) -> None:
        await world.enqueue("job")
        grant = await world.claim("w")
        for n in range(1, 21):
            await world.registry.publish(grant, [output(n, "x" * 10_000, world=world)])
        monkeypatch.setattr(filters, "SLICE_BYTES", 50_000)
        monkeypatch.setattr(reading, reader, traced)

        page = await (
            world.registry.feed(limit=1000)
            if reader == "feed"
            else world.registry.log("job", limit=1000)
        )

        assert 4 <= len([event for event in page.events if event.sequence]) <= 6
        assert len(rows) == len(page.events)

    play(sqlite_store, tmp_path, body)
