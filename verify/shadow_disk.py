"""What a power cut leaves: a model disk beside the real one, which knows what was synced and what not."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR_BYTES = 512


@dataclass(frozen=True)
class Write:
    """Bytes at an offset; with no bytes, the file ends there."""

    offset: int
    data: bytes | None


@dataclass
class ShadowFile:
    """What is on the platter, what the page cache still owes it, and whether it was ever synced."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write] = field(default_factory=list)
    synced: bool = False


class ShadowDisk:
    """Follows a `FaultyDisk`. A failed sync forgets what it should have written, as Linux does: the
    pages count as clean, so no later sync writes them."""

    def __init__(self) -> None:
        self.files: dict[str, ShadowFile] = defaultdict(ShadowFile)
        self.ghosts: dict[str, bytearray] = {}

    def written(self, name: str, offset: int, data: bytes) -> None:
        self.files[name].pending.append(Write(offset, data))

    def truncated(self, name: str, size: int) -> None:
        self.files[name].pending.append(Write(size, None))

    def synced(self, name: str, *, failed: bool) -> None:
        """The first sync of a new log or journal syncs the folder too: SQLite sees to that."""
        file = self.files[name]
        if not failed:
            for write in file.pending:
                _apply(file.durable, write)
            if not file.synced and name.endswith(("-wal", "-journal")):
                self.ghosts.clear()
            file.synced = True
        file.pending.clear()

    def deleted(self, name: str, *, durable: bool) -> None:
        if file := self.files.pop(name, None):
            self.ghosts.pop(name, None)
            if not durable:
                self.ghosts[name] = file.durable

    def lay_out(self, folder: Path) -> None:
        """Write the files as a cut would leave them at worst: nothing that was not synced."""
        folder.mkdir()
        for name, file in self.files.items():
            (folder / name).write_bytes(file.durable)

    def lay_out_at_random(self, folder: Path, chance: random.Random) -> None:
        """Write the files as a cut might leave them: of what was not synced, some writes, in whatever
        order, some of them torn between sectors; a deleted file may be there again."""
        folder.mkdir()
        for name, content in self.ghosts.items():
            if name not in self.files and chance.random() < 0.5:
                (folder / name).write_bytes(content)
        for name, file in self.files.items():
            content = bytearray(file.durable)
            kept = [write for write in file.pending if chance.random() < 0.7]
            if chance.random() < 0.5:
                chance.shuffle(kept)
            for write in kept:
                _apply(content, _torn(write, chance) if chance.random() < 0.3 else write)
            (folder / name).write_bytes(content)


class Recording:
    """Every call that changed a file, in order, to be played again; `note` puts marks between them."""

    def __init__(self) -> None:
        self.calls: list[Callable[[ShadowDisk], None]] = []
        self.marks: list[tuple[int, str, str]] = []

    def note(self, name: str, value: str) -> None:
        self.marks.append((len(self.calls), name, value))

    def written(self, name: str, offset: int, data: bytes) -> None:
        self.calls.append(lambda disk: disk.written(name, offset, data))

    def truncated(self, name: str, size: int) -> None:
        self.calls.append(lambda disk: disk.truncated(name, size))

    def synced(self, name: str, *, failed: bool) -> None:
        self.calls.append(lambda disk: disk.synced(name, failed=failed))

    def deleted(self, name: str, *, durable: bool) -> None:
        self.calls.append(lambda disk: disk.deleted(name, durable=durable))

    def instants(self) -> Iterator[tuple[ShadowDisk, dict[str, str]]]:
        """The disk after each call, and the marks up to there."""
        disk = ShadowDisk()
        for done, call in enumerate(self.calls, start=1):
            call(disk)
            yield disk, {name: value for place, name, value in self.marks if place <= done}


def _apply(content: bytearray, write: Write) -> None:
    if write.data is None:
        del content[write.offset :]
        content.extend(bytes(write.offset - len(content)))
        return
    end = write.offset + len(write.data)
    content.extend(bytes(max(0, write.offset - len(content))))
    content[write.offset : end] = write.data


def _torn(write: Write, chance: random.Random) -> Write:
    """The write up to a sector's end somewhere in it."""
    if write.data is None:
        return write
    end = write.offset + len(write.data)
    first, last = write.offset // SECTOR_BYTES + 1, end // SECTOR_BYTES
    if first > last:
        return write
    cut = chance.randint(first, last) * SECTOR_BYTES
    return Write(write.offset, write.data[: cut - write.offset])
