"""One store, one folder and the processes of one measurement."""

import json
import os
import select
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from environments import Environment
from freeze.workers import Worker, leave_with_us
from peers.systems import System

ASK_SECONDS = 60.0
STOP_SECONDS = 5.0
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_COUNT = struct.Struct("<qdd")


class Failed(Exception):
    """A step did not do what it should; the message says which and what was said."""


@dataclass(frozen=True)
class Counted:
    """How many handlers have begun, and when the first and the latest did."""

    jobs: int
    first: float
    last: float


@dataclass
class Session:
    """`scene` is told to the programs, some of which have other limits for a recovery; `lease_seconds` is
    for those that can have any."""

    system: System
    environment: Environment
    url: str
    folder: Path
    scene: str
    lease_seconds: float = 10.0
    workers: dict[str, Worker] = field(default_factory=dict)

    @property
    def _variables(self) -> dict[str, str]:
        return {
            **self.environment.variables,
            "PEERS_URL": self.url,
            "PEERS_FOLDER": str(self.folder),
            "PEERS_VARIANT": self.system.variant,
            "PEERS_SCENE": self.scene,
            "PEERS_LEASE": f"{self.lease_seconds:g}",
        }

    def process(self, *words: str, log: str) -> "subprocess.Popen[str]":
        """A verb of the program, under way; it does not outlive us. What it complains of is in the log."""
        with (self.folder / log).open("ab") as errors:
            return subprocess.Popen(
                [*self.environment.command, *words],
                cwd=self.folder,
                env=self._variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                preexec_fn=leave_with_us,  # noqa: PLW1509 - one system call, no lock
            )

    def ask(self, *words: str, seconds: float = ASK_SECONDS) -> Any:
        """Run a verb; its last line is the answer."""
        process = self.process(*words, log="asked.log")
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"`{words[0]}` took more than {seconds:.0f} s") from error
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0 or not said.strip():
            raise Failed(f"`{words[0]}` failed: {self.last_words('asked.log')}")
        return json.loads(said.splitlines()[-1])

    def last_words(self, log: str) -> str:
        path = self.folder / log
        lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
        return " / ".join(line.strip() for line in lines[-2:])[-300:] or "it said nothing"

    def start(self, processes: int | None = None) -> None:
        for n in range(1, (processes or self.system.processes) + 1):
            name = f"w-{n}"
            command = [*self.environment.command, "work"]
            log = self.folder / f"{name}.log"
            self.workers[name] = Worker(name, command, self._variables, log, prefix="PEERS")

    def check(self) -> None:
        for name, worker in self.workers.items():
            if not worker.alive:
                raise Failed(f"a worker ended early: {self.last_words(f'{name}.log')}")

    def stop(self) -> None:
        """Let the workers leave; whatever is left of them then is killed."""
        for worker in self.workers.values():
            for pid in worker.pids()[:1] if worker.alive else []:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        until(lambda: not any(w.alive for w in self.workers.values()), STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        for worker in self.workers.values():
            worker.kill()
        self.workers.clear()

    def pids(self) -> list[int]:
        return [pid for worker in self.workers.values() for pid in worker.pids()]

    def counted(self) -> Counted:
        read = [_counted(path) for path in self.folder.glob("count-*")]
        begun = [one for one in read if one.jobs]
        if not begun:
            return Counted(0, 0.0, 0.0)
        jobs = sum(one.jobs for one in begun)
        return Counted(jobs, min(one.first for one in begun), max(one.last for one in begun))

    def forget(self) -> None:
        """What was counted by workers that have been stopped."""
        for path in [*self.folder.glob("count-*"), *self.folder.glob("waits-*")]:
            path.unlink()

    def waits(self) -> list[float]:
        """Milliseconds of every timed job so far."""
        return self.new_waits({})

    def new_waits(self, read: dict[str, int]) -> list[float]:
        """Those since the last call; `read` keeps how many bytes of each file are known."""
        found: list[float] = []
        for path in self.folder.glob("waits-*"):
            known = read.get(path.name, 0)
            whole = path.read_bytes()[known:].rpartition(b"\n")[0]
            read[path.name] = known + len(whole) + bool(whole)
            found += map(float, whole.split())
        return found

    def held(self) -> list[dict[str, Any]]:
        path = self.folder / "held.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]

    @contextmanager
    def lefts(self) -> Iterator["Lefts"]:
        process = self.process("lefts", log="lefts.log")
        try:
            lefts = Lefts(process)
            if lefts.line(ASK_SECONDS) != "ready":
                raise Failed(f"`left` failed: {self.last_words('lefts.log')}")
            yield lefts
        finally:
            process.kill()
            process.communicate()


class Lefts:
    """A process that asks the store, once told to, until no job is left."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def line(self, seconds: float) -> str | None:
        """The next thing it says, if it does in time."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, seconds))
        return self._process.stdout.readline().strip() if ready else None

    def ended(self, seconds: float) -> float | None:
        """The moment at which the store said that nothing is left; None when it did not."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        said = self.line(seconds)
        return float(said) if said else None


@contextmanager
def opened_session(session: Session) -> Iterator[Session]:
    """Set up, and in the end without workers, whatever happens."""
    try:
        session.ask("setup")
        yield session
    finally:
        session.kill()


def until(condition: Callable[[], bool], seconds: float, every: float = 0.02) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(every)
    return condition()


def cpu_seconds(pids: list[int]) -> float:
    """Of these processes, and of those that they have seen end."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1")
            total += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    return total / _TICKS


def rss_mb(pids: list[int]) -> float:
    pages = 0
    for pid in pids:
        with suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * _PAGE / 1e6


def _counted(path: Path) -> Counted:
    data = path.read_bytes()
    return Counted(*_COUNT.unpack(data)) if len(data) == _COUNT.size else Counted(0, 0.0, 0.0)
