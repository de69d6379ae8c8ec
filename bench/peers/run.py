"""Measure holdfast beside other job systems, all in one run, and write down what each reached.

PYTHONPATH=src python bench/peers/run.py [--table] [--quick] [--only NAME]... [--out FOLDER]
    [--before REVISION | --no-before] [--snapshot-seconds SECONDS]

`--table` measures only what the table of issue 21 needs, in twenty minutes, with `--quick` in under ten.
"""

import argparse
import faulthandler
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Event

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]  # peers, and verify/postgres_server.py

import report  # noqa: E402
from environments import GO, NODE, Environment, NotInstalled, ensure, ensure_node  # noqa: E402
from peers import comparison, limits, verdicts  # noqa: E402
from peers.before import BEFORE, REVISION, earlier  # noqa: E402
from peers.budget import Budget  # noqa: E402
from peers.figures import BULK, DEFAULT_DRAIN, DRAIN, LONG_DRAIN, RECOVERY, Found, behind  # noqa: E402
from peers.measurements import Measurements, attempt  # noqa: E402
from peers.outcome import Entry, Outcome  # noqa: E402
from peers.page import write  # noqa: E402
from peers.plan import Plan  # noqa: E402
from peers.size import FULL, QUICK  # noqa: E402
from peers.soak import soak  # noqa: E402
from peers.systems import OURS, PROGRAMS, SYSTEMS, System  # noqa: E402
from postgres_setup import PostgresSetup  # noqa: E402
from servers import Kind, Servers  # noqa: E402

CACHE = HERE.parents[1] / ".venv" / "peers"
RESULTS = HERE.parent / "results"
AFTER_SOAK_SECONDS = 45.0
RECOVERIES_APART = 2.0
CONNECTIONS = "500"
ROUND_SECONDS, LONG_SECONDS, CLAIMS_SECONDS = 60.0, 30.0, 75.0

Act = Callable[[System, Environment, Found], None]


class Show:
    """One run: environments, rounds, what the table of issue 21 needs beside them, and where the whole is
    asked for, claims, and at the end the soak with the recoveries."""

    def __init__(self, outcome: Outcome, measurements: Measurements) -> None:
        self._outcome, self._measurements, self._budget = outcome, measurements, outcome.budget

    def play(self, *, whole: bool = True) -> None:
        with self._budget.part("rounds"):
            for number in range(1, self._measurements.size.rounds + 1):
                self._limits(f"limit, before round {number}")
                self._each(f"round {number}", ROUND_SECONDS, self._measurements.one_round, BULK, DRAIN)
                self._default_drains(f"round {number}")
                self._limits(f"limit, after round {number}")
        with self._budget.part("long drains"):
            self._each("long drain", LONG_SECONDS, self._measurements.long_drain, LONG_DRAIN)
        with self._budget.part("beside a snapshot"):
            turns = [(e.system, e.environment, e.found) for e in self._compared() if e.environment]
            comparison.beside_snapshots(self._measurements, turns, self._budget.say)
        with self._budget.part("beside a crowd"):
            for entry in self._holdfasts():
                comparison.crowd(self._measurements, entry.system, _ready(entry), entry.found)
                self._budget.say(f"crowd: {entry.system.title}: {_latest(entry.found, 'claim_queued_ms')} ms")
        if whole:
            self._rest()

    def _rest(self) -> None:
        with self._budget.part("claims"):
            names = [behind(level) for level in self._measurements.size.levels]
            self._each("claims", CLAIMS_SECONDS, self._measurements.claims, *names)
        with self._budget.part("soak and recoveries"):
            self._last()

    def _compared(self) -> list[Entry]:
        """Those of which the table of issue 21 speaks."""
        return [
            entry
            for entry in self._outcome.entries
            if entry.system.name in verdicts.NAMES and entry.system.variant not in verdicts.LEFT_OUT
        ]

    def _holdfasts(self) -> list[Entry]:
        return [e for e in self._compared() if e.system.name in (OURS, BEFORE) and e.environment]

    def _default_drains(self, words: str) -> None:
        for entry in self._holdfasts():
            comparison.default_drain(self._measurements, entry.system, _ready(entry), entry.found)
            told = _latest(entry.found, DEFAULT_DRAIN)
            self._budget.say(f"{words}, without options: {entry.system.title}: {told}")

    def _limits(self, words: str) -> None:
        measurements, jobs = self._measurements, self._measurements.size.limit_jobs
        for kind, found in self._outcome.limits.items():
            if kind == "SQLite":
                attempt(found, [BULK, DRAIN], limits.sqlite, found, jobs, measurements.folder)
            else:
                attempt(found, [BULK, DRAIN], limits.postgres, found, jobs, measurements.setup)
            self._budget.say(f"{words}, {kind}: {_latest(found, DRAIN)}")

    def _each(self, words: str, seconds: float, act: Act, *names: str) -> None:
        """One after the other, all of them before anybody's next turn."""
        for entry in self._outcome.entries:
            system, found, environment = entry.system, entry.found, entry.environment
            if environment is None:
                continue
            if not self._budget.room(seconds):
                for name in names:
                    found.lack(name, "not run: the time was over")
                continue
            attempt(found, list(names), act, system, environment, found)
            told = ", ".join(f"{name} {_latest(found, name)}" for name in names)
            self._budget.say(f"{words}: {system.title}: {told}")

    def _last(self) -> None:
        """Recoveries are waits of idle processes: they all take place during the soak."""
        measurements, entries = (
            self._measurements,
            [e for e in self._outcome.entries if e.environment],
        )
        ours = [(e.system, e.environment) for e in entries if e.system.ours and e.environment]
        leave = Event()
        if measurements.setup:
            measurements.setup.configure("checkpoint_timeout", "5min")
        with ThreadPoolExecutor(max(1, len(entries))) as pool:
            delay = measurements.size.soak_mark_seconds if ours else 0.0
            for n, entry in enumerate(entries):
                pool.submit(self._recover, entry, delay + n * RECOVERIES_APART, leave)
            try:
                self._outcome.soaks = soak(measurements, ours, self._budget.say)
            finally:
                leave.set()
        for entry in entries:
            self._budget.say(f"recovery: {entry.system.title}: {_latest(entry.found, RECOVERY)}")

    def _recover(self, entry: Entry, delay: float, leave: Event) -> None:
        time.sleep(delay)
        assert entry.environment
        self._measurements.recovery(entry.system, entry.environment, entry.found, leave)


def _ready(entry: Entry) -> Environment:
    assert entry.environment
    return entry.environment


def _latest(found: Found, name: str) -> str:
    values = found.figures.get(name)
    return f"{values[-1]:,.2f}" if values else found.missing.get(name, "nothing")


def install(outcome: Outcome, cache: Path) -> None:
    """Two at a time; a system that cannot be had is a row that says so."""
    missing = [entry for entry in outcome.entries if entry.environment is None and not entry.found.failures]
    by_key = {entry.system.key: entry.system for entry in missing}
    found: dict[str, Environment | NotInstalled] = {}

    def one(system: System) -> None:
        try:
            program = PROGRAMS / system.program
            if not program.exists():
                raise NotInstalled("there is no program for it")
            found[system.key] = ensure(program, system.key, system.packages, cache)
        except (NotInstalled, OSError, ValueError) as problem:
            found[system.key] = NotInstalled(str(problem))
        outcome.budget.say(f"installed {system.name}")

    with outcome.budget.part("installs"), ThreadPoolExecutor(2) as pool:
        if any(system.program.endswith(".mjs") for system in by_key.values()):
            try:
                ensure_node(cache)
            except (NotInstalled, ValueError) as problem:
                outcome.budget.say(f"Node: {problem}")
        list(pool.map(one, by_key.values()))
    for entry in missing:
        ready = found[entry.system.key]
        if isinstance(ready, Environment):
            entry.environment = ready
        else:
            entry.found.fail(f"not installed: {ready}")


def measure(plan: Plan, cache: Path) -> Outcome:
    """All of it. Whatever was started is gone afterwards."""
    size, systems = plan.size, plan.all
    kinds: set[Kind] = {system.store for system in systems}
    reserved = size.soak_seconds + AFTER_SOAK_SECONDS if plan.whole else 0.0
    outcome = Outcome(
        size,
        Budget(plan.seconds, reserved),
        [Entry(system) for system in systems],
        {kind: Found() for kind in ("SQLite", "PostgreSQL") if kind in kinds},
        whole=plan.whole,
    )
    outcome.budget.say(str(plan))
    with ExitStack() as stack:
        if plan.before and any(system.revision for system in systems):
            check_out(outcome, plan.before, stack)
        install(outcome, cache)
        folder = Path(tempfile.mkdtemp(prefix=".run-peers-", dir=HERE.parent))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        setup = None
        if "PostgreSQL" in kinds:
            setup = PostgresSetup()
            setup.server.settings["max_connections"] = CONNECTIONS
            stack.enter_context(setup)
        servers = stack.enter_context(Servers(setup))
        Show(outcome, Measurements(servers, setup, folder, size)).play(whole=plan.whole)
        stores = ", ".join(f"{name} {value}" for name, value in servers.versions.items())
    outcome.about = report.machine(report.Outcome("stores", stores, [], []))
    if any(system.program.endswith(".mjs") for system in systems):
        outcome.about["node"] = NODE
    if any(system.program.endswith(".go") for system in systems):
        outcome.about["go"] = GO
    if plan.before:
        outcome.about["before"] = plan.before
    outcome.about["took"] = f"{outcome.budget.elapsed / 60:.1f} minutes"
    return outcome


def check_out(outcome: Outcome, revision: str, stack: ExitStack) -> None:
    """Both rows of before run in one environment."""
    entries = [entry for entry in outcome.entries if entry.system.revision]
    try:
        environment = stack.enter_context(earlier(revision))
    except (NotInstalled, OSError) as problem:
        for entry in entries:
            entry.found.fail(f"not installed: {problem}")
        return
    for entry in entries:
        entry.environment = environment
    outcome.budget.say(f"installed holdfast {revision}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="some systems")
    parser.add_argument("--table", action="store_true", help="only what the table of issue 21 needs")
    parser.add_argument("--quick", action="store_true", help="a little of everything")
    parser.add_argument("--before", default=REVISION, metavar="REVISION", help="another holdfast beside")
    parser.add_argument("--no-before", action="store_const", const=None, dest="before")
    parser.add_argument("--snapshot-seconds", type=float, metavar="SECONDS", help="issue 21 asks for 1800")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where environments are kept")
    parser.add_argument("--out", type=Path, help="where the page goes, even of a part")
    arguments = parser.parse_args()
    names = [name.lower() for name in arguments.only]
    systems = [system for system in SYSTEMS if not names or system.name.lower() in names]
    if arguments.table and not names:
        systems = [s for s in SYSTEMS if s.name in verdicts.NAMES and s.variant not in verdicts.LEFT_OUT]
    if not systems:
        parser.error(f"no such system; there are {', '.join(sorted({s.name for s in SYSTEMS}))}")
    size = QUICK if arguments.quick else FULL
    if arguments.snapshot_seconds is not None:
        size = replace(size, snapshot_seconds=arguments.snapshot_seconds)
    plan = Plan(systems, size, not arguments.table, arguments.before)
    faulthandler.dump_traceback_later(2 * plan.seconds, exit=True)  # every step has its own limit
    outcome = measure(plan, arguments.cache)
    whole = not (arguments.quick or names)
    print(write(outcome, arguments.out or (RESULTS if whole else None)))
    for failure in outcome.failures:
        print(f"failed: {failure}", file=sys.stderr)
    return int(bool(outcome.failures))


if __name__ == "__main__":
    sys.exit(main())
