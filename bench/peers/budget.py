"""The time of a run: what has passed, what each step took, and whether there is room for one more."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Budget:
    """`reserved` is kept for what comes last; steps that would eat into it are left out, and say so."""

    seconds: float
    reserved: float = 0.0
    spent: dict[str, float] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def room(self, seconds: float) -> bool:
        return self.elapsed + seconds <= self.seconds - self.reserved

    def say(self, words: str) -> None:
        print(f"{self.elapsed:5.0f} s  {words}", file=sys.stderr, flush=True)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Whatever happens in here is told as the time of this part."""
        self.say(f"== {name}")
        began = time.monotonic()
        try:
            yield
        finally:
            self.spent[name] = self.spent.get(name, 0.0) + time.monotonic() - began
