"""Depth: how many jobs wait in a queue, counted now and then, so that none grows without end."""

from holdfast.core.errors import Exhausted
from holdfast.core.state import State
from holdfast.ports import Clock, Registry

FRESH_SECONDS = 1.0
QUEUES_KEPT_MAX = 10_000


class Depth:
    """Refuses jobs for a queue that is full. Between counts it counts what it lets in."""

    def __init__(self, registry: Registry, clock: Clock, most: int) -> None:
        self._registry = registry
        self._clock = clock
        self._most = most
        self._queues: dict[str, tuple[float, int]] = {}

    async def admit(self, queue: str, jobs: int = 1) -> None:
        """Raise `Exhausted` when so many more would be too many."""
        now = self._clock.monotonic()
        counted_at, waiting = self._queues.get(queue, (-FRESH_SECONDS, 0))
        if now - counted_at >= FRESH_SECONDS:
            counted_at, waiting = now, (await self._registry.counts(queue)).get(State.QUEUED, 0)
        if waiting + jobs > self._most:
            raise Exhausted(
                f"{waiting:,} jobs wait in queue {queue}, and at most {self._most:,} may: add workers,"
                " or send less."
            )
        if len(self._queues) >= QUEUES_KEPT_MAX:
            self._queues.clear()
        self._queues[queue] = counted_at, waiting + jobs
