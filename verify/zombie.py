"""The zombie test: workers frozen beyond their leases, and what they can still do when they wake up.

`make zombie`, or `python -m verify.zombie [--freezes N] [--store sqlite|postgres]`. It ends with 1 if a
stale write was accepted where tokens are compared, and also if none was accepted where they are not:
a zombie test without zombies proves nothing.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from textwrap import fill

from msgspec import Struct

from verify.zombie_resources import ASKED, CHECKED, UNCHECKED
from verify.zombie_scenarios import Scenario, play, scenarios_of
from verify.zombie_setup import STORES, ZombieSetup, freeze, setups
from verify.zombie_verdict import Verdict

FREEZES = 100
SCENES_AT_ONCE = 2
SHOWN = 5
EVERY = 25
INTRODUCTION = """\
THE ZOMBIE TEST

A worker holds a job by a lease of one second and a token, a number that rises with every grant.
In the middle of its work it is frozen (SIGSTOP). When its lease has run out, another worker gets the
job under a higher token and does the work. Then the first one is thawed. It has noticed nothing, and
goes on: it writes, reports, and says that the job is done. (A lease counts from the last sign of life, so
an owner may be frozen for less than its length.)

All workers write to the same ledger, kept three times: one takes every write, one compares tokens in the
transaction that writes (holdfast.fencing), and one also asks the registry first. No token may come behind
a higher one. The first must show the damage, the other two must show none.
"""

Tell = Callable[[str], None]


class Result(Struct, frozen=True, kw_only=True):
    """The zombie test on one store."""

    store: str
    verdict: Verdict
    scenarios: Sequence[Scenario]
    seconds: float

    @property
    def troubles(self) -> list[str]:
        spoiled = [f"{scenario.name}: {scenario.trouble}" for scenario in self.scenarios if scenario.trouble]
        return [f"{self.store}: {trouble}" for trouble in (*self.verdict.troubles, *spoiled)]


def run(kind: str, freezes: int, tell: Tell) -> Result:
    """The pool of stubborn owners, then every scenario, on one store."""
    started_at = time.monotonic()
    with setups(kind) as new:
        verdict = freeze(new("pool"), freezes, told=Progress(freezes, tell))
        tell("")
        for line in table(verdict):
            tell(line)
        tell("")
        names = scenarios_of(kind)
        # Each on a setup of its own, made here: databases are made one at a time.
        scenarios = play_all([(name, new(f"scene_{n}")) for n, name in enumerate(names)], tell)
    return Result(
        store=STORES[kind],
        verdict=verdict,
        scenarios=scenarios,
        seconds=time.monotonic() - started_at,
    )


def play_all(todo: Sequence[tuple[str, ZombieSetup]], tell: Tell) -> list[Scenario]:
    """Most of their time they wait for a lease to end: two of them at a time."""
    scenarios = []
    with ThreadPoolExecutor(SCENES_AT_ONCE) as threads:
        for done in as_completed([threads.submit(play, name, setup) for name, setup in todo]):
            scenario = done.result()
            scenarios.append(scenario)
            tell(f"  {scenario.name}")
            tell(f"      {scenario.trouble and 'WRONG: '}{scenario.trouble or scenario.seen}")
    return scenarios


class Progress:
    """Tells of the first freezes one by one, then how many there were."""

    def __init__(self, freezes: int, tell: Tell) -> None:
        self._freezes = freezes
        self._tell = tell
        self._seen = 0

    def __call__(self, words: str) -> None:
        self._seen += 1
        if self._seen <= SHOWN:
            self._tell(f"  {words}")
        elif self._seen % EVERY == 0 or self._seen == self._freezes:
            self._tell(f"  {self._seen} of {self._freezes} owners frozen, replaced and thawed")


def table(found: Verdict) -> list[str]:
    """The ledgers side by side."""
    ledgers = [found.ledgers[name] for name in (UNCHECKED, CHECKED, ASKED)]
    rows = [
        ("stale writes attempted", [one.attempted for one in ledgers]),
        ("refused", [one.refused for one in ledgers]),
        ("accepted, behind a successor's", [one.back for one in ledgers]),
        ("came before the successor wrote", [one.early for one in ledgers]),
        ("were under way before its grant", [one.under_way for one in ledgers]),
    ]
    titles = ("takes every write", "compares tokens", "and asks first")
    head = " " * 36 + "".join(f"{title:>19}" for title in titles)
    return [head, *(f"  {what:<34}" + "".join(f"{n:>19,}" for n in ns) for what, ns in rows)]


def figures(result: Result) -> str:
    """The sentence that the test is made for."""
    found = result.verdict
    free, checked = found.ledgers[UNCHECKED], found.ledgers[CHECKED]
    return (
        f"{result.store}: {found.freezes:,} freezes, {checked.attempted:,} stale writes attempted,"
        f" {checked.refused:,} refused, {checked.back:,} accepted; without the check {free.back:,}"
        " accepted."
    )


def details(result: Result) -> str:
    """What else there is to say about these figures."""
    found = result.verdict
    checked, asked = found.ledgers[CHECKED], found.ledgers[ASKED]
    tried = sum(tried for tried, _ in found.verbs.values())
    refused = sum(refused for _, refused in found.verbs.values())
    return (
        f"{checked.early + checked.under_way:,} more came before their successor's first write, so that no"
        f" token went back. With the registry asked first: {asked.attempted:,} attempted,"
        f" {asked.refused:,} refused, {asked.early + asked.back:,} accepted. At the registry itself:"
        f" {tried:,} acts of stale owners, {refused:,} refused and on record."
        f" {found.learned:,} of {found.freezes:,} owners were told that the job is no longer theirs."
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verify.zombie", description=__doc__)
    parser.add_argument("--freezes", type=int, default=FREEZES, help="on each store")
    parser.add_argument("--store", choices=STORES, action="append", help="only this one")
    options = parser.parse_args()
    print(INTRODUCTION, flush=True)
    results = []
    for kind in options.store or STORES:
        print(f"{STORES[kind]}\n", flush=True)
        results.append(run(kind, options.freezes, lambda words: print(words, flush=True)))
        print(flush=True)
    for result in results:
        print(f"{figures(result)}\n{fill(details(result), 104)}\n")
    troubles = [trouble for result in results for trouble in result.troubles]
    for trouble in troubles[:20]:
        print(f"WRONG: {trouble}")
    seconds = sum(result.seconds for result in results)
    print(f"{'DOES NOT HOLD' if troubles else 'It holds'}, after {seconds:.0f} s.")
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
