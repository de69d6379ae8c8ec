"""The observations of one scenario, before the verdict."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class State:
    """A job as the system tells it to whoever asks. `name` is the system's own word; `over` means that it
    counts as done, or is gone."""

    name: str
    over: bool
    result: str | None


@dataclass(frozen=True)
class Reported:
    """A line that a handler wrote."""

    worker: str
    pid: int
    what: str
    at: float
    number: int | str | None = None
    job_id: str | None = None
    why: str = ""


@dataclass(frozen=True)
class Frozen:
    """The scene in which w-1 freezes in the middle of the job, w-2 takes over, and w-1 comes back.

    `rescued_after` is None when w-2 never began; then nothing after it happened."""

    rescued_after: float | None
    thawed: State | None = None
    final: State | None = None
    told: list[Reported] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)

    def begins(self, *workers: str) -> list[Reported]:
        """Runs of the job that w-1 froze in."""
        begun = [t for t in self.told if t.what == "begin"]
        jobs = [t.job_id for t in begun if t.worker == "w-1"][:1]
        return [t for t in begun if t.worker in workers and t.job_id in jobs]

    def ended(self, worker: str) -> bool:
        return any(t.what == "end" and t.worker == worker for t in self.told)


@dataclass(frozen=True)
class Coordinated:
    """The scene in which w-0, the coordinator, freezes for good, and w-1 is killed in the middle of a job.

    `began` says whether w-1 got the job at all."""

    began: bool
    rescued_after: float | None
