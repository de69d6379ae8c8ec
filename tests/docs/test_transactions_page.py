"""The guide to jobs in a transaction: its functions, run as they stand there."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connections

from tests.docs.pages import ROOT, files
from tests.sdk import django_databases
from tests.stores.postgres.running_server import server

PAGE = (ROOT / "docs" / "transactions.md").read_text(encoding="utf-8")
DATABASE = "transactions_page"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names that the code of the page defines, with a database of its own."""
    server().create_database(DATABASE)
    monkeypatch.setenv("HOLDFAST_STORE", server().url(DATABASE))
    django_databases.configure(tmp_path)
    before = connections["default"].settings_dict["NAME"]
    connections["default"].settings_dict["NAME"] = DATABASE
    names: dict[str, Any] = {"__name__": "invoices"}
    exec(files(PAGE)["invoices.py"], names)
    yield names
    names["app"].close()
    names["engine"].dispose()
    connections.close_all()
    connections["default"].settings_dict["NAME"] = before
    server().drop_database(DATABASE)


def test_every_way_makes_its_row_and_its_job(page: dict[str, Any]) -> None:
    with psycopg.connect(page["URL"]) as connection:
        connection.execute("CREATE TABLE invoice (id bigint)")
    page["send"].enqueue(0)

    page["with_psycopg"]()
    page["with_a_session"]()
    asyncio.run(page["with_an_async_session"]())
    page["with_django"]()

    with psycopg.connect(page["URL"]) as connection:
        rows = connection.execute("SELECT id FROM invoice ORDER BY id").fetchall()
    jobs = page["app"].background.call(lambda client: client.registry.list_jobs(after=None, limit=9))
    assert [row[0] for row in rows] == [1, 2, 3, 4]
    assert [bytes(job.spec.payload) for job in jobs.jobs] == [b'{"invoice":%d}' % n for n in range(5)]
