"""Process groups under guard: the worker's side of the warden."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from holdfast.ports import Clock

MARGIN_SECONDS = 0.5


class Groups:
    """Tells the warden which groups may live, and for how long. `close` kills what is left.

    A warden that dies is replaced by the next word to it, and the new one is told everything.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines: dict[int, float] = {}
        self._process = _start()

    def hold(self, group: int, seconds: float) -> None:
        """This group may live for so many seconds more, less a margin for whoever comes next."""
        self._deadlines[group] = self._clock.monotonic() + seconds - MARGIN_SECONDS
        self._tell([group])

    def drop(self, group: int) -> None:
        """This group is gone, or is somebody else's business now."""
        self._deadlines.pop(group, None)
        self._tell([group])

    def _tell(self, groups: Iterable[int]) -> None:
        try:
            self._write(groups)
        except BrokenPipeError:
            self.close()
            self._process = _start()
            self._write(self._deadlines)

    def _write(self, groups: Iterable[int]) -> None:
        assert self._process.stdin is not None  # we asked for a pipe
        now = self._clock.monotonic()
        for group in groups:
            deadline = self._deadlines.get(group)
            word = f"drop {group}" if deadline is None else f"hold {group} {deadline - now:.3f}"
            self._process.stdin.write(f"{word}\n".encode())
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None  # we asked for a pipe
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(timeout=10)


def _start() -> subprocess.Popen[bytes]:
    warden = Path(__file__).with_name("warden.py")
    return subprocess.Popen(  # noqa: S603  # our own file
        [sys.executable, "-I", "-S", str(warden)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def send(group: int, number: signal.Signals) -> None:
    """Signal a whole group; one that is gone already is fine."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return
