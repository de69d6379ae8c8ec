"""Several processes open a file at once: each waits its turn, and none is turned away."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from holdfast.core.errors import Unavailable
from holdfast.stores.sqlite import connection as connections
from holdfast.stores.sqlite.connection import connect
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.system import SystemIds

OPENERS = 4
ROUNDS = 40


@contextmanager
def beginner(path: Path, seconds: float) -> Iterator[None]:
    """Somebody else who brings a new file into WAL mode, and takes this long for it."""
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE").fetchall()
    begun = threading.Timer(seconds, lambda: other.execute("COMMIT").fetchall())
    begun.start()
    try:
        yield
    finally:
        begun.join()
        other.close()


def test_who_opens_a_file_that_another_begins_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with beginner(path, 0.2):
        started = time.monotonic()
        connection = connect(path, create=True)
        waited = time.monotonic() - started

    assert connection.pragma("journal_mode") == "wal"
    assert waited > 0.15
    connection.close()


def test_who_opens_a_file_waits_no_longer_than_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_SECONDS_MAX", 0.3)
    path = tmp_path / "jobs.db"
    with beginner(path, 1):
        started = time.monotonic()
        with pytest.raises(Unavailable, match="was busy"):
            connect(path, create=True)
        waited = time.monotonic() - started

    assert 0.3 < waited < 0.9


def test_a_file_that_appears_with_its_log_is_not_called_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.db"
    exists, others = Path.exists, list[apsw.Connection]()

    def exists_meanwhile(self: Path) -> bool:
        answer = exists(self)
        if not others:
            others.append(apsw.Connection(str(path)))
            others[0].pragma("journal_mode", "WAL")
            others[0].pragma("user_version", 0)
            assert exists(path.with_name("jobs.db-wal"))
        return answer

    monkeypatch.setattr(Path, "exists", exists_meanwhile)
    connection = connect(path, create=True)

    assert connection.pragma("journal_mode") == "wal"
    for one in (connection, *others):
        one.close()


async def test_any_number_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    for number in range(ROUNDS):
        path = tmp_path / f"jobs-{number}.db"
        opening = [SqliteStore.open(path, ids=SystemIds()) for _ in range(OPENERS)]
        stores = await asyncio.gather(*opening)
        secrets = {await store.secret() for store in stores}
        for store in stores:
            await store.close()
        assert len(secrets) == 1
