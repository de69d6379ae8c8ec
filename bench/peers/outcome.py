"""A whole run: every system with what was found of it, the limits, the soak, and the time it took."""

from dataclasses import asdict, dataclass, field
from typing import Any

from environments import Environment
from peers.budget import Budget
from peers.figures import Found
from peers.size import Size
from peers.soak import Soak
from peers.systems import System
from servers import Kind


@dataclass
class Entry:
    """A system, how to run it, and what is known of it."""

    system: System
    found: Found = field(default_factory=Found)
    environment: Environment | None = None


@dataclass
class Outcome:
    size: Size
    budget: Budget
    entries: list[Entry]
    limits: dict[Kind, Found]
    soaks: list[Soak] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)
    whole: bool = True

    @property
    def page(self) -> str:
        """What the page and all that belongs to it are called."""
        return "peers" if self.whole else "table"

    @property
    def failures(self) -> list[str]:
        """Only what is ours: whatever goes wrong with another system is a cell that says so."""
        ours = [entry for entry in self.entries if entry.system.ours]
        told = [f"{entry.system.title}: {why}" for entry in ours for why in entry.found.failures]
        told += [f"limit, {kind}: {why}" for kind, f in self.limits.items() for why in f.failures]
        return told + [f"soak, {s.title}: {why}" for s in self.soaks for why in s.failures]

    def document(self) -> dict[str, Any]:
        """Everything, for whoever wants to reckon with it."""
        return {
            "about": self.about,
            "size": asdict(self.size),
            "seconds": {name: round(seconds, 1) for name, seconds in self.budget.spent.items()},
            "limits": {kind: asdict(found) for kind, found in self.limits.items()},
            "systems": [
                {**asdict(entry.system), "title": entry.system.title, "found": asdict(entry.found)}
                for entry in self.entries
            ],
            "soaks": [asdict(told) for told in self.soaks],
        }
