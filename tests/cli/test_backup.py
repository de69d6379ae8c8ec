"""`holdfast backup` and `restore`, and the fencing of owners from before the restore."""

import json
from pathlib import Path

from holdfast.core.state import State
from tests.cli.command_line import CommandLine


def test_a_restored_store_has_the_jobs_and_fences_off_old_owners(cli: CommandLine, tmp_path: Path) -> None:
    job_id = cli.submit()
    grant = cli.claim(job_id)
    copy, other = tmp_path / "copy.db", f"sqlite:///{tmp_path / 'other.db'}"

    assert cli.run("backup", str(copy)).stdout.startswith(f"Wrote {copy}, ")
    words = cli.run("restore", str(copy), "--store", other).stdout
    assert "Restored 1 job to" in words
    assert "an owner held it: 1 job." in words
    shown = json.loads(cli.run("status", "--json", job_id, "--store", other).stdout)
    assert shown["state"] == "queued"
    assert shown["fencing_token"] >= grant.fencing_token + 2**40
    assert cli.state(job_id) is State.ASSIGNED


def test_nothing_is_overwritten_without_force(cli: CommandLine, tmp_path: Path) -> None:
    job_id, copy = cli.submit(), str(tmp_path / "copy.db")
    cli.run("backup", copy)

    assert "exists already" in cli.run("backup", copy, code=4).stderr
    assert "--force" in cli.run("restore", copy, code=4).stderr
    cli.run("cancel", job_id)
    cli.run("restore", "--force", copy)
    assert cli.state(job_id) is State.QUEUED
    cli.run("restore", str(tmp_path / "nothing"), code=2)
