"""How much of everything: the whole, a little of it, and just enough to see that it works."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Size:
    """Seconds are limits, but those of single calls, leases and the soak."""

    rounds: int = 2
    jobs: int = 20_000
    limit_jobs: int = 20_000
    long_jobs: int = 100_000
    long_if_seconds: float = 4.0
    drain_seconds: float = 15.0
    single_seconds: float = 1.0
    waits: int = 100
    levels: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    behind_jobs: int = 20_000
    behind_runs: int = 2
    behind_seconds: float = 2.5
    recovery_seconds: float = 60.0
    lease_seconds: float = 10.0
    soak_seconds: float = 600.0
    soak_mark_seconds: float = 60.0
    soak_rate: int = 150
    snapshot_seconds: float = 60.0
    snapshot_rate: int = 250
    snapshot_jobs: int = 20_000
    crowd_jobs: int = 1_000_000
    unfit_jobs: int = 100_000
    crowd_claims: int = 60
    page_seconds: float = 6.0


FULL = Size()
QUICK = Size(
    rounds=2,
    jobs=10_000,
    limit_jobs=10_000,
    long_jobs=40_000,
    long_if_seconds=4.0,
    drain_seconds=5.0,
    single_seconds=0.4,
    waits=60,
    levels=(1_000, 20_000),
    behind_runs=1,
    recovery_seconds=30.0,
    soak_seconds=20.0,
    soak_mark_seconds=5.0,
    snapshot_seconds=10.0,
    snapshot_jobs=10_000,
    crowd_jobs=50_000,
    unfit_jobs=20_000,
    crowd_claims=30,
    page_seconds=1.0,
)
SMOKE = replace(
    QUICK,
    rounds=1,
    jobs=400,
    limit_jobs=1_000,
    long_if_seconds=1e-6,
    lease_seconds=4.0,
    single_seconds=0.05,
    waits=5,
    levels=(100,),
    behind_jobs=200,
    soak_seconds=2.0,
    soak_mark_seconds=1.0,
    soak_rate=50,
    snapshot_seconds=2.0,
    snapshot_rate=10,
    snapshot_jobs=400,
    crowd_jobs=2_000,
    unfit_jobs=1_000,
    crowd_claims=3,
    page_seconds=0.1,
)
