"""The processes of the migration benchmark: workers and clients of one holdfast or the other."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import migration_app
from environments import Environment

PROGRAM = Path(migration_app.__file__)
LEASE = "10s"
LOOK_SECONDS = 0.05
LEAVE_SECONDS = 30.0


class NotReached(Exception):
    """What was waited for has not come; the message says what."""


@dataclass
class Side:
    """One of the two: how to start its programs on a store, and where they write."""

    name: str
    environment: Environment
    url: str
    folder: Path
    began: list["Process"] = field(default_factory=list)

    def fill(self, verb: str, jobs: int) -> float:
        """Make jobs; return the seconds it took."""
        start = time.monotonic()
        command = [*self.environment.command, str(PROGRAM), verb, self.url, str(jobs)]
        subprocess.run(command, env=self._variables, cwd=self.folder, check=True)
        return time.monotonic() - start

    def worker(self, slots: int) -> "Process":
        name = f"{self.name}-worker-{len(self.began)}"
        options = ["--store", self.url, "--name", name, "--spool", str(self.folder / f"{name}.spool")]
        options += ["-q", "slow", "-q", "default", "-c", str(slots), "--lease", LEASE, "--leave", "20s"]
        return self._start(name, ["-m", "holdfast", "worker", migration_app.NAME, *options])

    def client(self, rate: float, again: list[str]) -> "Process":
        name = f"{self.name}-client-{len(self.began)}"
        file = self.folder / f"{name}.again"
        file.write_text("\n".join(again))
        return self._start(name, [str(PROGRAM), "client", self.url, name, str(rate), str(file)])

    def _start(self, name: str, words: list[str]) -> "Process":
        process = Process(name, [*self.environment.command, *words], self._variables, self.folder)
        self.began.append(process)
        return process

    @property
    def _variables(self) -> dict[str, str]:
        path = os.pathsep.join([str(PROGRAM.parent), self.environment.variables.get("PYTHONPATH", "")])
        return {**self.environment.variables, "PYTHONPATH": path, "MIGRATION_FOLDER": str(self.folder)}


class Process:
    """One of them; what it says goes to a file, and the moment of its end is kept."""

    def __init__(self, name: str, command: list[str], variables: dict[str, str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.started_at = time.time()
        self.ended_at: float | None = None
        self._said: str | None = None
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, env=variables
            )
        self._watch = threading.Thread(target=self._await_end, daemon=True)
        self._watch.start()

    def _await_end(self) -> None:
        self._process.wait()
        self.ended_at = time.time()

    @property
    def said(self) -> str:
        """All that it has said, also after its file is gone."""
        return self._said if self._said is not None else self.log.read_text()

    @property
    def last_error(self) -> str:
        """Why it ended, in its own words."""
        lines = self.said.splitlines() or ["nothing"]
        return next((line for line in reversed(lines) if line.startswith("Error:")), lines[-1])

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def lines(self, word: str) -> list[list[str]]:
        """What a client has said that begins with the word, without it."""
        said = [line.split("\t") for line in self.said.splitlines()]
        return [line[1:] for line in said if line[0] == word]

    def stop(self) -> None:
        if self.code is None:
            self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_SECONDS)
        self._process.kill()
        self._watch.join()
        self._said = self.said


class DiskSampler:
    """The most that a folder has held while this was entered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.first = self.most = disk_bytes(folder)

    def __enter__(self) -> "DiskSampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.25):
            self.most = max(self.most, disk_bytes(self._folder))


def disk_bytes(folder: Path) -> int:
    """What the files in a folder take; those that vanish meanwhile take nothing."""
    total, folders = 0, [str(folder)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def await_true(reached: Callable[[], bool], what: str, seconds: float) -> None:
    """Return once it is so; raise NotReached."""
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise NotReached(f"{what} has not come in {seconds:.0f} s")
        time.sleep(LOOK_SECONDS)
