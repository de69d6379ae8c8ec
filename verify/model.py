"""The TLA+ model of the registry: every promise holds, and every faulty design is refuted by TLC."""

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from verify.tla.checker import FOLDER, Missing, Outcome, check, configuration, jar, java
from verify.tla.trace import tell

NOT_RUN = 3
DESIGNS = ("ends", "owners", "lock")
BREAKS: dict[str, tuple[str, ...]] = {
    "noFence": ("OnlyTheOwnerActs", "NoStaleAct"),
    "freshOpOnRetry": ("OpAppliedOnce", "RefusedIsNotInTheLog"),
    "blindBeat": ("OnlyTheOwnerActs",),
    "twoStep": ("VersionChain", "OneEventPerTransition", "StateIsFold"),
    "ackFirst": ("OkIsInTheLog",),
    "tokenReset": ("JobTokensRise", "OnlyTheOwnerActs"),
    "noResourceFence": ("ResourceSeesTokensRise",),
    "claimNotDeduped": ("OpAppliedOnce", "OneAnswerPerOp"),
    "lookThenClaim": ("OpAppliedOnce",),
    "checkThenClaim": ("OneHolderPerJob", "OnlyLegalArrows"),
    "blindExpire": ("LeaseNotCutShort",),
    "noHistoryLook": ("RefusedIsNotInTheLog",),
    "cancelOverEnd": ("OnlyForward", "OnlyLegalArrows"),
    "cancelForgotten": ("CancelIsKept",),
    "budgetForgotten": ("BudgetsAreKept",),
    "lockIgnored": ("OneHolderPerLock",),
    "lockTokenPerJob": ("LockTokensRise",),
}
"""Each faulty design, and the promises it cannot keep. TLC says whether that is so."""
ON_THE_LOCK = {"noResourceFence", "lockIgnored", "lockTokenPerJob"}
SHORT_DESIGNS = ("ends",)
SHORT_SWITCHES = ("noFence", "twoStep")
REACHED: dict[str, str] = {
    "NeverSucceedsAfterAnExpiry": "owners",
    "NeverRefusesAStaleOwner": "owners",
    "NeverEndsByItsBudget": "owners",
    "NeverCancelledByAnExpiry": "owners",
    "NeverServesBothJobsInTurn": "lock",
}
"""What the model must be able to do: each of these has to be false."""

Refuted = dict[tuple[str, str], Outcome]


def faults() -> dict[str, str]:
    """The switches of the model with their words."""
    text = (FOLDER / "Lifecycle.tla").read_text(encoding="utf-8")
    return dict(re.findall(r'^    "(\w+)",? +\\\* (.+)$', text, re.MULTILINE))


def arrows() -> set[tuple[str, str, str, str]]:
    """The transition table of the model."""
    text = (FOLDER / "Lifecycle.tla").read_text(encoding="utf-8")
    return set(re.findall(r'<<"(T\d+)", "(\w+)", "(\w+)", "(\w+)">>', text))


def promises(name: str) -> list[str]:
    """The invariants that a configuration checks."""
    listed = configuration(name).partition("INVARIANTS")[2].split()
    return [promise for promise in listed if promise != "ShowArrows"]


def walk(names: Sequence[str]) -> dict[str, Outcome]:
    """The design as it is: all states of each configuration."""
    found = {}
    for name in names:
        found[name] = check(configuration(name), workers=os.cpu_count() or 1)
        words = "holds" if found[name].complete else "FAILS"
        print(f"{name}: {words}, {found[name].distinct:,} states", file=sys.stderr, flush=True)
    return found


def refute(pairs: Sequence[tuple[str, str]]) -> Refuted:
    """One run for each pair of a faulty design (or none) and what it must break."""

    def one(pair: tuple[str, str]) -> Outcome:
        switch, promise = pair
        base = REACHED.get(promise) or ("lock" if switch in ON_THE_LOCK else "owners")
        outcome = check(configuration(base, switch=switch, only=promise), workers=1)
        print(f"{switch or 'reached'}: {outcome.violated}", file=sys.stderr, flush=True)
        return outcome

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return dict(zip(pairs, pool.map(one, pairs), strict=True))


def is_refuted(refuted: Refuted, switch: str, promise: str) -> bool:
    return refuted[switch, promise].violated == promise


def untaken(walked: dict[str, Outcome]) -> set[tuple[str, str]]:
    """Arrows of the table that no run has taken: then the table would say more than was checked."""
    taken = {arrow for outcome in walked.values() for arrow in outcome.arrows}
    return {(source, target) for _, source, target, _ in arrows()} - taken


def report(walked: dict[str, Outcome], refuted: Refuted, seconds: float, command: str) -> str:
    """The section."""
    kept = promises(DESIGNS[0])
    switches = [switch for switch in BREAKS if (switch, BREAKS[switch][0]) in refuted]
    states = sum(outcome.distinct for outcome in walked.values())
    walking = sum(outcome.seconds for outcome in walked.values())
    lines = [
        "## Model of the registry\n",
        "TLC walked through every state of the TLA+ model, in which requests are delayed, doubled and"
        " reordered, answers get lost and a lease may lapse at any instant."
        f" {len(kept)} invariants are checked in {states:,} distinct states ({walking:.0f} s);"
        f" {len(switches)} faulty designs must each be refuted ({seconds - walking:.0f} s).\n",
        "| configuration | distinct states | depth | seconds | invariants |",
        "|---|---|---|---|---|",
    ]
    for name, outcome in walked.items():
        verdict = f"all {len(promises(name))} hold" if outcome.complete else "**FAIL**"
        broken = f": {outcome.violated}" if outcome.violated else ""
        lines.append(
            f"| {name} | {outcome.distinct:,} | {outcome.depth} | {outcome.seconds:.0f} | {verdict}{broken} |"
        )
    missing = sorted(untaken(walked))
    lines += [
        f"\nInvariants: {', '.join(kept)}.",
        f"\nNot vacuous: {len(arrows()) - len(missing)} of the table's {len(arrows())} arrows were"
        f" taken{f', **not {missing}**' if missing else ''}; TLC refuted"
        f" {_reached(refuted)}.\n",
        "| faulty design | what is wrong | refuted by (steps to it) | seconds |",
        "|---|---|---|---|",
        *(_row(refuted, switch) for switch in switches),
        f"\nRepeat: `{command}`; a counterexample: `python -m verify.model --variant noFence`.",
    ]
    return "\n".join(lines)


def _reached(refuted: Refuted) -> str:
    return ", ".join(
        f"{claim} ({refuted['', claim].steps} steps)"
        if is_refuted(refuted, "", claim)
        else f"**NOT {claim}**"
        for switch, claim in refuted
        if not switch
    )


def _row(refuted: Refuted, switch: str) -> str:
    found = {broken: outcome for (design, broken), outcome in refuted.items() if design == switch}
    by = ", ".join(
        f"{promise} ({outcome.steps})" if outcome.violated else f"**NOT by {promise}**"
        for promise, outcome in found.items()
    )
    took = sum(outcome.seconds for outcome in found.values())
    return f"| {switch} | {faults()[switch]} | {by} | {took:.1f} |"


def prove(short: bool) -> int:
    started = time.monotonic()
    switches = SHORT_SWITCHES if short else tuple(BREAKS)
    claims = list(REACHED)[:1] if short else list(REACHED)
    most = 1 if short else None
    pairs = [(switch, promise) for switch in switches for promise in BREAKS[switch][:most]]
    pairs += [("", claim) for claim in claims]
    walked = walk(SHORT_DESIGNS if short else DESIGNS)
    refuted = refute(pairs)
    command = f"python -m verify.model{' --short' if short else ''}"
    print(report(walked, refuted, time.monotonic() - started, command))
    kept = all(outcome.complete for outcome in walked.values()) and not untaken(walked)
    return 0 if kept and all(is_refuted(refuted, *pair) for pair in pairs) else 1


def show(switch: str) -> int:
    """Print how a faulty design breaks its first promise."""
    pair = (switch, BREAKS[switch][0])
    outcome = refute([pair])[pair]
    print(f"{switch}: {faults()[switch]}\n\n{tell(outcome.text)}\n")
    print(f"{outcome.violated} is violated." if outcome.violated else outcome.text)
    return 0 if outcome.violated == pair[1] else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verify.model")
    parser.add_argument("--short", action="store_true", help="one configuration, two variants")
    parser.add_argument("--variant", choices=BREAKS, help="print TLC's counterexample of one")
    options = parser.parse_args()
    try:
        java(), jar()
    except Missing as missing:
        print(f"## Model of the registry\n\n**NOT RUN: {missing}**")
        return NOT_RUN
    if options.variant:
        return show(options.variant)
    return prove(options.short)


if __name__ == "__main__":
    sys.exit(main())
