"""`holdfast rebuild`: what it says and returns, on both stores, and when it refuses."""

import asyncio
import os
import pty
import subprocess
from pathlib import Path

import apsw
import asyncpg
import pytest

from tests.cli.command_line import PROGRAM, CommandLine
from tests.stores.postgres.open_stores import OwnSchema
from tests.stores.postgres.running_server import MAJOR, server
from tests.stores.rebuild_scenario import DERIVED

LISTS = "rows of queues, claims, alarms, counts and locks missing or wrong"


def wipe(file: Path) -> None:
    connection = apsw.Connection(str(file))
    connection.execute(";".join(f"DELETE FROM {table}" for table in DERIVED)).fetchall()
    connection.close()


def test_it_makes_the_records_of_a_file_again(cli: CommandLine) -> None:
    cli.finish(cli.submit("--job-id", "j1"))
    cli.submit("--job-id", "j2")
    assert cli.run("rebuild", "--check").stdout == "2 jobs: equal. Every record is what its log says.\n"
    wipe(cli.file)

    checked = cli.process("rebuild", "--check")
    made = cli.process("rebuild", "--yes")

    assert checked.returncode == 1
    found = f"2 records missing or damaged, 0 different, 4 {LISTS}.\n"
    assert checked.stdout.decode() == f"2 jobs: NOT equal: {found}"
    assert (made.returncode, made.stdout.decode()) == (0, f"2 jobs: made again. {found}")
    assert cli.run("rebuild", "--check").stdout == "2 jobs: equal. Every record is what its log says.\n"
    assert "2 jobs, 5 transitions, 5 transition events: equal." in cli.run("verify").stdout


def test_a_file_in_use_is_not_rebuilt(cli: CommandLine) -> None:
    cli.submit()
    user = apsw.Connection(str(cli.file))
    user.execute("BEGIN; SELECT count(*) FROM job").fetchall()

    assert "is in use: stop every worker" in cli.run("rebuild", "--yes", code=4).stderr
    assert cli.run("rebuild", "--check").stdout.startswith("1 job: equal.")
    user.close()
    cli.run("rebuild", "--yes")


def test_it_asks_on_a_terminal(cli: CommandLine) -> None:
    cli.submit("--job-id", "j1")
    wipe(cli.file)
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, "rebuild"], env=cli.environment, stdin=slave, stdout=slave, stderr=slave
    )

    os.write(master, b"n\n")
    assert process.wait(timeout=120) == 1
    assert b"[y/N]" in os.read(master, 65_536)
    assert cli.run("rebuild", "--check", code=1).stdout.startswith("1 job: NOT equal: 1 record missing")


@pytest.mark.parametrize(("url", "code"), [("memory://", 2), ("http://127.0.0.1:1", 2)])
def test_other_stores_cannot_be_rebuilt(cli: CommandLine, url: str, code: int) -> None:
    assert "cannot be rebuilt" in cli.run("rebuild", "--yes", "--store", url, code=code).stderr


def test_there_must_be_a_store(cli: CommandLine) -> None:
    cli.run("rebuild", "--yes", code=3)
    assert not cli.file.exists()


def test_it_makes_the_records_of_a_database_again(cli: CommandLine) -> None:
    own = OwnSchema(server(MAJOR))
    cli.environment["HOLDFAST_STORE"] = own.url
    cli.url = own.url
    cli.finish(cli.submit("--job-id", "j1"))
    cli.submit("--job-id", "j2")

    async def person(hold: bool) -> None:
        connection = await asyncpg.connect(own.server.url())
        async with connection.transaction():
            if hold:
                await connection.execute(f"DELETE FROM {own.schema}.ready")
                refused = await asyncio.to_thread(cli.process, "rebuild", "--yes")
                assert refused.returncode == 4
                assert b"in use: stop every worker" in refused.stderr
            for table in DERIVED:
                await connection.execute(f"DELETE FROM {own.schema}.{table}")
        await connection.close()

    assert cli.run("rebuild", "--check").stdout == "2 jobs: equal. Every record is what its log says.\n"
    asyncio.run(person(hold=True))
    checked, made = cli.process("rebuild", "--check"), cli.process("rebuild", "--yes")

    found = f"2 records missing or damaged, 0 different, 4 {LISTS}.\n"
    assert (checked.returncode, checked.stdout.decode()) == (1, f"2 jobs: NOT equal: {found}")
    assert (made.returncode, made.stdout.decode()) == (0, f"2 jobs: made again. {found}")
    assert "2 jobs, 5 transitions, 5 transition events: equal." in cli.run("verify").stdout
    cli.finish("j2")
