"""Worker processes of any system: started apart, frozen and thawed with all that they started."""

import ctypes
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

_SET_DEATH_SIGNAL = 1
_kernel = ctypes.CDLL(None)


class Worker:
    """One worker. What belongs to it is known by its place in the tree of processes and, for those that
    left the tree, by `FREEZE_WORKER` and `FREEZE_FOLDER`, or the like, in their environment."""

    def __init__(
        self,
        name: str,
        command: list[str],
        environment: dict[str, str],
        log: Path,
        *,
        prefix: str = "FREEZE",
    ) -> None:
        self.name = name
        self.log = log
        self._marks = {
            f"{prefix}_WORKER={name}".encode(),
            f"{prefix}_FOLDER={environment[f'{prefix}_FOLDER']}".encode(),
        }
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=environment[f"{prefix}_FOLDER"],
                env={**environment, f"{prefix}_WORKER": name},
                start_new_session=True,
                preexec_fn=leave_with_us,  # noqa: PLW1509 - one system call, no lock
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def freeze(self) -> None:
        """Stop every process of it, and those that they started meanwhile."""
        frozen: set[int] = set()
        while new := [pid for pid in self.pids() if pid not in frozen]:
            for pid in new:
                _send(pid, signal.SIGSTOP)
            frozen.update(new)
            time.sleep(0.02)

    def thaw(self) -> None:
        for pid in reversed(self.pids()):
            _send(pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill -9 all of it, frozen or not."""
        for _ in range(10):
            pids = self.pids()
            for pid in pids:
                _send(pid, signal.SIGKILL)
            self._process.wait()
            if not pids:
                return
            time.sleep(0.02)

    def pids(self) -> list[int]:
        """Parents before their children."""
        found = [self._process.pid] if self.alive else []
        for pid in found:
            found.extend(child for child in _children(pid) if child not in found)
        return found + [pid for pid in _all_pids() if pid not in found and self._is_marked(pid)]

    def _is_marked(self, pid: int) -> bool:
        with suppress(OSError):
            return self._marks <= set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
        return False


def leave_with_us() -> None:
    """In the new process: be killed when the frame is gone, however it went."""
    _kernel.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _children(pid: int) -> list[int]:
    """Of all its threads: a child belongs to the thread that started it."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
