"""Plain paths: files that a command wrote by itself, validated on the machine on which it ran.

A path is relative to the folder in which the command ran. A path with `*`, `?` or `[` is a pattern, unless
a file has exactly that name; `**` stands for any folders. A file that we may not read is not a missing
file: an `OSError` says why. Each validation has its own thread, which a cancelled caller does not wait
for: a disk that hangs blocks one thread only.
"""

import asyncio
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from re import Pattern
from re import compile as compiled
from threading import Event as Flag
from threading import Thread
from typing import TypeVar

from msgspec import Struct

from holdfast.core.errors import Unavailable
from holdfast.core.limits import clip
from holdfast.core.outputs import File, Output

HASHED_BYTES_MAX = 64 * 1024 * 1024
"""Up to this size a checksum is computed as evidence, even if none was promised."""

WALKED_MAX = 1_000_000
"""Files and folders that are visited for one pattern, on top of the number promised."""

THREAD_NAME = "plain-outputs"

_PART_BYTES = 1024 * 1024
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_MAGIC = frozenset("*?[")
_ABSENT = "not there"
_DANGLING = "a link to nothing"
_REASON_CHARACTERS = 160

T = TypeVar("T")


class _FoundPath(Struct):
    """What is at one path."""

    size: int | None = None
    sha256: str | None = None
    changed_at: float | None = None
    missing: str | None = None


async def validate_file(file: File, base: Path, since: datetime | None) -> Output:
    """Return the promised file (or all that match its pattern) below `base`, as `reused` if it is older
    than `since`. Raise `Unavailable` if `base` is gone, and `OSError` if we may not read."""
    stopped = Flag()
    try:
        return await _in_a_thread(lambda: _validate(file, base, since, stopped))
    finally:
        stopped.set()  # a cancelled caller leaves no thread behind that reads for hours


async def _in_a_thread(work: Callable[[], T]) -> T:
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=run, name=THREAD_NAME, daemon=True).start()
    return await asyncio.wrap_future(answer)


def _validate(file: File, base: Path, since: datetime | None, stopped: Flag) -> Output:
    _check_base(base)
    if _MAGIC & set(file.path) and not os.path.lexists(base / file.path):
        return _validate_pattern(file, base, since, stopped)
    seen = _inspect_path(base / file.path, file, stopped)
    if file.count not in (None, 1) and seen.missing is None:
        seen.missing = _count_error(file, 1)
    return Output(
        name=file.path,
        path=os.path.abspath(base / file.path),
        size=seen.size,
        sha256=seen.sha256,
        missing=seen.missing,
        reused=seen.missing is None and _is_older(seen.changed_at, since),
    )


def _validate_pattern(file: File, base: Path, since: datetime | None, stopped: Flag) -> Output:
    count, total, newest = 0, 0, None
    for path in _Walk(file, stopped).matches(base):
        seen = _inspect_path(path, file, stopped)
        if seen.missing in (_ABSENT, _DANGLING):
            continue
        if seen.missing is not None:
            name = clip(os.path.relpath(path, base), _REASON_CHARACTERS)
            return Output(name=file.path, missing=f"{name}: {seen.missing}")
        count += 1
        total += seen.size or 0
        if seen.changed_at is not None:
            newest = max(newest or seen.changed_at, seen.changed_at)
    return Output(
        name=file.path,
        size=total,
        missing=(missing := _count_error(file, count)),
        reused=missing is None and _is_older(newest, since),
    )


def _check_base(base: Path) -> None:
    try:
        there = stat.S_ISDIR(os.stat(base).st_mode)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        there = False
    if not there:
        raise Unavailable(f"The folder {base}, in which it ran, is not there: is it mounted?")


def _count_error(file: File, count: int) -> str | None:
    if file.count is None:
        return None if count else "nothing matches"
    if count == file.count:
        return None
    return f"{count:,} {'file matches' if count == 1 else 'files match'}, not {file.count:,}"


def _inspect_path(path: Path, file: File, stopped: Flag) -> _FoundPath:
    """Return what is at the path, compared with what was promised."""
    try:
        found = os.stat(path)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return _FoundPath(missing=_DANGLING if os.path.islink(path) else _ABSENT)
    if stat.S_ISDIR(found.st_mode):
        wanted = file.size is not None or file.sha256 is not None
        return _FoundPath(missing="a folder, not a file" if wanted else None)
    if not stat.S_ISREG(found.st_mode):
        return _FoundPath(missing="neither a file nor a folder")
    seen = _FoundPath(size=found.st_size, changed_at=found.st_mtime)
    if file.size is not None and found.st_size != file.size:
        seen.missing = f"has {found.st_size:,} bytes, not {file.size:,}"
        return seen
    if file.sha256 is not None or found.st_size <= HASHED_BYTES_MAX:
        _compare(path, file, seen, stopped)
    return seen


def _compare(path: Path, file: File, seen: _FoundPath, stopped: Flag) -> None:
    try:
        seen.sha256 = _hash(path, stopped)
    except OSError as error:
        if error.errno in _NOT_THERE:  # gone since
            seen.missing = _ABSENT
        elif file.sha256 is not None:
            raise
        return  # it exists, which is all that was promised
    if file.sha256 not in (None, seen.sha256):
        seen.missing = "its sha256 differs"


def _hash(path: Path, stopped: Flag) -> str:
    digest = hashlib.sha256()
    # Without O_NONBLOCK, a pipe that has just replaced the file would block forever.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
        while (part := file.read(_PART_BYTES)) and not stopped.is_set():
            digest.update(part)
    return digest.hexdigest()


def _is_older(changed_at: float | None, since: datetime | None) -> bool:
    if changed_at is None or since is None:
        return False
    return datetime.fromtimestamp(changed_at, UTC) < since


class _Walk:
    """The search for paths that match a pattern. It visits each path once, with all positions in the
    pattern that the path may have reached, so that many `**` take no longer than one."""

    def __init__(self, file: File, stopped: Flag) -> None:
        parts = Path(file.path).parts
        self._parts = [part for n, part in enumerate(parts) if not n or (part, parts[n - 1]) != ("**", "**")]
        self._pattern = file.path
        self._stopped = stopped
        self._left = self._most = WALKED_MAX + (file.count or 0)

    def matches(self, base: Path) -> Iterator[Path]:
        """Yield each matching path below the folder once, until stopped."""
        waiting = [(os.fspath(base), self._positions([0]))]
        while waiting and not self._stopped.is_set():
            folder, positions = waiting.pop()
            for path, after in self._matching_entries(folder, positions):
                if len(self._parts) in after:
                    yield Path(path)
                if below := self._positions(after):
                    waiting.append((path, below))

    def _positions(self, positions: Iterable[int]) -> set[int]:
        """Return the positions that entries of a folder may match: `**` may also stand for no folder."""
        end = len(self._parts)
        found = {position for position in positions if position < end}
        zero = {position + 1 for position in found if self._parts[position] == "**" and position + 1 < end}
        return found | zero

    def _matching_entries(self, folder: str, positions: set[int]) -> Iterator[tuple[str, set[int]]]:
        """Yield each entry of the folder that matches a part, and the positions after it."""
        named: dict[str, set[int]] = {}
        for position in positions:
            if not _MAGIC & set(self._parts[position]):
                named.setdefault(self._parts[position], set()).add(position + 1)
        patterns = [position for position in positions if self._parts[position] not in named]
        for entry in _entries(folder) if patterns else ():
            self._count()
            if self._stopped.is_set():
                return
            after = named.pop(entry.name, set())
            for position in patterns:
                after |= self._after(entry, position)
            if after:
                yield os.path.join(folder, entry.name), after
        for name, after in named.items():
            self._count()
            if _is_there(path := os.path.join(folder, name)):
                yield path, after

    def _after(self, entry: os.DirEntry[str], position: int) -> set[int]:
        """Return the positions for what is below the entry. `**` follows no links: they may form a circle."""
        part = self._parts[position]
        if not _dot_matches(entry.name, part):
            return set()
        last = position + 1 == len(self._parts)
        if part != "**":
            matches = _matcher(part).match(entry.name) and (last or entry.is_dir())
            return {position + 1} if matches else set()
        if entry.is_dir(follow_symlinks=False):
            return {position}
        return {position + 1} if last else set()

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Unavailable(
                f"{self._pattern} leads to more than {self._most:,} files and folders: narrow the pattern."
            )


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        entries = os.scandir(folder)
    except OSError as error:
        # A folder that exists, but whose whole path is too long to open, cannot be seen: it is not missing.
        if error.errno not in _NOT_THERE or error.errno == errno.ENAMETOOLONG:
            raise
        return
    with entries:
        yield from entries


def _is_there(path: str) -> bool:
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return False
    return True


def _dot_matches(name: str, pattern: str) -> bool:
    """Return whether the pattern may match: a name with a leading dot needs a pattern with one."""
    return not name.startswith(".") or pattern.startswith(".")


@lru_cache(maxsize=64)
def _matcher(pattern: str) -> Pattern[str]:
    return compiled(translate(pattern))
