"""Process groups under guard: the worker's side of the warden."""

import os
import signal
import subprocess
import sys
from pathlib import Path

MARGIN_SECONDS = 0.5


class Groups:
    """Tells the warden which groups may live, and for how long. `close` kills what is left."""

    def __init__(self) -> None:
        warden = Path(__file__).with_name("warden.py")
        self._process = subprocess.Popen(  # noqa: S603  # our own file
            [sys.executable, "-I", "-S", str(warden)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def hold(self, group: int, seconds: float) -> None:
        """This group may live for so many seconds more, less a margin for whoever comes next."""
        self._tell(f"hold {group} {max(0.0, seconds - MARGIN_SECONDS):.3f}\n")

    def drop(self, group: int) -> None:
        """This group is gone, or is somebody else's business now."""
        self._tell(f"drop {group}\n")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None  # noqa: S101  # we asked for a pipe
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RuntimeError("The warden died; this worker must not go on without it.") from None

    def close(self) -> None:
        assert self._process.stdin is not None  # noqa: S101  # we asked for a pipe
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        self._process.wait(timeout=10)


def send(group: int, number: signal.Signals) -> None:
    """Signal a whole group; one that is gone already is fine."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return
