"""Temporary files: outputs that are being written, in a folder that only this process uses."""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Lock
from typing import BinaryIO

PREFIX = "holdfast-drafts-"
LOCK = "lock"


class TempFiles:
    """Files in a folder under TMPDIR. The next process removes what a killed process has left there."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._lock: int | None = None
        self._numbers = count()
        self._opening = Lock()

    def new(self, name: str) -> BinaryIO:
        """Return a new file of this name, open for reading and writing. Remove it with `remove`."""
        with self._opening:
            # A cleaner of TMPDIR may remove the folder while the process lives.
            if self._folder is None or not self._folder.exists():
                self._folder, self._lock = _make()
            own = self._folder / str(next(self._numbers))
            own.mkdir()
        return (own / name).open("x+b")

    def remove(self, file: BinaryIO) -> None:
        file.close()
        with suppress(OSError):
            shutil.rmtree(Path(file.name).parent)

    def close(self) -> None:
        folder, self._folder = self._folder, None
        lock, self._lock = self._lock, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _make() -> tuple[Path, int]:
    """Return a new folder, and the lock on it."""
    _remove_left()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / LOCK).exists():  # else another process's `_remove_left` was faster
            return folder, lock
        os.close(lock)


def _remove_left() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's, or gone, or in use
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
