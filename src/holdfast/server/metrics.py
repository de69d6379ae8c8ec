"""Metrics: the page of a server, made of what its registry has counted and of what it has answered."""

import asyncio
from collections.abc import Iterator
from datetime import datetime

from holdfast.ports import Census
from holdfast.registry import exposition
from holdfast.registry.exposition import counter, gauge, histogram, number
from holdfast.registry.metrics import census_of, families
from holdfast.server.capacity import Capacity
from holdfast.server.context import Context
from holdfast.server.health import Readiness
from holdfast.server.requests import Requests


class Metrics:
    """Makes the page. Whoever asks while it is being made gets the one that is made."""

    def __init__(self, context: Context, readiness: Readiness) -> None:
        self._context = context
        self._readiness = readiness
        self._making: asyncio.Task[bytes] | None = None

    async def page(self) -> bytes:
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make())
        return await asyncio.shield(self._making)

    async def _make(self) -> bytes:
        found = await census_of(self._context.registry)
        ready = not await self._readiness.obstacles()
        parts: list[str] = []
        for part in self._parts(found, ready=ready):
            parts.append(part)
            await self._context.clock.sleep(0)  # others go between: the page of 200 kinds is long
        parts.append(await asyncio.to_thread(exposition.process))
        return "".join(parts).encode()

    def _parts(self, found: tuple[Census, datetime] | None, *, ready: bool) -> Iterator[str]:
        context = self._context
        yield number("ready", "1 when this server can do its work: see /readyz.", int(ready))
        yield from families(context.registry, found)
        yield from _of_requests(context.requests)
        streams = [((of,), n) for of, n in context.readers.open().items()]
        yield gauge("streams", "Streams open now: of the feed, of single jobs.", ["of"], streams)
        yield number("claims_waiting", "Clients that wait for a job.", context.lanes.waiting())
        yield from _of_capacity(context.capacity)
        words = "Age of the oldest event that a reader of the feed is being sent."
        now = context.clock.now() if found is None else found[1]
        yield number("feed_lag_seconds", words, context.readers.lag(now))


def _of_capacity(capacity: Capacity) -> Iterator[str]:
    rooms = list(capacity.told())
    words = "Calls under way, by what they cost; body: large requests on their way in."
    yield gauge("calls_under_way", words, ["load"], [((of,), room.places()) for of, room in rooms])
    words = "Calls that wait for their turn."
    yield gauge("calls_waiting", words, ["load"], [((of,), room.waiting()) for of, room in rooms])
    words = (
        "Calls refused for load: too many of one key, or of all, waited already, or for too long."
    )
    yield counter("calls_refused", words, ["load"], [((of,), room.refused) for of, room in rooms])
    words = "Bytes held of large requests, and of answers until they are sent."
    held = [((of,), room.taken()) for of, room in rooms]
    yield gauge("held_bytes", words, ["load"], held)


def _of_requests(requests: Requests) -> Iterator[str]:
    labels = ["method", "protocol"]
    yield counter(
        "requests", "Requests answered.", [*labels, "code"], sorted(requests.answers.items())
    )
    yield histogram("request_seconds", "How long requests took.", labels, requests.times)
