"""The store of a worker with an app: which one is used where code, variable and flag name several."""

from pathlib import Path

import pytest

from holdfast import Client
from tests.cli.command_line import CommandLine

APP = """\
import holdfast

app = holdfast.App("sqlite:///own.db")


@app.job
def parent() -> None:
    child.enqueue()


@app.job
def child() -> None: ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop.py").write_text(APP, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_worker_says_that_the_code_of_its_app_overrides_the_variable(
    cli: CommandLine, folder: Path
) -> None:
    done = cli.process("worker", "shop:app", "--drain")

    told = " ".join(done.stderr.decode().split())
    assert done.returncode == 0
    assert told.count("The store is sqlite:///own.db, as the code says; HOLDFAST_STORE=") == 1
    assert (folder / "own.db").exists()


def test_a_flag_overrides_both_for_the_handlers_too_without_a_word(cli: CommandLine, folder: Path) -> None:
    flagged = CommandLine(folder / "flagged")
    flagged.file.parent.mkdir()
    with Client(flagged.url) as client:
        parent = client.enqueue("parent").job.job_id

    done = cli.process("worker", "shop:app", "--drain", "--store", flagged.url)

    assert done.returncode == 0, done.stderr
    assert "HOLDFAST_STORE" not in done.stderr.decode()
    assert "HOLDFAST_STORE" not in flagged.run("logs", parent).stdout
    assert flagged.run("list").stdout.count("succeeded") == 2
    assert not (folder / "own.db").exists()
