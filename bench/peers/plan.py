"""What a run consists of, and how long it may take."""

from dataclasses import dataclass

from peers.before import systems_before
from peers.size import Size
from peers.systems import System

REST_SECONDS, TABLE_SECONDS = 20.0 * 60, 45.0 * 60


@dataclass(frozen=True)
class Plan:
    """Which systems, how much of everything, the whole or only what the table of issue 21 needs, and what
    is measured as `before`."""

    systems: list[System]
    size: Size
    whole: bool = True
    before: str | None = None

    @property
    def all(self) -> list[System]:
        """Ours of before comes after ours of now."""
        older = systems_before(self.before) if self.before else []
        ours = [system for system in self.systems if system.ours]
        older = [s for s in older if s.store in {system.store for system in ours}]
        return ours + older + [system for system in self.systems if not system.ours]

    @property
    def seconds(self) -> float:
        return TABLE_SECONDS + self.size.snapshot_seconds + REST_SECONDS * self.whole

    def __str__(self) -> str:
        size = self.size
        words = (
            f"plan: {len(self.all)} systems; installs; {size.rounds} rounds of {size.jobs:,} jobs; snapshots "
            f"held for {size.snapshot_seconds:.0f} s; calls beside {size.crowd_jobs:,} jobs; drains of "
            f"{size.long_jobs:,} where quick"
        )
        if self.whole:
            levels = ", ".join(f"{level:,}" for level in size.levels)
            words += f"; claims with {levels} behind; soak of {size.soak_seconds:.0f} s"
        return f"{words}; at most {self.seconds / 60:.0f} minutes in all"
