"""Power cuts on a real file system, in short. The long form is `python -m verify.power_cuts`."""

import subprocess
import sys
import tempfile
from pathlib import Path

import apsw
import pytest

from verify import environment
from verify.environment import CANNOT_RUN
from verify.loop_disk import Forbidden
from verify.power_cuts import Tally, verdict

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_a_power_cut_loses_nothing_that_was_acknowledged() -> None:
    command = [sys.executable, "-m", "verify.power_cuts", "--short"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    if run.returncode == CANNOT_RUN:
        pytest.skip(f"NOT PROVED: NO POWER CAN BE CUT ON THIS MACHINE. {run.stdout}")
    assert run.returncode == 0, run.stdout + run.stderr


CONTROL = Tally("OFF", cuts=9, acknowledged=99, lost=9)


def test_cuts_without_a_loss_beside_a_control_that_loses_are_a_pass() -> None:
    assert not verdict([Tally("FULL", cuts=9, acknowledged=99), CONTROL], short=True)


@pytest.mark.parametrize(
    "full",
    [
        Tally("FULL", cuts=9, acknowledged=99, lost=1),
        Tally("FULL", cuts=9, acknowledged=99, damaged=1),
        Tally("FULL", cuts=9, acknowledged=0),
        Tally("FULL", cuts=9, acknowledged=99, crashes=["cut 1: a worker raised"]),
    ],
    ids=["a loss", "a damaged store", "nothing to lose", "a load that crashed"],
)
def test_anything_less_is_no_pass(full: Tally) -> None:
    assert verdict([full, CONTROL], short=True)


def test_a_control_that_loses_nothing_is_no_pass() -> None:
    full, control = Tally("FULL", cuts=9, acknowledged=99), Tally("OFF", cuts=9, acknowledged=99)

    assert "prove nothing" in verdict([full, control], short=True)[0]


def test_a_memory_folder_without_room_is_passed_over_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(environment, "room_mebibytes", lambda folder: 128 if folder == tmp_path else 64)

    with environment.scratch("cuts-", 96) as folder:
        assert folder.parent == tmp_path

    assert not folder.exists()
    assert "/dev/shm HAS 64 OF 96 MiB" in capsys.readouterr().err
    with (
        pytest.raises(Forbidden, match="200 MiB of room are needed"),
        environment.scratch("cuts-", 200),
    ):
        pass


def test_a_torn_page_is_found_by_sqlite_itself(tmp_path: Path) -> None:
    path = tmp_path / "any.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE note (text); INSERT INTO note VALUES ('a' || zeroblob(9000))")
    connection.close()
    assert environment.damage(path) == []

    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 64)

    assert "integrity_check" in environment.damage(path)[0]


CRASHING = """
import os, sys
from pathlib import Path
import verify.power_cut_load as load

async def broken(*arguments):
    raise AttributeError("a bug of the product")

load._attempt = broken
hear, tell = os.pipe()
pid = load.fork(Path(sys.argv[1]), "any", tell, synchronous="FULL", checkpoint_pages=100)
os.close(tell)
lines = load.Listener(hear).hear(30)
print([line.job_id for line in lines if line.kind == "crash"], load.end([pid]))
"""


def test_a_load_that_crashes_is_told_and_not_taken_for_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CRASHING, str(tmp_path / "jobs.db")]

    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)

    assert "AttributeError('a bug of the product')" in run.stdout
    assert "ended by itself, with 1" in run.stdout
