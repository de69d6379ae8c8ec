"""The limit on how many jobs may wait in a queue. They are counted in the store at most once a second."""

import asyncio
from collections import Counter
from functools import partial

from holdfast.core.errors import Exhausted
from holdfast.core.state import State
from holdfast.ports import Clock, Registry

FRESH_SECONDS = 1.0
QUEUES_KEPT_MAX = 10_000


class QueueLimit:
    """Refuses jobs for a queue that is full. Between two counts it adds the jobs that it admits.

    A count may miss jobs that were admitted and are not committed yet, so those of calls that have not ended
    are added to it."""

    def __init__(self, registry: Registry, clock: Clock, most: int) -> None:
        self._registry = registry
        self._clock = clock
        self._most = most
        self._queues: dict[str, tuple[float, int]] = {}
        self._in_flight: Counter[str] = Counter()
        self._counting: dict[str, asyncio.Task[None]] = {}

    async def admit(self, queue: str, jobs: int = 1) -> None:
        """Raise `Exhausted` when this many more jobs would exceed the limit."""
        counted_at, _ = self._queues.get(queue, (-FRESH_SECONDS, 0))
        if self._clock.monotonic() - counted_at >= FRESH_SECONDS:
            counting = self._counting.get(queue)
            if counting is None:
                counting = self._counting[queue] = asyncio.create_task(self._count(queue))
                counting.add_done_callback(lambda _: self._counting.pop(queue, None))
            await asyncio.shield(counting)
        counted_at, waiting = self._queues.get(queue, (self._clock.monotonic(), 0))
        if waiting + jobs > self._most:
            raise Exhausted(
                f"Queue {queue} is full, or would be: at most {self._most:,} jobs may wait in it."
                " Add workers, or send less."
            )
        self._queues[queue] = counted_at, waiting + jobs
        self._in_flight[queue] += jobs
        if (call := asyncio.current_task()) is not None:
            call.add_done_callback(partial(self._call_ended, queue, jobs))

    def _call_ended(self, queue: str, jobs: int, _: object) -> None:
        self._in_flight[queue] -= jobs
        if not self._in_flight[queue]:
            del self._in_flight[queue]

    async def _count(self, queue: str) -> None:
        counted_at, in_flight = self._clock.monotonic(), self._in_flight[queue]
        waiting = in_flight + (await self._registry.counts(queue)).get(State.QUEUED, 0)
        if len(self._queues) >= QUEUES_KEPT_MAX:
            self._queues.clear()
        self._queues[queue] = counted_at, waiting
