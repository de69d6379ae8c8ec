"""Is this checkout as fast as another one? `short.py` of both in turns, and the median of ours : theirs.

    PYTHONPATH=src python bench/alternate.py ../other-checkout [--rounds 5] [--jobs 10000]

Each checkout has its own environment (`make .venv/dev/.ready`). The machine should be at rest.
"""

import argparse
import os
import re
import statistics
import subprocess
from pathlib import Path

HERE = Path(__file__).parents[1]
ROW = re.compile(r"^\| ([^|]+?) \| ([\d,]+) \|", re.MULTILINE)


def rates(checkout: Path, jobs: int) -> dict[str, float]:
    """Our jobs per second in one run of that checkout, by what was measured."""
    command = [".venv/dev/bin/python", "bench/short.py", "--jobs", str(jobs)]
    ran = subprocess.run(
        command,
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": "src"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,  # it exits with 1 when a share was lost, and has printed all the same
    )
    found = {name: float(rate.replace(",", "")) for name, rate in ROW.findall(ran.stdout)}
    assert found, f"{checkout} printed no figures: {ran.stdout}"
    return found


def main(other: Path, rounds: int, jobs: int) -> None:
    ratios: dict[str, list[float]] = {}
    for _ in range(rounds):
        theirs, ours = rates(other, jobs), rates(HERE, jobs)
        for name, rate in theirs.items():
            ratios.setdefault(name, []).append(ours[name] / rate)
    for name, each in ratios.items():
        print(f"{name}: {statistics.median(each):.3f} ({', '.join(f'{one:.2f}' for one in each)})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=10_000)
    given = parser.parse_args()
    main(given.other.resolve(), given.rounds, given.jobs)
