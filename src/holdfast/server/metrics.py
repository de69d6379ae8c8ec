"""Metrics: the page of a server, made of the counters of its registry and of its requests."""

import asyncio
from collections.abc import Iterator
from datetime import datetime

from holdfast.ports import Census
from holdfast.registry import prometheus_text
from holdfast.registry.metrics import metric_families, read_census
from holdfast.registry.prometheus_text import counter, gauge, histogram, plain_gauge
from holdfast.server.capacity import Capacity
from holdfast.server.context import ServerContext
from holdfast.server.readiness import Readiness
from holdfast.server.request_metrics import RequestMetrics


class ServerMetrics:
    """Makes the page. Concurrent callers get the same one."""

    def __init__(self, context: ServerContext, readiness: Readiness) -> None:
        self._context = context
        self._readiness = readiness
        self._making: asyncio.Task[bytes] | None = None

    async def page(self) -> bytes:
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make())
        return await asyncio.shield(self._making)

    async def _make(self) -> bytes:
        found = await read_census(self._context.registry)
        ready = not await self._readiness.obstacles()
        parts: list[str] = []
        for part in self._parts(found, ready=ready):
            parts.append(part)
            await self._context.clock.sleep(0)  # let other calls run: the page of 200 kinds is long
        parts.append(await asyncio.to_thread(prometheus_text.process_metrics))
        return "".join(parts).encode()

    def _parts(self, found: tuple[Census, datetime] | None, *, ready: bool) -> Iterator[str]:
        context = self._context
        yield plain_gauge("ready", "1 when this server can do its work: see /readyz.", int(ready))
        yield from metric_families(context.registry, found)
        yield from _of_requests(context.request_metrics)
        streams = [((of,), n) for of, n in context.event_streams.open_counts().items()]
        text = "Open event streams: of all jobs (feed), of single jobs."
        yield gauge("streams", text, ["of"], streams)
        yield plain_gauge("claims_waiting", "Clients that wait for a job.", context.claim_waiters.waiting())
        yield from _of_capacity(context.capacity)
        text = "Age of the oldest event that a stream of all jobs is being sent."
        now = context.clock.now() if found is None else found[1]
        yield plain_gauge("feed_lag_seconds", text, context.event_streams.lag_seconds(now))


def _of_capacity(capacity: Capacity) -> Iterator[str]:
    limiters = list(capacity.limiters())
    text = "Calls under way, by what they cost; body: large requests that are being received."
    slots = [((load,), one.slots_in_use()) for load, one in limiters]
    yield gauge("calls_under_way", text, ["load"], slots)
    waiting = [((load,), one.waiting()) for load, one in limiters]
    yield gauge("calls_waiting", "Calls that wait for a slot.", ["load"], waiting)
    text = "Calls refused for load: too many of one key, or of all, waited already, or for too long."
    refused = [((load,), one.refused) for load, one in limiters]
    yield counter("calls_refused", text, ["load"], refused)
    text = "Bytes held of large requests, and of responses until they are sent."
    held = [((load,), one.bytes_in_use()) for load, one in limiters]
    yield gauge("held_bytes", text, ["load"], held)


def _of_requests(requests: RequestMetrics) -> Iterator[str]:
    labels = ["method", "protocol"]
    yield counter("requests", "Requests served.", [*labels, "code"], sorted(requests.counts.items()))
    yield histogram("request_seconds", "How long requests took.", labels, requests.durations)
