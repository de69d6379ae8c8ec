"""Plain paths: what a command wrote by itself, as it is found on the machine it ran on.

A path is taken below the folder the command ran in. What has `*`, `?` or `[` in it, and is not there
under that very name, is a pattern, in which `**` stands for any folders. Not to be allowed to look is
never the same as not there: then an `OSError` tells why. Each look has a thread of its own, for which
nobody waits who leaves: a disk that hangs takes this one thread.
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
"""Up to this size a checksum is taken for the evidence, also where none was promised."""

WALKED_MAX = 1_000_000
"""Files and folders that are looked at for one pattern, beside as many as were promised."""

THREAD_NAME = "plain-outputs"

_PART_BYTES = 1024 * 1024
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_MAGIC = frozenset("*?[")
_ABSENT = "not there"
_DANGLING = "a link to nothing"
_REASON_CHARACTERS = 160

T = TypeVar("T")


class _Seen(Struct):
    """What was found under one path."""

    size: int | None = None
    sha256: str | None = None
    changed_at: float | None = None
    missing: str | None = None


async def check_file(file: File, base: Path, since: datetime | None) -> Output:
    """The promised file (or all that match its pattern) below `base`. It is `reused` when it is older
    than `since`. `Unavailable` when `base` is gone, and `OSError` when we may not look."""
    stopped = Flag()
    try:
        return await _in_a_thread(lambda: _check(file, base, since, stopped))
    finally:
        stopped.set()  # whoever is cancelled leaves no thread behind that reads for hours


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


def _check(file: File, base: Path, since: datetime | None, stopped: Flag) -> Output:
    _check_base(base)
    if _MAGIC & set(file.path) and not os.path.lexists(base / file.path):
        return _check_pattern(file, base, since, stopped)
    seen = _look(base / file.path, file, stopped)
    if file.count not in (None, 1) and seen.missing is None:
        seen.missing = _miscounted(file, 1)
    return Output(
        name=file.path,
        path=os.path.abspath(base / file.path),
        size=seen.size,
        sha256=seen.sha256,
        missing=seen.missing,
        reused=seen.missing is None and _older(seen.changed_at, since),
    )


def _check_pattern(file: File, base: Path, since: datetime | None, stopped: Flag) -> Output:
    count, total, newest = 0, 0, None
    for path in _Walk(file, stopped).matches(base):
        seen = _look(path, file, stopped)
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
        missing=(missing := _miscounted(file, count)),
        reused=missing is None and _older(newest, since),
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


def _miscounted(file: File, count: int) -> str | None:
    if file.count is None:
        return None if count else "nothing matches"
    if count == file.count:
        return None
    return f"{count:,} {'file matches' if count == 1 else 'files match'}, not {file.count:,}"


def _look(path: Path, file: File, stopped: Flag) -> _Seen:
    """What is at the path, and whether it is what was promised."""
    try:
        found = os.stat(path)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return _Seen(missing=_DANGLING if os.path.islink(path) else _ABSENT)
    if stat.S_ISDIR(found.st_mode):
        wanted = file.size is not None or file.sha256 is not None
        return _Seen(missing="a folder, not a file" if wanted else None)
    if not stat.S_ISREG(found.st_mode):
        return _Seen(missing="neither a file nor a folder")
    seen = _Seen(size=found.st_size, changed_at=found.st_mtime)
    if file.size is not None and found.st_size != file.size:
        seen.missing = f"has {found.st_size:,} bytes, not {file.size:,}"
        return seen
    if file.sha256 is not None or found.st_size <= HASHED_BYTES_MAX:
        _compare(path, file, seen, stopped)
    return seen


def _compare(path: Path, file: File, seen: _Seen, stopped: Flag) -> None:
    try:
        seen.sha256 = _hash(path, stopped)
    except OSError as error:
        if error.errno in _NOT_THERE:  # gone since
            seen.missing = _ABSENT
        elif file.sha256 is not None:
            raise
        return  # it is there, which is all that was promised
    if file.sha256 not in (None, seen.sha256):
        seen.missing = "its sha256 is another one"


def _hash(path: Path, stopped: Flag) -> str:
    digest = hashlib.sha256()
    # Without O_NONBLOCK a pipe that has just come into its place would hold us for ever.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
        while (part := file.read(_PART_BYTES)) and not stopped.is_set():
            digest.update(part)
    return digest.hexdigest()


def _older(changed_at: float | None, since: datetime | None) -> bool:
    if changed_at is None or since is None:
        return False
    return datetime.fromtimestamp(changed_at, UTC) < since


class _Walk:
    """Finds what matches a pattern. It meets each path once, with all the places in the pattern at which
    it may be there, so that many `**` take no longer than one."""

    def __init__(self, file: File, stopped: Flag) -> None:
        parts = Path(file.path).parts
        self._parts = [
            part for n, part in enumerate(parts) if not n or (part, parts[n - 1]) != ("**", "**")
        ]
        self._pattern = file.path
        self._stopped = stopped
        self._left = self._most = WALKED_MAX + (file.count or 0)

    def matches(self, base: Path) -> Iterator[Path]:
        """Each path below the folder that matches, once; no more of them once we are stopped."""
        waiting = [(os.fspath(base), self._places([0]))]
        while waiting and not self._stopped.is_set():
            folder, places = waiting.pop()
            for path, after in self._within(folder, places):
                if len(self._parts) in after:
                    yield Path(path)
                if below := self._places(after):
                    waiting.append((path, below))

    def _places(self, places: Iterable[int]) -> set[int]:
        """The parts that what is in a folder may match: `**` may also stand for no folder at all."""
        end = len(self._parts)
        found = {place for place in places if place < end}
        zero = {place + 1 for place in found if self._parts[place] == "**" and place + 1 < end}
        return found | zero

    def _within(self, folder: str, places: set[int]) -> Iterator[tuple[str, set[int]]]:
        """What in the folder matches one of the parts, and the parts that come after."""
        named: dict[str, set[int]] = {}
        for place in places:
            if not _MAGIC & set(self._parts[place]):
                named.setdefault(self._parts[place], set()).add(place + 1)
        patterns = [place for place in places if self._parts[place] not in named]
        for entry in _entries(folder) if patterns else ():
            self._count()
            if self._stopped.is_set():
                return
            after = named.pop(entry.name, set())
            for place in patterns:
                after |= self._after(entry, place)
            if after:
                yield os.path.join(folder, entry.name), after
        for name, after in named.items():
            self._count()
            if _is_there(path := os.path.join(folder, name)):
                yield path, after

    def _after(self, entry: os.DirEntry[str], place: int) -> set[int]:
        """Where the pattern goes on below the entry. `**` follows no links: they may go in circles."""
        part = self._parts[place]
        if not _shown(entry.name, part):
            return set()
        last = place + 1 == len(self._parts)
        if part != "**":
            matches = _matcher(part).match(entry.name) and (last or entry.is_dir())
            return {place + 1} if matches else set()
        if entry.is_dir(follow_symlinks=False):
            return {place}
        return {place + 1} if last else set()

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Unavailable(
                f"{self._pattern} leads to more than {self._most:,} files and folders: "
                "narrow the pattern."
            )


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        entries = os.scandir(folder)
    except OSError as error:
        # A folder that was found, but whose whole path is too long for us, is one we do not see.
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


def _shown(name: str, pattern: str) -> bool:
    """Names that begin with a dot are matched by patterns that do."""
    return not name.startswith(".") or pattern.startswith(".")


@lru_cache(maxsize=64)
def _matcher(pattern: str) -> Pattern[str]:
    return compiled(translate(pattern))
