"""A log is read as far as it fits into memory: the server sends no more than that, whatever the limit."""

import os
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from holdfast.core.event import Event
from holdfast.core.limits import OUTPUT_EVENT_BYTES_MAX
from holdfast.core.spec import Spec
from holdfast.ports import EventPage, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores import filters
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemIds
from tests.stores.postgres.open_stores import ACTOR, fact, fresh_store_url, opened, said

EVENTS = 24
ROW_BYTES = 2 * OUTPUT_EVENT_BYTES_MAX
"""More than a row of one large event takes, in base64."""

Received = list[int]


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Received:
    """How many bytes of text each statement has brought from the server."""
    heard: Received = []
    fetch = Session.fetch

    async def noted(self: Session, sql: str, *parameters: object) -> object:
        rows = await fetch(self, sql, *parameters)
        texts = (text for row in rows for text in row if isinstance(text, str))
        heard.append(sum(len(text.encode()) for text in texts))
        return rows

    monkeypatch.setattr(Session, "fetch", noted)
    return heard


async def filled(store: PostgresStore, data: Callable[[], bytes]) -> LocalRegistry:
    """A registry with a job that has said much, and of which much was told."""
    registry = LocalRegistry(store, SystemIds())
    await registry.enqueue(JobRequest(spec=Spec(), job_id="job"), actor=ACTOR)
    grant = await registry.acquire("job", owner="w")
    [first, *_] = await registry.history("job")
    for n in range(1, EVENTS + 1):
        await registry.publish(grant, [replace(said(n, first), data=data())])
        about = replace(fact(f"fact-{n}", "job"), attributes={"text": "é" * 30_000})
        await registry.record([about])
    return registry


async def read(page: Callable[[str | None], Awaitable[EventPage]]) -> list[Event]:
    """All of a log, slice by slice."""
    found: list[Event] = []
    cursor = None
    while (slice_ := await page(cursor)).events:
        found += slice_.events
        cursor = slice_.cursor
    return found


@pytest.mark.parametrize("reader", ["logs", "events"])
@pytest.mark.parametrize(
    "data",
    [lambda: os.urandom(OUTPUT_EVENT_BYTES_MAX), lambda: bytes(OUTPUT_EVENT_BYTES_MAX)],
    ids=["as it is", "compressed"],
)
async def test_a_slice_brings_what_fits_into_memory_and_the_rest_comes_after(
    reader: str, data: Callable[[], bytes], received: Received
) -> None:
    async with opened(fresh_store_url()) as store:
        registry = await filled(store, data)
        received.clear()

        def page(cursor: str | None) -> Awaitable[EventPage]:
            if reader == "events":
                return registry.events(after=cursor, limit=1000)
            return registry.logs("job", after=cursor, limit=1000)

        events = await read(page)

        assert max(received) < filters.EVENT_PAGE_BYTES + ROW_BYTES
        assert sum(received) > 3 * filters.EVENT_PAGE_BYTES
        assert [event.sequence for event in events if event.sequence] == list(range(1, EVENTS + 1))
        told = [event.given_id for event in events if event.given_id]
        assert told == [f"fact-{n}" for n in range(1, EVENTS + 1)]
