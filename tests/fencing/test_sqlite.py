"""Fences in the SQLite transaction of the write, by two drivers."""

import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.core.errors import Conflict, Fenced, Invalid
from holdfast.fencing import Fence, sqlite

WRITE = "INSERT INTO payment (account, token) VALUES ('account-17', {})"
PAYMENTS = "CREATE TABLE payment (n {} PRIMARY KEY, account text, token {})"
TOKENS = "SELECT token FROM payment ORDER BY n"
HUGE = 2**63 - 1


def fence(token: int, resource: str = "account-17", lock: str | None = "account-17") -> Fence:
    return Fence(resource=resource, token=token, job_id="job-1", lock=lock)


class File:
    """An SQLite file with a table of payments, and connections of one driver to it."""

    def __init__(self, path: Path, driver: str) -> None:
        self.path = path
        self.driver = driver
        with self.opened() as connection:
            sqlite.install(connection)
            sqlite.install(connection)
            connection.execute(PAYMENTS.format("INTEGER", "INTEGER"))

    @contextmanager
    def opened(self) -> Iterator[Any]:
        if self.driver == "sqlite3":
            connection: Any = sqlite3.connect(self.path, timeout=60)
        else:
            connection = apsw.Connection(str(self.path))
            connection.set_busy_timeout(60_000)
        try:
            yield connection
        finally:
            connection.close()

    def pay(self, *fences: Fence) -> None:
        """One payment under each fence, in one transaction."""
        with self.opened() as connection:
            if self.driver == "apsw":
                connection.execute("BEGIN IMMEDIATE")
            with connection:
                for one in fences:
                    sqlite.admit(connection, one)
                    connection.execute(WRITE.format(one.token))
            if self.driver == "apsw":
                connection.execute("COMMIT")

    def tokens(self) -> list[int]:
        with self.opened() as connection:
            return [token for (token,) in connection.execute(TOKENS)]


@pytest.fixture(params=["sqlite3", "apsw"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> File:
    return File(tmp_path / "payments.db", request.param)


def test_sqlite_takes_rising_tokens_and_refuses_stale_ones(file: File) -> None:
    for token in (41, 41, 43):
        file.pay(fence(token))
    with pytest.raises(Fenced, match="Token 42 is stale: account-17 has seen token 43"):
        file.pay(fence(42))
    with pytest.raises(Conflict, match="one lock"):
        file.pay(fence(99, lock=None))
    file.pay(fence(1, "account-18", "account-18"))
    file.pay(fence(HUGE - 1))
    file.pay(fence(HUGE))
    with pytest.raises(Fenced):
        file.pay(fence(HUGE - 1))

    assert file.tokens() == [41, 41, 43, 1, HUGE - 1, HUGE]


def test_a_refused_transaction_writes_nothing_in_sqlite(file: File) -> None:
    file.pay(fence(43))
    with pytest.raises(Fenced):
        file.pay(fence(1, "account-18", "account-18"), fence(42))

    assert file.tokens() == [43]
    file.pay(fence(1, "account-18", "account-18"))  # its mark was undone as well


def test_a_mark_in_sqlite_says_when_it_was_last_seen(file: File) -> None:
    file.pay(fence(1))
    with file.opened() as connection:
        connection.execute("UPDATE holdfast_mark SET seen_at = '2020-01-01T00:00:00Z'")
        connection.commit() if file.driver == "sqlite3" else None
    file.pay(fence(1))
    with file.opened() as connection:
        [(seen_at,)] = connection.execute("SELECT seen_at FROM holdfast_mark").fetchall()

    assert seen_at > "2026"


@pytest.mark.parametrize("setting", ["row_factory", "text_factory"])
def test_rows_of_another_shape_are_understood(setting: str, tmp_path: Path) -> None:
    file = File(tmp_path / "payments.db", "sqlite3")
    file.pay(fence(43))
    with file.opened() as connection:
        if setting == "row_factory":
            connection.row_factory = lambda cursor, row: {"all": row}
        else:
            connection.text_factory = bytes
        with pytest.raises(Fenced, match="has seen token 43"):
            sqlite.admit(connection, fence(42))
        with pytest.raises(Conflict, match="tokens of lock:account-17,"):
            sqlite.admit(connection, fence(42, lock=None))


def test_a_file_without_marks_is_said(tmp_path: Path) -> None:
    plain = sqlite3.connect(tmp_path / "plain.db")
    with pytest.raises(Invalid, match="install"):
        sqlite.admit(plain, fence(1))
    plain.close()


def test_sqlite_is_asked_inside_a_transaction_only(tmp_path: Path) -> None:
    file = File(tmp_path / "payments.db", "apsw")
    with file.opened() as connection, pytest.raises(Invalid, match="Begin a transaction"):
        sqlite.admit(connection, fence(1))
    plain = sqlite3.connect(file.path, isolation_level=None)
    with pytest.raises(Invalid, match="Begin a transaction"):
        sqlite.admit(plain, fence(1))
    plain.execute("BEGIN")
    sqlite.admit(plain, fence(1))
    plain.close()
    with pytest.raises(Invalid, match="whole number"):
        file.pay(fence(0))


def test_writers_that_race_for_a_file_never_go_back(file: File) -> None:
    refused = []

    def write(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(15):
            token = chance.randrange(1, 30)
            try:
                file.pay(fence(token))
            except Fenced:
                refused.append(token)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    tokens = file.tokens()
    assert tokens == sorted(tokens)
    assert len(tokens) + len(refused) == 90
    assert refused
