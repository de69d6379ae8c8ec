"""The second line of an error: advice that fits what was typed, or none."""

import socket
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from holdfast.core.errors import Denied, NotFound, Unavailable
from holdfast.server.rest.problems import problem
from holdfast.wire.errors import connect_error, error_detail, error_from_connect
from tests.cli.command_line import CommandLine
from tests.cli.outputs_command_line import OutputsCommandLine
from tests.stores.postgres.running_server import guard, server


@pytest.fixture
def fresh() -> str:
    """The URL of a database without tables."""
    name = f"fresh_{uuid4().hex[:12]}"
    server().create_database(name)
    return server().url(name)


def advised(cli: CommandLine, *typed: str, code: int) -> str:
    """The line after the error."""
    first, *rest = cli.run(*typed, code=code).stderr.splitlines()
    assert first.startswith("Error: ")
    return "\n".join(rest)


def test_a_doctor_examines_a_postgresql_that_has_no_tables_yet(cli: CommandLine, fresh: str) -> None:
    lines = cli.run("doctor", "--store", fresh).stdout.splitlines()
    report = msgspec.json.decode(cli.run("doctor", "--json", "--store", fresh).stdout)

    assert [line.split()[:2] for line in lines[:5]] == [
        ["good", "store"],
        ["good", "version"],
        ["note", "schema"],
        ["good", "durability"],
        ["note", "durability"],
    ]
    assert lines[2] == (
        "note     schema      There are no tables yet in schema holdfast."
        " The first command that writes makes them: holdfast submit, worker or serve"
    )
    assert "good     privileges  postgres may make the tables." in lines
    assert lines[-1] == "This store keeps what it acknowledges."
    assert (report["faults"], report["warnings"]) == (0, 0)


def test_the_first_command_that_writes_makes_the_tables(cli: CommandLine, fresh: str) -> None:
    cli.run("doctor", "--store", fresh)
    cli.run("list", "--store", fresh, code=3)

    cli.run("submit", "--store", fresh, "--", "true")

    said = cli.run("doctor", "--store", fresh).stdout.splitlines()
    assert any(line.startswith("good     schema      Schema ") for line in said)
    assert any(line.endswith(" 1 live job, 0 ended.") for line in said)


def test_a_doctor_sees_that_a_user_may_not_make_the_tables(cli: CommandLine, fresh: str) -> None:
    database = fresh.rpartition("/")[2].partition("?")[0]
    server().sql("DO $$ BEGIN CREATE ROLE visitor LOGIN; EXCEPTION WHEN others THEN END $$;")

    said = cli.run("doctor", "--store", fresh.replace("postgres@", "visitor@"), code=1).stdout

    assert f"GRANT CREATE ON DATABASE {database} TO visitor;" in said
    assert said.splitlines()[-1].startswith("1 fault: visitor may not make the tables.")


@pytest.mark.parametrize(
    "typed", [("list",), ("status", "x"), ("why", "x"), ("verify",), ("events",), ("keys", "list")]
)
def test_no_folder_is_advised_where_the_store_is_a_database(
    cli: CommandLine, fresh: str, typed: tuple[str, ...]
) -> None:
    told = advised(cli, *typed, "--store", fresh, code=3)

    assert told == (
        "Check database and schema in the URL. If they are right, the tables are made with the first"
        " job: holdfast submit -- echo hello"
    )


def test_a_file_that_is_not_there_may_be_in_another_folder(cli: CommandLine) -> None:
    assert advised(cli, "list", code=3).startswith("Go to its folder, name it")


def test_a_password_with_a_slip_is_to_be_checked_not_asked_for(cli: CommandLine, fresh: str) -> None:
    guard("keeper", "sesame")
    url = fresh.replace("postgres@", "keeper:sesam@")

    told = advised(cli, "list", "--store", url, code=6)

    assert told == "Check user and password in the URL."


def test_a_database_that_is_not_there_is_to_be_created(cli: CommandLine) -> None:
    told = advised(cli, "list", "--store", server().url("nowhere"), code=2)

    assert told == "Check the URL; if it is right, create it: createdb nowhere"


@pytest.mark.parametrize("url", ["mysql://root@db/jobs", "jobs.db", "s3://bucket/jobs"])
def test_a_store_that_we_do_not_have_is_answered_with_those_that_we_have(cli: CommandLine, url: str) -> None:
    told = advised(cli, "list", "--store", url, code=2)

    for known in ("sqlite:///", "postgresql://", "http://", "memory://"):
        assert known in told


def test_a_port_in_use_is_not_a_matter_of_options(cli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        served = advised(cli, "serve", "--listen", place, code=2)
        counted = advised(cli, "worker", "--metrics", place, code=2)

    assert served == (
        "Stop what listens there, or listen at another address of this machine: --listen HOST:PORT"
    )
    assert counted == "Stop what listens there, or use another address: --metrics HOST:PORT"


def test_an_app_that_raises_on_import_is_to_be_tried_by_itself(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text("raise RuntimeError('no config')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    for app in ("shop:app", "nowhere:app"):
        done = cli.process("worker", app)
        module = app.partition(":")[0]
        assert done.returncode == 2
        assert done.stderr.decode().splitlines()[-1] == (
            f"Try it in the folder of the app: python -c 'import {module}'"
        )


def test_a_backup_of_a_served_store_is_made_where_it_is_served(cli: CommandLine) -> None:
    told = advised(cli, "backup", "copy.db", "--store", "http://127.0.0.1:8080", code=2)

    assert told.startswith("Run it on the server's machine, with --store")


def test_a_partial_success_cannot_be_overridden_and_the_way_there_is_said(tmp_path: Path) -> None:
    cli = OutputsCommandLine(tmp_path)
    cli.promise("a.txt", "b.txt")
    cli.leave("a.txt")
    cli.done("j")
    cli.validated(code=1)

    told = advised(cli, "validate", "j", "--override", "succeeded", "--reason", "seen", code=6)

    assert "the right" not in told
    assert "holdfast validate j --force" in told
    assert "holdfast resume j" in told


def test_a_server_passes_on_what_an_error_advises_but_nothing_of_what_it_hides() -> None:
    known = Denied("No.", advice="Look again: holdfast validate JOB")
    hidden = Unavailable("db.internal is away.", advice="Restart db.internal.")

    assert error_from_connect(connect_error(known)).advice == known.advice
    assert not error_from_connect(connect_error(NotFound("There is none."))).advised
    assert "internal" not in str(error_from_connect(connect_error(hidden)))
    assert "internal" not in error_detail(hidden).advice + problem(hidden).advice
