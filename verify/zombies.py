"""The zombie test as a section of the proofs: `python -m verify.zombies [--short]`."""

import argparse
import sys
from collections.abc import Sequence

from verify.environment import CANNOT_RUN, say
from verify.loop_disk import Forbidden
from verify.zombie import Result, details, figures, run
from verify.zombie_pool import OWNERS
from verify.zombie_resources import ASKED, CHECKED, UNCHECKED
from verify.zombie_setup import STORES

FREEZES, FREEZES_SHORT = 1000, 12


def section(results: Sequence[Result], *, short: bool) -> str:
    names = " | ".join(result.store for result in results)
    verbs = dict.fromkeys(verb for result in results for verb in result.verdict.verbs)
    lines = [
        "## Zombies",
        "",
        f"{OWNERS} owners that trust nobody and look at no clock work on one store under leases of one"
        " second, and are frozen (SIGSTOP of the process group) at random instants. When a successor has"
        " the job, and mostly has written, they are thawed and go on with their old grant: writes to"
        " three ledgers, heartbeats with progress, output, every ending. A ledger that compares tokens"
        " must never go back, one that does not must show the damage.",
        "",
        f"| | {names} |",
        f"|---|{'---:|' * len(results)}",
        *(_row(what, values) for what, values in _figures(results).items()),
        "",
        "What stale owners tried at the registry (tried / refused), each recorded as"
        " `job_stale_write_rejected`:",
        "",
        f"| | {names} |",
        f"|---|{'---:|' * len(results)}",
        *(_row(verb, [_verb(result, verb) for result in results]) for verb in verbs),
        "",
        "And with real workers, each of worker, warden and runner:",
        "",
        *(f"- {s.store}, {s.name}: {_seen(s.seen, s.trouble)}." for r in results for s in r.scenarios),
        "",
        *(f"**{figures(result)}** {details(result)}\n" for result in results),
    ]
    troubles = [trouble for result in results for trouble in result.troubles]
    lines += [f"- **wrong**: {trouble}" for trouble in troubles[:20]]
    seconds = sum(result.seconds for result in results)
    verdict = "DOES NOT HOLD" if troubles else "holds"
    form = " --short" if short else ""
    return "\n".join([*lines, f"`python -m verify.zombies{form}`, {seconds:.0f} s: **{verdict}**"])


def _figures(results: Sequence[Result]) -> dict[str, list[str]]:
    found = [result.verdict for result in results]
    rows: dict[str, list[int]] = {
        "freezes that outlived their lease": [one.freezes for one in found],
        "of them told that the job is no longer theirs": [one.learned for one in found],
        "frozen, and nobody could be granted the job before the thaw": [o.futile for o in found],
        "jobs, each succeeded once with its last owner's result": [one.jobs for one in found],
    }
    for name, words in (
        (UNCHECKED, "no check"),
        (CHECKED, "tokens compared"),
        (ASKED, "compared, and the registry asked"),
    ):
        ledgers = [one.ledgers[name] for one in found]
        rows[f"{words}: stale writes attempted"] = [one.attempted for one in ledgers]
        rows[f"{words}: refused"] = [one.refused for one in ledgers]
        rows[f"{words}: **accepted behind a successor's**"] = [one.back for one in ledgers]
        rows[f"{words}: came before the successor's first write"] = [one.early for one in ledgers]
        rows[f"{words}: under way before the successor's grant"] = [o.under_way for o in ledgers]
    return {what: [f"{value:,}" for value in values] for what, values in rows.items()}


def _verb(result: Result, verb: str) -> str:
    tried, refused = result.verdict.verbs.get(verb, (0, 0))
    return f"{tried:,} / {refused:,}"


def _row(what: str, values: Sequence[str]) -> str:
    return f"| {what} | {' | '.join(values)} |"


def _seen(seen: str, trouble: str) -> str:
    return f"**{' '.join(trouble.split())[:300]}**" if trouble else seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a dozen freezes on each store")
    short = parser.parse_args().short
    try:
        results = [run(kind, FREEZES_SHORT if short else FREEZES, say) for kind in STORES]
    except Forbidden as error:
        print(f"## Zombies\n\n**NOT PROVED ON THIS MACHINE.** {error}")
        return CANNOT_RUN
    print(section(results, short=short))
    return 1 if any(result.troubles for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
