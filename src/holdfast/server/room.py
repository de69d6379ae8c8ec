"""Room: a bounded number of places and of bytes, given out in fair order between keys."""

import asyncio
from collections import Counter, OrderedDict, deque

from msgspec import Struct

from holdfast.core.errors import Exhausted

UNBOUNDED = 2**62
AGAIN = "ask again in a second, with fewer at once."


class Bounds(Struct, frozen=True, kw_only=True):
    """How much there is in all, and how much of it one key may have. Calls without a key are of one
    caller, who has no other beside it: all of it."""

    places: int = UNBOUNDED
    places_per_key: int = UNBOUNDED
    bytes: int = UNBOUNDED
    bytes_per_key: int = UNBOUNDED
    waiting: int = UNBOUNDED
    waiting_per_key: int = UNBOUNDED
    seconds: float | None = None
    """How long a call waits at most; None: for as long as it takes."""


class Room:
    """Places and bytes in use, and the calls that wait for some. The keys take turns; the calls of one key
    go in the order they came. `what` is the word for what is bounded, `refused` how many found no place
    to wait."""

    def __init__(self, what: str, bounds: Bounds) -> None:
        self.what = what
        self.bounds = bounds
        self.refused = 0
        self._places: Counter[str | None] = Counter()
        self._bytes: Counter[str | None] = Counter()
        self._all_places = 0
        self._all_bytes = 0
        self._waiting = 0
        self._lines: OrderedDict[str | None, deque[_Wait]] = OrderedDict()

    async def take(self, key: str | None, size: int = 0) -> None:
        """Wait for a place and so many bytes, and take them; `Exhausted` when too many wait already, or
        when it would take too long."""
        if not self._lines and self._open(size) and self._open_to(key, size):
            self._add(key, size, 1)
            return
        self._check(key, len(self._lines.get(key, ())))
        wait = _Wait(size, asyncio.get_running_loop().create_future())
        self._lines.setdefault(key, deque()).append(wait)
        self._waiting += 1
        self._admit()
        try:
            async with asyncio.timeout(self.bounds.seconds):
                await wait.turn
        except TimeoutError:
            self._leave(key, wait)
            self.refused += 1
            raise Exhausted(f"{self.what} of this key take too long now: {AGAIN}") from None
        except asyncio.CancelledError:
            self._leave(key, wait)
            raise

    def hold(self, key: str | None, size: int) -> None:
        """Count so many bytes that are there already, whether they fit or not: others wait for them."""
        self._add(key, size, 0)

    def give_back(self, key: str | None, size: int = 0, *, place: bool = True) -> None:
        """Give back so many bytes, and the place unless that was given back before."""
        self._add(key, -size, -place)
        self._admit()

    def places(self) -> int:
        """How many places are in use now."""
        return self._all_places

    def taken(self) -> int:
        """How many bytes are in use now."""
        return self._all_bytes

    def waiting(self) -> int:
        """How many calls wait now."""
        return self._waiting

    def _check(self, key: str | None, waiting: int) -> None:
        most = self.bounds.waiting if key is None else self.bounds.waiting_per_key
        if waiting < most and self._waiting < self.bounds.waiting:
            return
        self.refused += 1
        whose = "of this key" if waiting >= most and key is not None else "of all callers"
        raise Exhausted(f"Too many {self.what} {whose} wait already: {AGAIN}")

    def _open(self, size: int) -> bool:
        """Whether so much is left in all. What is larger than the whole gets it when it is all free."""
        bounds = self.bounds
        if self._all_places >= bounds.places:
            return False
        return not self._all_bytes or self._all_bytes + size <= bounds.bytes

    def _open_to(self, key: str | None, size: int) -> bool:
        if key is None:
            return True
        bounds, mine = self.bounds, self._bytes[key]
        if self._places[key] >= bounds.places_per_key:
            return False
        return not mine or mine + size <= bounds.bytes_per_key

    def _admit(self) -> None:
        """Let in who fits, the keys in turn. One that would fit but for the others' bytes is waited for:
        else what is large would never get its turn."""
        while (found := self._next()) is not None:
            key, line = found
            wait = line.popleft()
            self._waiting -= 1
            if line:
                self._lines.move_to_end(key)
            else:
                del self._lines[key]
            if not wait.turn.done():  # else its caller has left just now
                self._add(key, wait.size, 1)
                wait.turn.set_result(None)

    def _next(self) -> "tuple[str | None, deque[_Wait]] | None":
        for key, line in self._lines.items():
            if self._open_to(key, line[0].size):
                return (key, line) if self._open(line[0].size) else None
        return None

    def _add(self, key: str | None, size: int, places: int) -> None:
        self._all_places += places
        self._all_bytes += size
        for counter, more in ((self._places, places), (self._bytes, size)):
            if more:
                counter[key] += more
                if not counter[key]:
                    del counter[key]

    def _leave(self, key: str | None, wait: "_Wait") -> None:
        """The caller waits no more; what it may have been given meanwhile is given back."""
        if wait.turn.done() and not wait.turn.cancelled():
            self.give_back(key, wait.size)
            return
        line = self._lines.get(key)
        if line is None or wait not in line:
            return
        line.remove(wait)
        self._waiting -= 1
        if not line:
            del self._lines[key]
        self._admit()


class _Wait(Struct, eq=False):
    size: int
    turn: "asyncio.Future[None]"
