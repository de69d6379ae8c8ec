"""The record of what owners did and of the responses: one line each, in one file, written at once."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

GRANTED, STOPPED, THAWED, WRITE = "granted", "stopped", "thawed", "write"
DONE, FENCED, UNAVAILABLE = "done", "Fenced", "Unavailable"


class Act(Struct, frozen=True, omit_defaults=True):
    """One try of one owner, from `began` to `ended` on this machine's monotonic clock.

    `verb` is one of the registry, `write` to a ledger, or what happened to the owner itself; `form` says
    which ending, or which ledger. The answer is `done`, or the name of the error. `number` counts the
    owner's tries, so that a row in a ledger can be told from all others.
    """

    who: str
    verb: str
    began: float
    ended: float
    job: str = ""
    token: int = 0
    answer: str = DONE
    form: str = ""
    number: int = 0


class Record:
    """The file. Several processes write to it at once: a line is one append, which is not torn."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)
        self._read = 0
        self._rest = b""

    def write(self, act: Act) -> None:
        os.write(self._file, msgspec.json.encode(act) + b"\n")

    def read(self) -> Sequence[Act]:
        """What was written since the last reading."""
        data = self._rest + b"".join(iter(self._page, b""))
        *lines, self._rest = data.split(b"\n")
        return [msgspec.json.decode(line, type=Act) for line in lines]

    def _page(self) -> bytes:
        page = os.pread(self._file, 1 << 20, self._read)
        self._read += len(page)
        return page

    def close(self) -> None:
        os.close(self._file)
