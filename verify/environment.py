"""The environment of the proofs: folders, progress messages, SQLite's integrity check, a clock."""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from holdfast.testing.fakes import ManualClock
from verify.loop_disk import Forbidden

CANNOT_RUN = 3
"""The exit code of a proof that this machine forbids: it is no pass."""
MEMORY = Path("/dev/shm")


def say(words: str) -> None:
    """Progress, beside the section that goes to stdout."""
    print(words, file=sys.stderr, flush=True)


@contextmanager
def scratch(prefix: str, mebibytes: int) -> Iterator[Path]:
    """A folder for this long: in memory, where syncs take no time, or else among temporary files.

    `Forbidden` when neither has so much room: Docker, for one, gives /dev/shm 64 MiB.
    """
    parents = [MEMORY, Path(tempfile.gettempdir())]
    rooms = {parent: room_mebibytes(parent) for parent in parents}
    parent = next((one for one, room in rooms.items() if room >= mebibytes), None)
    if parent is None:
        raise Forbidden(f"{mebibytes} MiB of room are needed; there are {rooms}.")
    if parent != MEMORY:
        say(f"{MEMORY} HAS {rooms[MEMORY]} OF {mebibytes} MiB: working in {parent}, more slowly.")
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def room_mebibytes(folder: Path) -> int:
    """How much may still be written there; none where there is no such folder."""
    try:
        space = os.statvfs(folder)
    except FileNotFoundError:
        return 0
    return space.f_bavail * space.f_frsize // (1024 * 1024)


def damage(path: Path) -> list[str]:
    """What SQLite itself finds wrong with the file, without any code of ours."""
    if not path.exists():
        return []
    try:
        connection = apsw.Connection(str(path))
        try:
            found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
        finally:
            connection.close()
    except apsw.Error as error:
        found = [repr(error)]
    return [] if found == ["ok"] else [f"integrity_check: {one}" for one in found]


class EagerClock(ManualClock):
    """It moves on when somebody sleeps, so that back-off needs nobody to advance it."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)
