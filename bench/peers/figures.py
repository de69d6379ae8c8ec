"""The figures of a run with all their measurements, and why a figure is missing."""

from dataclasses import dataclass, field

# Names of figures; those that are not rates are better the smaller they are.
BULK, SINGLE, CLIENTS, DRAIN, LONG_DRAIN = "bulk", "single", "clients", "drain", "long_drain"
CLIENTS_P99, P50, P95, P99 = "clients_p99_ms", "p50_ms", "p95_ms", "p99_ms"
WORKER_CPU, SERVER_CPU, WAL = "worker_cpu_us", "server_cpu_us", "wal_bytes"
RSS, IDLE_RSS, RECOVERY = "rss_mb", "idle_rss_mb", "recovery_s"
DEFAULT_DRAIN, STORED = "default_drain", "stored_bytes"
UNDISTURBED, HELD = "undisturbed", "beside_a_snapshot"
_RATES = {BULK, SINGLE, CLIENTS, DRAIN, LONG_DRAIN, DEFAULT_DRAIN, UNDISTURBED, HELD}


def behind(level: int) -> str:
    """The figure of a drain with so many more jobs behind it."""
    return f"behind_{level}"


def is_rate(name: str) -> bool:
    return name in _RATES or name.startswith("behind_")


@dataclass
class Found:
    """Everything known of one system after a run. `remarks` say what a figure needs said beside it, and
    `failures` are the gaps that should not be there."""

    settings: str = ""
    recovery: str = ""
    figures: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, name: str, value: float) -> None:
        self.figures.setdefault(name, []).append(value)
        self.missing.pop(name, None)

    def lack(self, name: str, why: str) -> None:
        if name not in self.figures:
            self.missing[name] = why

    def fail(self, why: str, *names: str) -> None:
        """A step went wrong, and these figures are missing for it."""
        self.failures.append(why)
        for name in names:
            self.lack(name, f"failed: {why}")

    def best(self, name: str) -> float | None:
        values = self.figures.get(name)
        if not values:
            return None
        return max(values) if is_rate(name) else min(values)

    def spread(self, name: str) -> tuple[float, float] | None:
        values = self.figures.get(name)
        return (min(values), max(values)) if values else None
