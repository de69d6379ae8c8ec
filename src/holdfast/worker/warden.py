"""The warden: a small process beside the worker that kills what the worker no longer may run.

It outlives a worker that is killed, and goes on counting while one is frozen: a process group whose
lease was not renewed in time is killed, and so are all when the worker is gone. Started by its path,
without site-packages, so that it is small and up at once; it imports nothing of ours.
"""

import os
import select
import signal
import time

GOVERNED_MAX = 100_000


def main() -> None:
    """Read `hold GROUP SECONDS` and `drop GROUP` lines; act when time is up or the worker is gone."""
    deadlines: dict[int, float] = {}
    pending = b""
    while True:
        wait = min(deadlines.values(), default=None)
        timeout = None if wait is None else max(0.0, wait - time.monotonic())
        if select.select([0], [], [], timeout)[0]:
            chunk = os.read(0, 65536)
            if not chunk:
                break
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                obey(line.split(), deadlines)
        now = time.monotonic()
        for group in [group for group, deadline in deadlines.items() if deadline <= now]:
            del deadlines[group]
            kill(group)
    for group in deadlines:
        kill(group)


def obey(words: list[bytes], deadlines: dict[int, float]) -> None:
    match words:
        case [b"hold", group, seconds] if len(deadlines) < GOVERNED_MAX:
            deadlines[int(group)] = time.monotonic() + float(seconds)
        case [b"drop", group]:
            deadlines.pop(int(group), None)


def kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    main()
