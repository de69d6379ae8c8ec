"""The reaper: the parent of the process supervisor; it ends what a supervisor that was killed has left.

The kernel gives the children of a dead process to its nearest ancestor that has asked for them. The
supervisor asks, and so does the reaper above it: when the supervisor is killed, all processes that it had
started, and their children, become children of the reaper, in any group or session. A child keeps its
process id until its parent has reaped it, so no signal can reach another process. The worker may be dead by
then. A kernel without this (macOS) gives orphans to its first process: there the reaper keeps a list of the
groups that were started, and kills those.

When the worker is gone or hangs up, the supervisor kills all processes and then exits. Only a supervisor
that does not, because it is frozen, is killed here.

The worker's socket and the inherited locks are kept open until everything has ended: a lock that is free
means that no process is left. Started by its path, like the supervisor, and imports nothing of holdfast.
"""

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

READ_BYTES = 4096
PATIENCE_SECONDS = 12.0  # a little more than the supervisor takes at most
LINGER_SECONDS = 10.0
POLL_SECONDS = 0.005
SET_CHILD_SUBREAPER = 36
ADOPTS = sys.platform == "linux"
HANGUP = getattr(select, "POLLRDHUP", select.POLLHUP)
GONE = HANGUP | select.POLLHUP | select.POLLERR


class Groups:
    """The groups that the supervisor has started and that have not ended, as it and their leaders report them
    over a pipe."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        for end in (self.reading, self.writing):
            os.set_blocking(end, False)
        self._numbers: set[int] = set()

    def read(self) -> None:
        """Read what was reported."""
        with suppress(BlockingIOError):
            while reports := os.read(self.reading, READ_BYTES):
                for report in reports.split():  # no read ends within a report: each is written at once
                    number = int(report[1:])
                    (self._numbers.add if report[:1] == b"+" else self._numbers.discard)(number)

    def end_all(self) -> None:
        """Kill every group, and wait a while until they have ended."""
        self.read()
        until = time.monotonic() + LINGER_SECONDS
        while self._numbers and time.monotonic() < until:
            for number in list(self._numbers):
                try:
                    os.killpg(number, signal.SIGKILL)
                except ProcessLookupError:
                    self._numbers.discard(number)
                except PermissionError:  # nothing is left but what nobody has reaped
                    continue
            time.sleep(POLL_SECONDS)


def watch(supervisor: int, worker_socket: int, patience: float, groups: Groups | None) -> bool:
    """Wait for the end of the supervisor; return whether it exited with 0. When the worker is gone, it has
    `patience` seconds for that."""
    wakeup, wakeup_end = os.pipe()
    os.set_blocking(wakeup_end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(wakeup, select.POLLIN)
    poll.register(worker_socket, HANGUP)
    if groups is not None:
        poll.register(groups.reading, select.POLLIN)
    until: float | None = None
    while True:
        ended, status = os.waitpid(supervisor, os.WNOHANG)
        if ended:
            return status == 0
        if until is not None and time.monotonic() >= until:
            os.kill(supervisor, signal.SIGKILL)
        wait = None if until is None else max(0.0, until - time.monotonic()) * 1000 + 1
        for descriptor, what in poll.poll(wait):
            if descriptor == wakeup:
                os.read(wakeup, READ_BYTES)
            elif groups is not None and descriptor == groups.reading:
                groups.read()
            elif what & GONE:
                poll.unregister(worker_socket)
                until = time.monotonic() + patience


def end_all(worker_socket: int) -> None:
    """Kill every child, and those that come to this process as their parents die, until there is none.

    A process that cannot be killed, because it runs as another user, is waited for; the worker is not made
    to wait that long: its socket is closed after `LINGER_SECONDS`.
    """
    until = time.monotonic() + LINGER_SECONDS
    while True:
        for pid in children():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        if time.monotonic() >= until:
            os.close(worker_socket)
            until = float("inf")
        time.sleep(POLL_SECONDS)


def children() -> list[int]:
    """Return the children of this process."""
    found, me = [], str(os.getpid()).encode()
    with suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with suppress(OSError), open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                    if file.read(4096).rpartition(b")")[2].split()[1] == me:
                        found.append(int(name))
    return found


def main(patience: float, worker_socket: int, *inherited: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for descriptor in (worker_socket, *inherited):
        os.set_inheritable(descriptor, False)
    groups = None if ADOPTS else Groups()
    if ADOPTS:
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1)
    supervisor = os.fork()
    if supervisor:
        if not watch(supervisor, worker_socket, patience, groups):
            if groups is not None:
                groups.end_all()
            end_all(worker_socket)
        return
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "process_supervisor.py")
    with open(script, "rb") as file:  # run here, without another interpreter
        code = compile(file.read(), script, "exec")
    module: dict[str, Any] = {"__name__": "process_supervisor", "__file__": script}
    exec(code, module)  # noqa: S102  # our own file
    module["main"](worker_socket, *inherited, groups=None if groups is None else groups.writing)


if __name__ == "__main__":
    seconds = float(sys.argv.pop(1))  # the other arguments are the supervisor's
    main(seconds, *map(int, sys.argv[1:]))
