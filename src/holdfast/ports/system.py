"""The system ports: time, ids and randomness, injected wherever they are needed."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Time and waiting."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences have a meaning."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    """Unique ids, and randomness."""

    def new(self) -> str:
        """Return a new id; ids made later sort later."""
        ...

    def many(self, count: int) -> list[str]:
        """Return so many new ids, in the order in which they sort."""
        ...

    def secret(self) -> bytes:
        """Return 32 unpredictable bytes."""
        ...

    def chance(self) -> float:
        """Return a random number from [0, 1)."""
        ...
