"""kill -9 at every failpoint and at random instants under load: nothing acknowledged is lost.

`python -m verify.kills` kills at several passings of each failpoint and 500 times at random, and
prints one section; `--short` kills once at each, and 20 times.
"""

import ast
import json
import sys
import tempfile
import time
import timeit
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from holdfast.failpoint import failpoint
from verify.environment import say
from verify.kills_harness import ROOT, ForkedProcesses
from verify.kills_runs import (
    PROCESSES,
    Load,
    Tally,
    chosen,
    control,
    control_under_load,
    kill_at_failpoints,
    rehearse,
)

SOURCE = ROOT / "src" / "holdfast"
RANDOM_KILLS, RANDOM_KILLS_SHORT, CONTROL_KILLS = 500, 20, 60
SEED = 28


class Results(Struct, frozen=True, kw_only=True):
    """Everything the section is made of."""

    unpassed: list[str]
    names: int
    at_failpoints: Tally
    under_load: Load
    documents: Counter[str]
    documents_status: int
    controls: list[Tally]
    seconds: float

    @property
    def holds(self) -> bool:
        tallies = (self.at_failpoints, self.under_load.tally)
        whole = not any(tally.lost or tally.wrong for tally in tallies)
        seen = all(tally.lost for tally in self.controls)
        return whole and seen and not self.unpassed and not self.documents_status


def failpoints() -> Counter[str]:
    """The failpoints that the code names, and how often it names each."""
    sources = [path.read_text("utf-8") for path in SOURCE.rglob("*.py")]
    return Counter(
        argument.value
        for source in sources
        if "failpoint(" in source
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "failpoint"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    )


def nanoseconds() -> float:
    """What a failpoint costs that nobody has armed, beside an empty loop."""
    rounds = 300_000

    def fastest(call: Callable[[], None]) -> float:
        return min(timeit.repeat(call, timer=time.process_time, number=rounds, repeat=7))

    return (fastest(lambda: failpoint("sqlite.begun")) - fastest(lambda: None)) / rounds * 1e9


def run(root: Path, *, short: bool) -> Results:
    started_at = time.monotonic()
    with ForkedProcesses() as processes:
        passed = rehearse(processes, root)
        at_failpoints = kill_at_failpoints(processes, root, chosen(passed, short=short))
        load = Load(processes, root / "load", SEED)
        load.run(RANDOM_KILLS_SHORT if short else RANDOM_KILLS)
        deaths, status = crash_documents(processes, root, short=short)
        say(f"{deaths.total()} deaths of the document store")
        controls = [control(processes, root)]
        if not short:
            controls.append(control_under_load(processes, root, CONTROL_KILLS))
    names = {name: at for name, at in failpoints().items() if not name.startswith("postgres.")}
    return Results(
        unpassed=sorted(names.keys() - deaths.keys() - set().union(*passed.values())),
        names=len(names),
        at_failpoints=at_failpoints,
        under_load=load,
        documents=deaths,
        documents_status=status,
        controls=controls,
        seconds=time.monotonic() - started_at,
    )


def crash_documents(processes: ForkedProcesses, root: Path, *, short: bool) -> tuple[Counter[str], int]:
    """Let the document store crash at its failpoints, in memory: deaths at each, and exit status."""
    folder = root / "documents"
    folder.mkdir()
    status = processes.ended(processes.start(f"{'some' if short else 'all'}_documents", folder))
    if status:
        return Counter(), status
    return Counter(json.loads((folder / "deaths").read_text("ascii"))), 0


def section(results: Results, *, short: bool) -> str:
    points, load = results.at_failpoints, results.under_load
    rows = [
        ("processes killed", points.kills, f"{load.tally.kills} + {load.fused} at any failpoint"),
        ("", f"{points.inside} inside a commit or checkpoint", f"{load.at_once} times all at once"),
        ("operations acknowledged", points.acknowledged, load.tally.acknowledged),
        ("**acknowledged and lost**", len(points.lost), len(load.tally.lost)),
        ("stores opened again and verified", points.verified, load.tally.verified),
        ("transitions, each with its one event", points.transitions, load.tally.transitions),
        ("anything else wrong", len(points.wrong), len(load.tally.wrong)),
        ("leases of the dead that ran out", points.crashes, load.tally.crashes),
        ("jobs brought to their end afterwards", points.brought, load.tally.brought),
    ]
    table = "\n".join(f"| {what} | {one} | {two} |" for what, one, two in rows)
    words = ("lost at a failpoint", "under load")
    controls = ", ".join(f"{len(t.lost)} {w}" for t, w in zip(results.controls, words, strict=False))
    trouble = [*points.lost, *points.wrong, *load.tally.lost, *load.tally.wrong]
    trouble += [f"never passed: {name}" for name in results.unpassed]
    return f"""## Kill -9

A process is killed at every failpoint of the code, and between the writes and syncs of a commit and of
a checkpoint; then at random instants, while {PROCESSES} processes submit and work on one SQLite file. Nothing
that was acknowledged is lost, every record is the fold of its log, and what the dead held is finished
by others, never before its lease has ended.

| | at failpoints | at random under load |
|---|---|---|
{table}

Failpoints passed: {results.names - len(results.unpassed)} of {results.names}. {len(results.documents)} \
of them are the document store's; over objects in memory it died there {results.documents.total()} times:
{"nothing lost" if not results.documents_status else "**FAILED**"}.
Control, processes that acknowledge before they are answered: {controls}
(none would mean that the checker is blind). An unarmed failpoint costs {nanoseconds():.0f} ns.

{"".join(f"- **wrong**: {line}{chr(10)}" for line in trouble[:20])}\
`python -m verify.kills{" --short" if short else ""}`, {results.seconds:.0f} s: \
**{"holds" if results.holds else "DOES NOT HOLD"}**
"""


def main() -> int:
    short = "--short" in sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="holdfast-kills-") as root:
        results = run(Path(root), short=short)
    print(section(results, short=short))
    return 0 if results.holds else 1


if __name__ == "__main__":
    sys.exit(main())
