"""A limiter: a bounded number of slots and of bytes, granted in fair order between keys."""

import asyncio
from collections import Counter, OrderedDict, deque

from msgspec import Struct

from holdfast.core.errors import Exhausted

UNBOUNDED = 2**62
RETRY = "try again in a second, with fewer at once."


class Bounds(Struct, frozen=True, kw_only=True):
    """How much there is in all, and how much of it one key may have. Calls without a key may have all of
    it: a server without keys has one kind of caller only."""

    slots: int = UNBOUNDED
    slots_per_key: int = UNBOUNDED
    bytes: int = UNBOUNDED
    bytes_per_key: int = UNBOUNDED
    waiting: int = UNBOUNDED
    waiting_per_key: int = UNBOUNDED
    seconds: float | None = None
    """How long a call waits at most; None for as long as it takes."""


class FairLimiter:
    """Slots and bytes in use, and the calls that wait for some. The keys take turns; the calls of one key
    go in the order they came. `what` is the noun for messages; `refused` counts refusals."""

    def __init__(self, what: str, bounds: Bounds) -> None:
        self.what = what
        self.bounds = bounds
        self.refused = 0
        self._slots_of_key: Counter[str | None] = Counter()
        self._bytes_of_key: Counter[str | None] = Counter()
        self._slots_in_use = 0
        self._bytes_in_use = 0
        self._waiting = 0
        self._queues: OrderedDict[str | None, deque[_Waiter]] = OrderedDict()

    async def acquire(self, key: str | None, size: int = 0) -> None:
        """Wait for a slot and `size` bytes; `Exhausted` when too many calls wait, or it takes too long."""
        if not self._queues and self._fits(size) and self._fits_key(key, size):
            self._add(key, size, 1)
            return
        self._check(key, len(self._queues.get(key, ())))
        waiter = _Waiter(size, asyncio.get_running_loop().create_future())
        self._queues.setdefault(key, deque()).append(waiter)
        self._waiting += 1
        self._admit()
        try:
            async with asyncio.timeout(self.bounds.seconds):
                await waiter.turn
        except TimeoutError:
            self._leave(key, waiter)
            self.refused += 1
            raise Exhausted(f"{self.what} of this key take too long now: {RETRY}") from None
        except asyncio.CancelledError:
            self._leave(key, waiter)
            raise

    def add_bytes(self, key: str | None, size: int) -> None:
        """Count bytes that are in memory already, whether they fit or not: later calls wait for them."""
        self._add(key, size, 0)

    def release(self, key: str | None, size: int = 0, *, slot: bool = True) -> None:
        """Release `size` bytes, and the slot unless that was released before."""
        self._add(key, -size, -slot)
        self._admit()

    def slots_in_use(self) -> int:
        """Return how many slots are in use now."""
        return self._slots_in_use

    def bytes_in_use(self) -> int:
        """Return how many bytes are in use now."""
        return self._bytes_in_use

    def waiting(self) -> int:
        """Return how many calls wait now."""
        return self._waiting

    def _check(self, key: str | None, waiting: int) -> None:
        most = self.bounds.waiting if key is None else self.bounds.waiting_per_key
        if waiting < most and self._waiting < self.bounds.waiting:
            return
        self.refused += 1
        whose = "of this key" if waiting >= most and key is not None else "of all callers"
        raise Exhausted(f"Too many {self.what} {whose} wait already: {RETRY}")

    def _fits(self, size: int) -> bool:
        """Whether a slot and `size` bytes are free. What exceeds all fits when all is free."""
        bounds = self.bounds
        if self._slots_in_use >= bounds.slots:
            return False
        return not self._bytes_in_use or self._bytes_in_use + size <= bounds.bytes

    def _fits_key(self, key: str | None, size: int) -> bool:
        if key is None:
            return True
        bounds, mine = self.bounds, self._bytes_of_key[key]
        if self._slots_of_key[key] >= bounds.slots_per_key:
            return False
        return not mine or mine + size <= bounds.bytes_per_key

    def _admit(self) -> None:
        """Admit the calls that fit, the keys in turn. When the next one fits its key's bounds but not what
        is left in all, those after it wait, too: else a large one would never get its turn."""
        while (found := self._next()) is not None:
            key, queue = found
            waiter = queue.popleft()
            self._waiting -= 1
            if queue:
                self._queues.move_to_end(key)
            else:
                del self._queues[key]
            if not waiter.turn.done():  # else its caller has left just now
                self._add(key, waiter.size, 1)
                waiter.turn.set_result(None)

    def _next(self) -> "tuple[str | None, deque[_Waiter]] | None":
        for key, queue in self._queues.items():
            if self._fits_key(key, queue[0].size):
                return (key, queue) if self._fits(queue[0].size) else None
        return None

    def _add(self, key: str | None, size: int, places: int) -> None:
        self._slots_in_use += places
        self._bytes_in_use += size
        for counter, more in ((self._slots_of_key, places), (self._bytes_of_key, size)):
            if more:
                counter[key] += more
                if not counter[key]:
                    del counter[key]

    def _leave(self, key: str | None, waiter: "_Waiter") -> None:
        """Stop waiting; what the call may have been granted meanwhile is released."""
        if waiter.turn.done() and not waiter.turn.cancelled():
            self.release(key, waiter.size)
            return
        queue = self._queues.get(key)
        if queue is None or waiter not in queue:
            return
        queue.remove(waiter)
        self._waiting -= 1
        if not queue:
            del self._queues[key]
        self._admit()


class _Waiter(Struct, eq=False):
    size: int
    turn: "asyncio.Future[None]"
