"""Run a limit script and our verbs in turn on one store, and print one table.

Exit 1 when a gate is missed. `--quick` is smaller, and leaves out the 1,000,000 rows.
"""

import argparse
import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # verify/postgres_server.py

import postgres_run
import sqlite_run
from report import conclude

RUNS = {"sqlite": sqlite_run, "postgres": postgres_run}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=RUNS, default="sqlite")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    run = RUNS[asked.store]
    outcome = asyncio.run(run.main(run.QUICK if asked.quick else run.FULL))
    sys.exit(conclude(asked.store, outcome, quick=asked.quick))
