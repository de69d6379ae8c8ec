"""What the migration from the schema of an earlier holdfast does on a store in use: its workers and client
work on, processes of this one are started beside them, and in the end every job is accounted for.

python bench/migration.py [--jobs N] [--store sqlite|postgres] [--save]
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # verify/postgres_server.py

import apsw

from environments import Environment
from migration_page import page
from migration_run import PLACES, Run, measure
from peers.before import REVISION, earlier
from report import HERE, Outcome, machine


def measured(stores: list[str], jobs: int) -> Iterator[Run]:
    """A run on each of these stores."""
    with earlier(REVISION) as before:
        python = Environment(before.command[:1], before.variables)
        for name in stores:
            with PLACES[name]() as place, tempfile.TemporaryDirectory(prefix="holdfast-migration-") as folder:
                yield measure(place, python, Path(folder), jobs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--store", choices=sorted(PLACES), action="append")
    parser.add_argument("--save", action="store_true")
    asked = parser.parse_args()
    version = f"SQLite {apsw.sqlite_lib_version()}, PostgreSQL 15"
    runs, text = [], ""
    for run in measured(asked.store or sorted(PLACES), asked.jobs):
        runs.append(run)
        text = page(runs, machine(Outcome("stores", version, [], [])))
        if asked.save:
            (HERE / "results" / "migration.md").write_text(text, encoding="utf-8")
    print(text)
    return int(any(run.findings.wrong for run in runs))


if __name__ == "__main__":
    sys.exit(main())
