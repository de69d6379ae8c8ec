"""How often a function is tried: what a newcomer sees of the default."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.command_line import PROGRAM, SOURCE, CommandLine
from tests.worker.live_processes import stop, wait_until

APP = """
import holdfast
app = holdfast.App()

@app.job
def mail(to: str) -> None:
    raise ConnectionError("the mail server is away")
"""
SLOW = "mail-11"
"""A job whose first wait, which its id decides, is more than four seconds of at most five."""


@pytest.fixture
def mail_cli(cli: CommandLine, tmp_path: Path) -> CommandLine:
    (tmp_path / "shop.py").write_text(APP)
    cli.environment["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{SOURCE}"
    return cli


def test_a_mail_that_fails_is_tried_for_a_while_and_why_says_until_when(
    mail_cli: CommandLine, tmp_path: Path
) -> None:
    enqueue = f"import shop; shop.mail.configure(job_id={SLOW!r}).enqueue(to='ana'); shop.app.close()"
    subprocess.run([*PROGRAM[:1], "-c", enqueue], env=mail_cli.environment, check=True, timeout=60)
    with (tmp_path / "log").open("wb") as log_file:
        worker = subprocess.Popen(
            [*PROGRAM, "worker", "shop:app", "--name", "w1", "--spool", str(tmp_path / "spool")],
            env=mail_cli.environment,
            stderr=log_file,
        )
    try:
        wait_until(lambda: "failed" in (tmp_path / "log").read_text())
    finally:
        stop(worker)

    why = mail_cli.run("why", SLOW).stdout
    status = mail_cli.run("status", SLOW).stdout

    log = (tmp_path / "log").read_text()
    assert "attempt 1 of 10; next in 4." in log, log
    assert ": the mail server is away" in log.replace("ConnectionError: ", "")
    assert "(2 of 10), the last about " in why
    assert "1 of 10 failures, 0 of 5 crashes; then dead_letter" in status


def test_help_says_how_often_a_function_is_tried(cli: CommandLine) -> None:
    told = " ".join(cli.run("worker", "--help").stdout.split())

    assert "A function that fails is tried ten times within 20 minutes or so" in told
