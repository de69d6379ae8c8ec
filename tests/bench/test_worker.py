"""The benchmark of the worker in its shortest form: floors far below the targets, which only a collapse
goes through."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120
FLOORS = {
    "jobs per second": 400,
    "jobs per second in processes": 25,
    "megabytes per second by command": 0.5,
    "megabytes per second by function": 0.2,
}


@pytest.mark.slow
def test_the_real_worker_has_not_become_many_times_slower_and_loses_no_line_of_output() -> None:
    ran = subprocess.run(
        [sys.executable, "bench/worker.py", "--smoke"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["wrong lines by command"] == found["wrong lines by function"] == 0
    slow = {name: found[name] for name, floor in FLOORS.items() if found[name] < floor}
    assert not slow, ran.stderr
