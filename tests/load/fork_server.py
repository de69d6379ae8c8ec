"""A fork server: forks processes that are to be killed, and reports how each of them has ended.

Each line on stdin is a task, answered by the pid of a process forked for it, or a pid, answered by the
wait status of that process once it is gone. A fork costs milliseconds where a new interpreter costs
hundreds: five hundred kills need that. What it has forked dies with it.
"""

import asyncio
import ctypes
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from pathlib import Path

import apsw
import msgspec

from holdfast.failpoint import arm
from tests.load import failpoint_outputs, failpoint_process
from tests.load.cas_process import documents
from tests.load.claimer_process import Task, submit, work

PR_SET_PDEATHSIG = 1
ROLES: dict[str, Callable[[Task], Coroutine[None, None, None]]] = {
    "life": failpoint_process.life,
    "commands": failpoint_process.commands,
    "safekeeping": failpoint_process.safekeeping,
    "outputs": failpoint_outputs.outputs,
    "finish_life": failpoint_process.finish_life,
    "finish_commands": failpoint_process.finish_commands,
    "finish_safekeeping": failpoint_process.finish_safekeeping,
    "finish_outputs": failpoint_outputs.finish_outputs,
    "all_documents": partial(documents, short=False),
    "some_documents": partial(documents, short=True),
    "submit": submit,
    "work": work,
}


class KillAtFailpoint:
    """Kills this process at the n-th passing of one failpoint, or of any; keeps what was passed."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._numbers = count(1)
        self.passed: list[str] = []

    def __call__(self, name: str) -> None:
        self.passed.append(name)
        task = self._task
        if task.failpoint in (None, name) and next(self._numbers) == task.passing:
            os.kill(os.getpid(), signal.SIGKILL)


class Files(apsw.VFS):
    """Files whose every write and sync is a failpoint: inside a commit, and inside a checkpoint."""

    def __init__(self, passes: Callable[[str], None]) -> None:
        self.passes = passes
        super().__init__("mortal", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "File":  # noqa: N802
        return File(self.passes, name, flags)


class File(apsw.VFSFile):
    def __init__(
        self, passes: Callable[[str], None], name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._kind = {"jobs.db": "file", "jobs.db-wal": "log"}.get(Path(path or "").name)
        self._passes = passes
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)
        if self._kind:
            self._passes(f"{self._kind}.page_written")

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        if self._kind:
            self._passes(f"{self._kind}.synced")


def run_task(task: Task) -> None:
    """Be this process, to its end or to its death."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    killer = KillAtFailpoint(task)
    arm(killer)
    files = Files(killer) if task.files else None
    asyncio.run(ROLES[task.role](task))
    del files
    arm(None)
    passed = msgspec.json.encode(Counter(killer.passed))
    (Path(task.folder) / f"passed-{task.name}").write_bytes(passed)


def fork(task: Task) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            run_task(task)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid


def main() -> None:
    for line in sys.stdin:
        if line.startswith("{"):
            answer = fork(msgspec.json.decode(line, type=Task))
        else:
            answer = os.waitpid(int(line), 0)[1]
        os.write(sys.stdout.fileno(), f"{answer}\n".encode())


if __name__ == "__main__":
    main()
