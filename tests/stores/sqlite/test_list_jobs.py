"""Listings of SQL stores: which of their jobs a statement has to look at."""

from pathlib import Path

import apsw
import pytest

from holdfast.core.access import Principal, Scope
from holdfast.core.state import State
from holdfast.ports import JobFilter, JobPage
from holdfast.stores import filters
from holdfast.stores.filters import RARE_STATES
from holdfast.stores.sqlite.statements import migrations, statement
from holdfast.testing.world import Opener, open_world
from tests.conftest import sqlite_store
from tests.stores.postgres.running_server import postgres_store

ASKED = ("queue", "queues", "regions", "kinds", "name", "states", "owner", "labels")


def plan(name: str, **asked: object) -> str:
    connection = apsw.Connection(":memory:")
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    for script in migrations():
        connection.execute(script)
    sql = f"EXPLAIN QUERY PLAN {statement(name)}"
    parameters = dict.fromkeys(ASKED) | {"after": 0, "until": 9, "rows": 5} | asked
    return "; ".join(row[-1] for row in connection.execute(sql, parameters))


@pytest.mark.parametrize("order", ["", "_newest"])
def test_rare_states_are_listed_by_their_index(order: str) -> None:
    listed = plan(f"list_rare_jobs{order}", state="failed")
    counted = plan(f"select_rare_bound{order}", state="failed")

    assert listed.startswith("SEARCH rare USING PRIMARY KEY (state=? AND seq"), listed
    assert counted.startswith("SEARCH rare USING PRIMARY KEY (state=? AND seq"), counted
    assert "TEMP B-TREE" not in listed + counted


@pytest.mark.parametrize("order", ["", "_newest"])
def test_all_jobs_are_listed_by_their_numbers(order: str) -> None:
    listed = plan(f"list_jobs{order}")

    assert listed.startswith("SEARCH state USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"), listed
    assert "TEMP B-TREE" not in listed


def test_the_migration_lists_the_rare_states() -> None:
    words = {f"'{state}'" for state in RARE_STATES}

    assert words == set(
        migrations()[3].split("INSERT INTO rare")[1].split("IN (")[1].split(")")[0].split(", ")
    )


@pytest.mark.parametrize("opener", [sqlite_store, postgres_store])
async def test_where_the_counts_tell_of_no_job_none_is_looked_at(
    opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "LIST_ROWS_MAX", 1)
    elsewhere = Principal("ana", frozenset({Scope.OBSERVE}), ("a*",), key_id="0" * 12)

    async with open_world(opener, tmp_path) as world:
        for n in range(4):
            await world.enqueue(f"job-{n}", queue="b1")

        for which in (
            JobFilter(viewer=elsewhere),
            JobFilter(viewer=elsewhere, queue="b1"),
            JobFilter(queue="zz"),
            JobFilter(states=(State.RUNNING,)),
        ):
            assert await world.store.list_jobs(which, after=None, limit=1) == JobPage((), None)
