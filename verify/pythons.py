"""Every Python on this machine that can run holdfast, with what the simulation needs installed."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("apsw", "msgspec")
VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.15")


def pythons() -> list[tuple[str, Path]]:
    """(version, interpreter) for each version from 3.11 on, the one that runs this first."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {here: Path(sys.executable)}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in VERSIONS:
        known = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
        for candidate in known:
            if candidate and version not in found and _is(version, Path(candidate)):
                found[version] = Path(candidate)
    return list(found.items())


def _is(version: str, python: Path) -> bool:
    words = "import sys; print('%d.%d' % sys.version_info[:2])"
    said = subprocess.run([python, "-I", "-c", words], capture_output=True, text=True, check=False)
    return said.stdout.strip() == version


def _packages(version: str) -> Path:
    """A folder with what the simulation needs, for this version: fetched once, whole or not at all."""
    folder = ROOT / ".venv" / f"python-{version}"
    if not all((folder / name).exists() for name in PACKAGES):
        lock = (ROOT / "requirements.lock").read_text(encoding="ascii")
        blocks = [
            found[0]
            for name in PACKAGES
            if (found := re.search(rf"^{name}==(?:.*\\\n)*.*$", lock, re.MULTILINE))
        ]
        draft = Path(tempfile.mkdtemp(dir=folder.parent))
        pinned = draft / "requirements.txt"
        pinned.write_text(re.sub(r"\n\s+#.*", "", "\n".join(blocks)) + "\n", encoding="ascii")
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"),
                *("--target", str(draft), "--python-version", version, "--only-binary=:all:"),
                *("--no-deps", "--require-hashes", "-r", str(pinned)),
            ],
            check=True,
        )
        if folder.exists():
            shutil.rmtree(folder)
        draft.rename(folder)
    return folder


def hashes(python: tuple[str, Path], *, seeds: int, hash_seed: int) -> list[str]:
    """The traces of the first seeds, as this Python makes them."""
    version, interpreter = python
    path = [str(ROOT / "src")]
    if interpreter != Path(sys.executable):
        path.append(str(_packages(version)))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONHASHSEED": str(hash_seed),
    }
    said = subprocess.run(
        [interpreter, "-m", "holdfast.testing.simulation", "--seeds", str(seeds), "--hash"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return [line.split()[1] for line in said.stdout.splitlines()]
