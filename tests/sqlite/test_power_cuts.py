"""Power cuts on a real file system, in short. The long form is `python -m verify.power_cuts`."""

import subprocess
import sys
from pathlib import Path

import pytest

from verify.power_cuts import CANNOT_RUN, Tally, verdict

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_power_cut_loses_nothing_that_was_acknowledged() -> None:
    command = [sys.executable, "-m", "verify.power_cuts", "--short"]
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )

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
    ],
    ids=["a loss", "a damaged store", "nothing to lose"],
)
def test_anything_less_is_no_pass(full: Tally) -> None:
    assert verdict([full, CONTROL], short=True)


def test_a_control_that_loses_nothing_is_no_pass() -> None:
    full, control = Tally("FULL", cuts=9, acknowledged=99), Tally("OFF", cuts=9, acknowledged=99)

    assert "prove nothing" in verdict([full, control], short=True)[0]
