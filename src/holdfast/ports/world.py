"""Time, names and chance, as everything that needs them gets them."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Time and waiting."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    """Names nobody else has, and chance."""

    def new(self) -> str:
        """A fresh id; ids made later sort later."""
        ...

    def secret(self) -> bytes:
        """32 bytes nobody can guess."""
        ...

    def chance(self) -> float:
        """A draw from [0, 1)."""
        ...
