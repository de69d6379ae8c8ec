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

    def birth(self, seconds: float) -> "Birth":
        """A group that is about to be, and may live for so many seconds."""
        if self._process.poll() is not None:
            self._renew()
        assert self._process.stdin is not None  # we asked for a pipe
        return Birth(self._process.stdin.fileno(), seconds - MARGIN_SECONDS)

    def drop(self, group: int) -> None:
        """This group is gone, or is somebody else's business now."""
        self._deadlines.pop(group, None)
        self._tell([group])

    def _tell(self, groups: Iterable[int]) -> None:
        try:
            self._write(groups)
        except BrokenPipeError:
            self._renew()

    def _renew(self) -> None:
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


class Birth:
    """The moment between fork and exec, when only the child itself knows that there is a group.

    A worker may be killed in it. So the child puts its group under the warden before it becomes the
    command; one that cannot become the command leaves its number here, to be dropped.
    """

    def __init__(self, warden: int, seconds: float) -> None:
        self._warden = warden
        self._seconds = seconds
        self._ends = os.pipe()

    def tell(self) -> None:
        """Run by the child. It writes, and does nothing else that could wait for another thread.

        A warden that has just died is no reason to die: the worker renews it when it governs.
        """
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        with suppress(BrokenPipeError):
            os.write(self._warden, b"hold %d %.3f\n" % (os.getpid(), self._seconds))
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.write(self._ends[1], b"%d" % os.getpid())

    def miscarried(self) -> int | None:
        """The number of a child that has died without becoming the command, if there was one."""
        os.set_blocking(self._ends[0], False)
        with suppress(BlockingIOError):
            return int(os.read(self._ends[0], 20))
        return None

    def close(self) -> None:
        for end in self._ends:
            os.close(end)


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
