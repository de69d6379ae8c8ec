"""The contract of a store: the history of a job, page by page."""

import msgspec
import pytest

from holdfast.core.errors import Invalid
from holdfast.ports import HistoryPage
from holdfast.stores.filters import HISTORY_BYTES_MAX
from holdfast.testing.world import Opener, World, in_world, output


class HistoryContract:
    open: Opener

    @in_world
    async def test_a_history_is_read_page_by_page(self, world: World) -> None:
        await world.enqueue("job-1")
        await world.enqueue("job-2")
        for _ in range(3):
            grant = await world.registry.acquire("job-1", owner="worker-1")
            await world.registry.publish(grant, [output(1, world=world)])
            await world.registry.release(grant)
        [whole] = await world.store.histories(["job-1"])

        pages = await _pages(world, "job-1", limit=2)

        assert [event for page in pages for event in page.events] == whole
        assert {len(page.events) for page in pages[:-1]} == {2}
        assert await world.registry.history("job-1") == whole
        exact = await world.store.history("job-1", after=None, limit=len(whole))
        assert (len(exact.events), exact.next) == (len(whole), None)
        assert await world.store.history("nobody", after=None, limit=2) == HistoryPage(())

    @in_world
    async def test_a_page_of_a_history_is_bounded_by_its_bytes(self, world: World) -> None:
        await world.enqueue("large")
        for _ in range(90):
            grant = await world.registry.acquire("large", owner="worker-1")
            await world.registry.release(grant, reason="\u20ac" * 4096)
        [whole] = await world.store.histories(["large"])

        pages = await _pages(world, "large", limit=1000)

        assert [event for page in pages for event in page.events] == whole
        assert len(pages) == 2
        assert await world.registry.history("large") == whole
        for page in pages:
            assert len(msgspec.json.encode(page.events)) <= HISTORY_BYTES_MAX

    @in_world
    async def test_a_cursor_of_a_history_is_read_or_refused(self, world: World) -> None:
        await world.enqueue("job-1")
        for cursor in ("x", "-1", "1.x", "", "1 ", "9" * 40, "\0"):
            with pytest.raises(Invalid):
                await world.store.history("job-1", after=cursor, limit=10)
        beyond = await world.store.history("job-1", after="99", limit=10)
        assert beyond == HistoryPage(())


async def _pages(world: World, job_id: str, *, limit: int) -> list[HistoryPage]:
    pages, cursor = list[HistoryPage](), None
    while True:
        page = await world.store.history(job_id, after=cursor, limit=limit)
        pages.append(page)
        cursor = page.next
        if cursor is None:
            return pages
