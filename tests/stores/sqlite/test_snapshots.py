"""A read of several statements sees the file as it was at the first of them."""

import asyncio
from pathlib import Path

import pytest

from holdfast.ports import EventPage
from holdfast.stores.sqlite import log_queries
from holdfast.stores.sqlite.statements import statement
from holdfast.testing.world import World, open_world, output
from tests.conftest import sqlite_store


async def test_what_is_committed_during_a_read_of_a_log_is_in_the_next_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the output of that commit would be told, and the start of the job before it never."""
    async with open_world(sqlite_store, tmp_path) as world:
        await world.enqueue("job")
        grant = await world.claim("w")
        loop = asyncio.get_running_loop()
        late = [output(1, world=world)]

        def publish_first(name: str) -> str:
            if name == "select_log_rows" and late:
                published = world.registry.publish(grant, [late.pop()])
                asyncio.run_coroutine_threadsafe(published, loop).result(60)
            return statement(name)

        monkeypatch.setattr(log_queries, "statement", publish_first)

        first = await world.registry.logs("job")
        second = await world.registry.logs("job", after=first.cursor)

        assert not late
        assert ids(first) + ids(second) == await whole(world)


def ids(page: EventPage) -> list[str]:
    return [event.event_id for event in page.events]


async def whole(world: World) -> list[str]:
    found = ids(await world.registry.logs("job"))
    assert found[-2:] == ["job/3", "job/1.1.1"]
    return found
