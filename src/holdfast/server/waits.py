"""Waits: calls that are answered when something has happened, counted in all and of each key."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.core.errors import Exhausted
from holdfast.ports import Clock
from holdfast.server.calls import who
from holdfast.server.limits import REFUSAL_SECONDS, WAITING_MAX, WAITING_SHARE
from holdfast.server.listener import connections_max


class Waits:
    """Who waits now. Each takes a connection meanwhile, and no other place."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._of_key: Counter[str | None] = Counter()

    def count(self) -> int:
        """How many wait now."""
        return self._count

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place for the call under way; `Exhausted` when it has to come back later."""
        principal = who.get(None)
        key_id = None if principal is None else principal.key_id
        if (why := self._full(key_id)) is not None:
            await self._clock.sleep(REFUSAL_SECONDS)  # else it is asked again at once
            raise Exhausted(why)
        self._count += 1
        self._of_key[key_id] += 1
        try:
            yield
        finally:
            self._count -= 1
            self._of_key[key_id] -= 1
            if not self._of_key[key_id]:
                del self._of_key[key_id]

    def _full(self, key_id: str | None) -> str | None:
        """Why nobody more may wait with this key; None when there is a place."""
        most = max(1, connections_max() // WAITING_SHARE)
        if self._count >= WAITING_MAX:
            return f"{WAITING_MAX:,} clients wait here already."
        if key_id is not None and self._of_key[key_id] >= most:
            return f"{most:,} clients wait here already with this key."
        return None
