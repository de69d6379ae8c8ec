"""Plain paths: what a command wrote by itself, as it is found on the machine it ran on.

A path is taken below the folder the command ran in. What has `*`, `?` or `[` in it, and is not there
under that very name, is a pattern, in which `**` stands for any folders. Not to be allowed to look is
never the same as not there: then an `OSError` tells why.
"""

import asyncio
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from re import Pattern
from re import compile as compiled
from threading import Event as Flag

from msgspec import Struct

from holdfast.core.errors import Unavailable
from holdfast.core.limits import clip
from holdfast.core.outputs import File, Output

HASHED_BYTES_MAX = 64 * 1024 * 1024
"""Up to this size a checksum is taken for the evidence, also where none was promised."""

_PART_BYTES = 1024 * 1024
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_MAGIC = frozenset("*?[")
_ABSENT = "not there"
_DANGLING = "a link to nothing"
_REASON_CHARACTERS = 160


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
        return await asyncio.to_thread(_check, file, base, since, stopped)
    finally:
        stopped.set()  # whoever is cancelled leaves no thread behind that reads for hours


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
    for path in _matches(base, Path(file.path).parts):
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


def _matches(base: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    """What matches the parts of a pattern below a folder, each path once."""
    if parts.count("**") < 2:
        yield from _expand(base, parts)
        return
    known: set[Path] = set()
    for path in _expand(base, parts):
        if path not in known:
            known.add(path)
            yield path


def _expand(folder: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    if not parts:
        yield folder
        return
    first, rest = parts[0], parts[1:]
    if first == "**":
        yield from _below(folder, rest)
    elif not _MAGIC & set(first):
        if rest or os.path.lexists(folder / first):
            yield from _expand(folder / first, rest)
    else:
        for entry in _entries(folder):
            if _matcher(first).match(entry.name) and _shown(entry.name, first):
                yield from _expand(folder / entry.name, rest)


def _below(folder: Path, rest: tuple[str, ...]) -> Iterator[Path]:
    """What matches here and in all folders below, to which no link leads: links may go in circles."""
    if rest:
        yield from _expand(folder, rest)
    for entry in _entries(folder):
        if not _shown(entry.name, "**"):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _below(folder / entry.name, rest)
        elif not rest:
            yield folder / entry.name


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        entries = os.scandir(folder)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return
    with entries:
        yield from entries


def _shown(name: str, pattern: str) -> bool:
    """Names that begin with a dot are matched by patterns that do."""
    return not name.startswith(".") or pattern.startswith(".")


@lru_cache(maxsize=64)
def _matcher(pattern: str) -> Pattern[str]:
    return compiled(translate(pattern))
