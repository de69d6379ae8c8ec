"""Every planted bug, searched for from several first seeds: which invariant finds it, and after how many
seeds."""

import argparse
import multiprocessing
import sys
from collections import Counter
from statistics import median

from holdfast.testing.simulation.bugs import BUGS, hunt

SEEDS_MAX = 2_000
STARTS = 3
SHORT = 10


def chase(job: tuple[str, int]) -> tuple[str, int, str | None]:
    """One hunt for one bug: how many seeds it took, and the invariant that found it."""
    name, first = job
    tried, result = hunt(BUGS[name], first, SEEDS_MAX)
    return name, tried, result.violation.invariant if result and result.violation else None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    names = sorted(BUGS)[:SHORT] if options.short else sorted(BUGS)
    starts = 1 if options.short else STARTS
    jobs = [(name, 10_000 * start) for name in names for start in range(starts)]
    took: dict[str, list[int]] = {name: [] for name in names}
    by: dict[str, Counter[str]] = {name: Counter() for name in names}
    hidden: list[str] = []
    with multiprocessing.get_context("spawn").Pool() as pool:
        for done, (name, tried, invariant) in enumerate(pool.imap_unordered(chase, jobs), 1):
            took[name].append(tried)
            if invariant is None:
                hidden.append(name)
            else:
                by[name][invariant] += 1
            print(f"\r{done}/{len(jobs)}", end="", file=sys.stderr)
    print(file=sys.stderr)
    found = len(names) - len(set(hidden))
    print("## Planted bugs\n")
    print(
        f"{len(names)} mistakes, planted one at a time into the simulator's own build; each hunted from"
        f" {starts} starts with at most {SEEDS_MAX:,} seeds. **{found} of {len(names)} found every time.**\n"
    )
    print("| bug | trap | found by | median seeds | most |\n|---|---|---|---|---|")
    for name in names:
        bug = BUGS[name]
        invariants = ", ".join(one for one, _ in by[name].most_common()) or "**nobody**"
        figures = f"{median(took[name]):g} | {max(took[name])}"
        print(f"| {bug.words} (`{name}`) | {bug.trap} | {invariants} | {figures} |")
    print("\nRepeat: `python -m verify.planted_bugs`;", end=" ")
    print("one bug: `python -m holdfast.testing.simulation --bug NAME --seeds 50`.")
    return 1 if hidden else 0


if __name__ == "__main__":
    sys.exit(main())
