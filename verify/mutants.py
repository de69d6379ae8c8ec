"""Mutation testing of the core: every small change to it must be noticed by its tests.

    python -m verify.mutants [--short] [--jobs N] [--module NAME ...]

A survivor that is not listed with its reason in `verify/survivors.toml` fails the run, and so does
one that is listed and no longer survives. With `--module lifecycle.ownership` only the mutants of that
module are met, which is what to do after changing it.
"""

import argparse
import os
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from verify.mutant_runs import (
    COLD,
    KILLED,
    SURVIVED,
    TIMEOUT,
    prepare,
    run_cold,
    run_warm,
)
from verify.mutation import Mutant, all_mutants

SURVIVORS = Path(__file__).parent / "survivors.toml"
KILLED_PERCENT_MIN = 95
TITLE = "## Mutation testing of the core"
_SAMPLE = 4


def main() -> int:
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the same set order, and so the same outcome
        arguments = [sys.executable, "-m", "verify.mutants", *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, "PYTHONHASHSEED": "0"})
    started = time.monotonic()
    prepare()
    reasons = known_survivors(SURVIVORS.read_text())
    mutants = all_mutants()
    if options.module:
        mutants, reasons = only(options.module, mutants, reasons)
    if options.short:
        mutants = sample(mutants, reasons)
        reasons = {mutant.id: reasons[mutant.id] for mutant in mutants if mutant.id in reasons}
        outcomes = dict(_cold_outcomes(mutants, options.jobs, near_only=reasons))
    elif [outcome for _, outcome in run_cold([None], 1)] == [SURVIVED]:
        outcomes = _meet(mutants, options.jobs)
    else:
        print(f"{TITLE}\n\n**The tests fail on the core as it is, so that nothing is proved.**")
        return 1
    problems = list(problems_of(outcomes, reasons, 0 if options.short else KILLED_PERCENT_MIN))
    print(section(mutants, outcomes, reasons, time.monotonic() - started, short=options.short))
    for problem in problems:
        print(f"\n**{problem}**")
    return 1 if problems else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--short", action="store_true", help="a few mutants, for `make test`")
    parser.add_argument("--module", action="append", help="of the core; may be given again")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    return parser.parse_args()


def known_survivors(text: str) -> dict[str, str]:
    """The reason of every listed survivor by its id."""
    return {name: group["reason"] for group in tomllib.loads(text)["survivors"] for name in group["mutants"]}


def only(
    modules: Collection[str], mutants: Sequence[Mutant], reasons: Mapping[str, str]
) -> tuple[list[Mutant], dict[str, str]]:
    """The mutants of these modules, and the listed survivors that are not of another."""
    chosen = [mutant for mutant in mutants if mutant.module in modules]
    others = {mutant.id for mutant in mutants if mutant.module not in modules}
    return chosen, {name: reason for name, reason in reasons.items() if name not in others}


def sample(mutants: Sequence[Mutant], reasons: Mapping[str, str]) -> list[Mutant]:
    """One listed survivor, and a few that must die, from all over the core."""
    listed = [mutant for mutant in mutants if mutant.id in reasons]
    mortal = [mutant for mutant in mutants if mutant.id not in reasons]
    step = len(mortal) // _SAMPLE
    return [*listed[:1], *mortal[step // 2 :: step][:_SAMPLE]]


def _meet(mutants: Sequence[Mutant], jobs: int) -> dict[str, int]:
    """The outcome of every mutant by its id."""
    outcomes: dict[str, int] = {}
    for mutant, outcome in run_warm([mutant for mutant in mutants if mutant.in_body], jobs):
        outcomes[mutant.id] = outcome
        _progress(len(outcomes), len(mutants))
    left = [mutant for mutant in mutants if outcomes.get(mutant.id, COLD) == COLD]
    for number, (name, outcome) in enumerate(_cold_outcomes(left, jobs), start=1):
        outcomes[name] = outcome
        _progress(len(mutants) - len(left) + number, len(mutants))
    return outcomes


def _cold_outcomes(
    mutants: Sequence[Mutant], jobs: int, near_only: Collection[str] = ()
) -> Iterator[tuple[str, int]]:
    for mutant, outcome in run_cold(mutants, jobs, near_only):
        assert mutant is not None  # only the control is
        yield mutant.id, outcome


def _progress(done: int, count: int) -> None:
    if done % 100 == 0 or done == count:
        print(f"mutants: {done} of {count}", file=sys.stderr, flush=True)


def problems_of(
    outcomes: Mapping[str, int], reasons: Mapping[str, str], least: float = KILLED_PERCENT_MIN
) -> Iterator[str]:
    """Why the claim does not hold: nothing, when it does."""
    if not outcomes:
        yield "There was no mutant."
        return
    for name, outcome in sorted(outcomes.items()):
        if outcome not in (KILLED, TIMEOUT, SURVIVED):
            yield f"Could not be run: {name}"
        if outcome == SURVIVED and not reasons.get(name):
            yield f"Survives, and no reason is given: {name}"
    for name in reasons:
        if outcomes.get(name) != SURVIVED:
            yield f"Is listed as a survivor, and does not survive: {name}"
    if percent(list(outcomes.values())) < least:
        yield f"Fewer than {least} % are killed."


def percent(outcomes: Sequence[int]) -> float:
    """How many of a hundred are killed; a run without end is noticed too."""
    return 100 * sum(outcome in (KILLED, TIMEOUT) for outcome in outcomes) / len(outcomes)


def section(
    mutants: Sequence[Mutant],
    outcomes: Mapping[str, int],
    reasons: Mapping[str, str],
    seconds: float,
    *,
    short: bool,
) -> str:
    rows = [
        _row(
            f"`core/{module.replace('.', '/')}`",
            [outcomes[m.id] for m in mutants if m.module == module],
        )
        for module in dict.fromkeys(mutant.module for mutant in mutants)
    ]
    lines = [
        TITLE,
        "",
        f"{'A sample of ' * short}{len(mutants):,} small changes were made to `src/holdfast/core`,"
        f" one at a time, and each met the tests in `tests/core`. Claimed: {_claim(short)}. Words of"
        " error messages, docstrings, types, imports and asserts are not changed.",
        "",
        "| module | mutants | killed | timeouts | survived | noticed |",
        "|---|--:|--:|--:|--:|--:|",
        *rows,
        _row("**all**", list(outcomes.values())),
        "",
        "| survivors | where | why |",
        "|--:|---|---|",
        *_survivor_rows(outcomes, reasons),
        "",
        f"Every survivor by its change: `verify/survivors.toml`. {seconds:.0f} s;"
        f" again with `python -m verify.mutants{' --short' * short}`.",
    ]
    return "\n".join(lines)


def _claim(short: bool) -> str:
    if short:
        return "all but one listed survivor are noticed"
    return f"at least {KILLED_PERCENT_MIN} % are noticed, and every survivor has its reason"


def _row(name: str, outcomes: list[int]) -> str:
    count = Counter(outcomes)
    figures = [len(outcomes), count[KILLED], count[TIMEOUT], count[SURVIVED]]
    return f"| {name} | {' | '.join(f'{n:,}' for n in figures)} | {percent(outcomes):.1f} % |"


def _survivor_rows(outcomes: Mapping[str, int], reasons: Mapping[str, str]) -> Iterator[str]:
    alive = [name for name, outcome in outcomes.items() if outcome == SURVIVED]
    for reason in dict.fromkeys(reasons.get(name, "NO REASON") for name in sorted(alive)):
        names = [name for name in alive if reasons.get(name, "NO REASON") == reason]
        where = ", ".join(dict.fromkeys(f"`{name.split(':')[0]}`" for name in sorted(names)))
        yield f"| {len(names)} | {where} | {reason} |"


if __name__ == "__main__":
    sys.exit(main())
