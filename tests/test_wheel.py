"""The wheel works where nothing else of ours is."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def call(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_runs_in_an_empty_environment(tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    call(*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, ROOT, cwd=tmp_path)
    [wheel] = tmp_path.glob("*.whl")
    call(sys.executable, "-m", "venv", "--without-pip", "empty", cwd=tmp_path)
    python, holdfast = tmp_path / "empty/bin/python", tmp_path / "empty/bin/holdfast"
    install = (*pip, "--python", python, "install", "-q", "--no-compile")
    call(*install, "--require-hashes", "-r", ROOT / "requirements.lock", cwd=tmp_path)
    call(*install, "--no-deps", wheel, cwd=tmp_path)

    said = call(holdfast, "run", "--job-id", "first", "--", "echo", "hello", cwd=tmp_path)
    verified = call(holdfast, "verify", cwd=tmp_path)

    assert said == "hello\n"
    assert "1 job" in verified
    assert "equal" in verified
    assert (tmp_path / "holdfast.db").exists()
