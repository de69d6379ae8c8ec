"""As many seeds as fit into some minutes, on all cores, and the guard that a seed is one run."""

import argparse
import itertools
import multiprocessing
import sys
import time
from collections import Counter

from holdfast.testing.simulation import Result, plan_of, simulate
from verify.pythons import hashes, pythons

GUARDED = 50


def summary(seed: int) -> tuple[int, str | None, Counter[str], Counter[str]]:
    """One seed: what it violated, what it did, and which faults struck."""
    result = simulate(plan_of(seed))
    wrong = str(result.violation) + f" in {result.plan.store}" if result.violation else None
    return seed, wrong, _counted(result), Counter(result.faults)


def _counted(result: Result) -> Counter[str]:
    return Counter(
        {
            "seeds": 1,
            result.plan.store: 1,
            "valid": int(result.valid),
            "promising": int(result.plan.validators > 0),
            "seconds": round(result.seconds),
            "commits": result.commits,
            "answers": result.answers,
            "expiries": result.expiries,
            "stale": result.stale,
            "ambiguous": result.ambiguous,
        }
    )


def run(first: int, minutes: float) -> tuple[Counter[str], Counter[str], list[str], float]:
    """Seeds from `first` on until the time is up."""
    total: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    wrong: list[str] = []
    started = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(maxtasksperchild=500) as pool:
        for seed, violation, counted, struck in pool.imap_unordered(
            summary, itertools.count(first), chunksize=8
        ):
            total += counted
            faults += struck
            if violation:
                wrong.append(f"seed {seed}: {violation}")
            if time.monotonic() - started > minutes * 60 or len(wrong) >= 10:
                pool.terminate()
                break
    return total, faults, wrong, time.monotonic() - started


def guard(seeds: int) -> tuple[list[str], bool]:
    """The versions that were compared, and whether each seed was the same run on all of them."""
    found = pythons()
    traces = [hashes(p, seeds=seeds, hash_seed=h) for p in found for h in (1, 2)]
    return [version for version, _ in found], all(trace == traces[0] for trace in traces)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--first", type=int, default=100_000)
    options = parser.parse_args()
    minutes = 0.25 if options.short else options.minutes
    guarded = 5 if options.short else GUARDED
    versions, same = guard(guarded)
    print(f"determinism: {'same' if same else 'DIFFERENT'} on {versions}", file=sys.stderr)
    total, faults, wrong, seconds = run(options.first, minutes)
    print("## Simulation\n")
    print(
        "The real registry, worker and stores' semantics in one thread on virtual time, under a random"
        " subset of faults per seed; what lands is checked at every commit, what is told at every"
        " answer. Then everything is healed, every job must end, and the store is asked for everything.\n"
    )
    print("| what | figure |\n|---|---|")
    print(
        f"| seeds | {total['seeds']:,} ({total['memory']:,} on dictionaries, {total['sqlite']:,} on"
        f" SQLite's own statements, {total['objects']:,} on single objects), from {options.first:,} on |"
    )
    print(f"| of them hard enough to count | {total['valid']:,} |")
    print(f"| of them with promised outputs, and who looks for them | {total['promising']:,} |")
    print(f"| virtual time | {total['seconds'] / 3600:.1f} h in {seconds / 60:.1f} min |")
    print(f"| commits, answers checked | {total['commits']:,}, {total['answers']:,} |")
    print(
        f"| leases expired, stale owners refused, answers in doubt | {total['expiries']:,},"
        f" {total['stale']:,}, {total['ambiguous']:,} |"
    )
    struck = ", ".join(f"{name} {count:,}" for name, count in sorted(faults.items()))
    print(f"| faults | {struck} |")
    print(f"| **violations** | **{len(wrong)}** |")
    words = "the same traces" if same else "**DIFFERENT TRACES**"
    print(f"| determinism | {guarded} seeds, two hash seeds each, Python {', '.join(versions)}: {words} |")
    for line in wrong:
        print(f"\n{line}")
    print("\nRepeat: `python -m verify.simulation`;", end=" ")
    print("one seed: `python -m holdfast.testing.simulation --seed N --trace`.")
    enough = total["valid"] >= 0.7 * total["seeds"]
    return 0 if same and enough and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
