"""Freeze a worker of every system in the middle of a job, and record what happens.

PYTHONPATH=src python bench/freeze/run.py [--quick] [--only NAME ...]
"""

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]  # freeze, and verify/postgres_server.py

from environments import Environment, NotInstalled, ensure  # noqa: E402
from freeze.page import Entry, page  # noqa: E402
from freeze.peers import PEERS, Peer  # noqa: E402
from freeze.scenario import Failed, Scenario, coordinate, freeze, opened_scenario  # noqa: E402
from freeze.verdict import verdict_of  # noqa: E402
from servers import Servers  # noqa: E402
from verify.postgres_server import Missing, ServerFailed  # noqa: E402

T = TypeVar("T")

CACHE = HERE.parents[1] / ".venv" / "freeze"
RESULTS = HERE.parent / "results" / "freeze.md"
SCENES = 3


class ScenarioRun:
    """Scenes of one system, each on a store and in a folder of its own, which are removed."""

    def __init__(self, peer: Peer, environment: Environment, servers: Servers, keep: Path | None) -> None:
        self._peer, self._environment, self._servers = peer, environment, servers
        self._keep = keep

    def scene(self, name: str, act: Callable[[Scenario], T]) -> T:
        folder = Path(tempfile.mkdtemp(prefix="freeze-"))
        try:
            with (
                self._servers.empty(self._peer.store, folder) as url,
                opened_scenario(self._peer, self._environment, url, folder) as scenario,
            ):
                return act(scenario)
        finally:
            if self._keep:
                place = self._keep / f"{self._peer.key}-{self._peer.store}-{name}"
                shutil.copytree(folder, place, dirs_exist_ok=True)
            shutil.rmtree(folder, ignore_errors=True)


def examine(peer: Peer, servers: Servers, cache: Path, scenes: int, keep: Path | None = None) -> Entry:
    """All scenes of one system. What goes wrong is told, and does not end the run."""
    try:
        environment = ensure(HERE / "programs" / peer.program, peer.key, peer.packages, cache)
    except NotInstalled as problem:
        return Entry(peer, problem=f"did not install: {problem}")
    play = ScenarioRun(peer, environment, servers, keep)
    settings = ""
    try:
        settings = str(play.scene("settings", lambda scenario: scenario.ask("settings")))
        frozen = [play.scene(f"freeze-{n}", freeze) for n in range(1, scenes + 1)]
        coordinated = play.scene("coordinator", coordinate) if peer.coordinator else None
    except (Failed, Missing, ServerFailed) as problem:
        print(problem, file=sys.stderr)
        line = str(problem).strip().splitlines()
        return Entry(peer, settings, problem=f"could not be tried: {line[0]} {line[-1]}"[:300])
    return Entry(peer, settings, verdict_of(peer, frozen, coordinated))


def about(servers: Servers, scenes: int, seconds: float) -> dict[str, str]:
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "stores": ", ".join(f"{name} {value}" for name, value in servers.versions.items()),
        "scenes": f"{scenes} of each system, one after the other, in {seconds:.0f} s",
        "repeat it": "`make freeze`",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="some systems")
    parser.add_argument("--quick", action="store_true", help="one scene of each; the page is printed only")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where environments are kept")
    parser.add_argument("--keep", type=Path, help="copy every scene's logs here")
    arguments = parser.parse_args()
    names = [name.lower() for name in arguments.only]
    peers = [peer for peer in PEERS if not names or peer.name.lower() in names]
    scenes, began_at, entries = 1 if arguments.quick else SCENES, time.monotonic(), []
    with Servers() as servers:
        for peer in peers:
            print(f"{time.monotonic() - began_at:4.0f} s  {peer.title}", file=sys.stderr, flush=True)
            try:
                entry = examine(peer, servers, arguments.cache, scenes, arguments.keep)
            except Exception as problem:
                traceback.print_exc()
                entry = Entry(peer, problem=f"could not be tried: {problem!r}"[:300])
            entries.append(entry)
            print(f"        {entry.verdict or entry.problem}", file=sys.stderr, flush=True)
        text = page(entries, about(servers, scenes, time.monotonic() - began_at))
    print(text)
    if not arguments.quick and not names:
        RESULTS.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
