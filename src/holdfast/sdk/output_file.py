"""An output while it is written: a file of this process, until it is whole."""

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

from holdfast.sdk.drafts import Drafts

if TYPE_CHECKING:
    from holdfast.sdk.shelf import Shelf

_drafts = Drafts()


class OutputFile:
    """An output being written: `with ctx.output(name) as file`, or `async with` in coroutines.

    `file` is an ordinary binary file, and `file.name` its path, for whatever wants to write it itself. On
    leaving it is committed: whole, checksummed, under the token of this attempt. After an exception
    nothing is.
    """

    def __init__(self, shelf: "Shelf", name: str) -> None:
        self._shelf = shelf
        self._name = name

    def __enter__(self) -> BinaryIO:
        self._shelf.bridge.check_plain("async with ctx.output(name) as file")
        return self._draft()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._shelf.note(error)  # the disk of the draft may be full
        try:
            if kind is None and self._counts():
                self._shelf.bridge.wait(self._commit, "async with ctx.output(name) as file")
        finally:
            _drafts.remove(self._file)

    async def __aenter__(self) -> BinaryIO:
        return self._draft()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._shelf.note(error)
        try:
            if kind is None and self._counts():
                await self._shelf.bridge.go(self._commit)
        finally:
            _drafts.remove(self._file)

    def _draft(self) -> BinaryIO:
        with self._shelf.kept():
            self._file = _drafts.new(self._name)
        return self._file

    def _counts(self) -> bool:
        """Whether the job still needs it: one that resumes another is not asked for what is there."""
        return self._name in self._shelf.promise.names

    async def _commit(self) -> None:
        with self._shelf.kept():
            self._file.close()
        await self._shelf.commit(self._name, Path(self._file.name))
