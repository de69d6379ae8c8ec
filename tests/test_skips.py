"""A skipped test is a failed one where CI is set, and a skip everywhere else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

SKIPS = """
import pytest

def test_a(): pytest.skip("no disk to be filled")

@pytest.mark.skipif(True, reason="only root mounts")
def test_b(): pass

@pytest.mark.xfail(raises=ValueError)
def test_c(): raise ValueError

def test_d(): pass
"""
ALL = "import pytest\n\npytest.skip('not here', allow_module_level=True)\n"


def ran(folder: Path, source: str, environment: dict[str, str]) -> str:
    """The last words of a run of these tests under our conftest."""
    test = folder / "test_given.py"
    test.write_text(source)
    known = {name: value for name, value in os.environ.items() if name != "CI"}
    options = ("-q", "-p", "tests.conftest", "-p", "no:randomly", "-p", "no:cacheprovider")
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(folder), str(test)],
        cwd=folder,
        env={**known, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return found.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "alone", "in_ci"),
    [
        (SKIPS, "1 passed, 2 skipped, 1 xfailed", "1 failed, 1 passed, 1 xfailed, 1 error"),
        (ALL, "1 skipped", "1 error"),
    ],
    ids=["tests", "module"],
)
def test_a_skip_is_a_failure_in_ci_and_only_there(
    source: str, alone: str, in_ci: str, tmp_path: Path
) -> None:
    assert alone in ran(tmp_path, source, {}).splitlines()[-1]
    said = ran(tmp_path, source, {"CI": "true"})
    assert in_ci in said.splitlines()[-1], said
    assert "SKIPPED IN CI, SO NOT SHOWN" in said
