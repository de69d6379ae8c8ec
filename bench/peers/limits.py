"""The limit: a bare script that writes the rows we write, as durably, and nothing else; before and after
each round, so that what the machine itself does in between is seen."""

import asyncio
import tempfile
from itertools import count
from pathlib import Path

import postgres_run
import sqlite_limit
from peers.figures import BULK, DRAIN, Found
from postgres_setup import PostgresSetup

BATCH = 500
_numbers = count(1)


def sqlite(found: Found, jobs: int, ground_folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=ground_folder) as folder:
        rates = sqlite_limit.measure(Path(folder) / "limit.db", jobs=jobs, batch=BATCH)
    found.add(BULK, rates.enqueue)
    found.add(DRAIN, rates.drain)


def postgres(found: Found, jobs: int, setup: PostgresSetup) -> None:
    schema = f"limit_{next(_numbers)}"
    url = asyncio.run(setup.schema(schema))
    order = {"url": url, "batch": BATCH}
    share = jobs // postgres_run.PROCESSES
    try:
        made = postgres_run.measure_step(setup, "bare_enqueue", {**order, "jobs": share})
        found.add(BULK, made.rate)
        found.add(DRAIN, postgres_run.measure_step(setup, "bare_drain", order).rate)
    finally:
        setup.drop(schema)
