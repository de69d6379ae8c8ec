"""The reaper: the parent of the warden, which ends what a warden that was killed has left.

The kernel gives the children of a dead process to its nearest ancestor that has asked for them. The warden
asks, and so does the reaper above it: when the warden is killed, whatever it had started, and whatever that
has started, becomes a child of the reaper, in whichever group or session it is. A child keeps its number
until its parent has seen its end, so no signal can meet a stranger. The worker may be dead by then.

A worker that is gone, or wants to leave, is the warden's business: it ends all, and then itself. Only one
that does not come to it, because it is frozen, is killed here.

The end of the worker's line is kept open until everything has ended, and so are the locks: whoever sees
them free knows that nothing is left. Started by its path, like the warden, and with nothing of ours.
"""

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress

READ_BYTES = 4096
PATIENCE_SECONDS = 12.0  # a little more than the warden takes at most
LINGER_SECONDS = 10.0
LOOK_SECONDS = 0.005
SET_CHILD_SUBREAPER = 36
HANGUP = getattr(select, "POLLRDHUP", 0)


def watch(warden: int, line: int, patience: float) -> bool:
    """Wait for the end of the warden; returns whether it has ended by itself, and in order. When the
    worker is gone, it has `patience` seconds for that."""
    wakeup, told = os.pipe()
    os.set_blocking(told, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(wakeup, select.POLLIN)
    poll.register(line, HANGUP)
    until: float | None = None
    while True:
        ended, status = os.waitpid(warden, os.WNOHANG)
        if ended:
            return status == 0
        if until is not None and time.monotonic() >= until:
            os.kill(warden, signal.SIGKILL)
        wait = None if until is None else max(0.0, until - time.monotonic()) * 1000 + 1
        for descriptor, _ in poll.poll(wait):
            if descriptor == wakeup:
                os.read(wakeup, READ_BYTES)
            else:
                poll.unregister(line)
                until = time.monotonic() + patience


def end_all(line: int) -> None:
    """Kill every child, and those that come to this process as their parents die, until there is none.

    What cannot be killed, because it runs as another user, is waited for. The worker is not made to wait
    that long.
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
            os.close(line)
            until = float("inf")
        time.sleep(LOOK_SECONDS)


def children() -> list[int]:
    """The processes whose parent this one is."""
    found, me = [], str(os.getpid()).encode()
    with suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with suppress(OSError), open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                    if file.read(4096).rpartition(b")")[2].split()[1] == me:
                        found.append(int(name))
    return found


def main(patience: float, line: int, *inherited: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for descriptor in (line, *inherited):
        os.set_inheritable(descriptor, False)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1)
    warden = os.fork()
    if warden:
        if not watch(warden, line, patience):
            end_all(line)
        return
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "warden.py")
    with open(script, "rb") as file:  # as `python warden.py`, without another interpreter
        code = compile(file.read(), script, "exec")
    exec(code, {"__name__": "__main__", "__file__": script})  # noqa: S102  # our own file


if __name__ == "__main__":
    seconds = float(sys.argv.pop(1))  # what is left is the warden's
    main(seconds, *map(int, sys.argv[1:]))
