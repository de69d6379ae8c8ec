"""The standard streams of a command, read by the worker: two pipes, or one terminal."""

import asyncio
import errno
import os
import termios
from asyncio import ReadTransport, StreamReader, StreamReaderProtocol
from collections.abc import Mapping
from typing import Protocol

from holdfast.core.limits import OUTPUT_CHUNK_BYTES_MAX


class Streams(Protocol):
    """`fds` are the ends to give to the command, by their numbers there."""

    fds: Mapping[int, int]

    async def open(self) -> dict[str, StreamReader]:
        """Return the reading ends, by stream. The other ends, which the command has by now, are closed."""
        ...

    def close(self) -> None: ...


class Pipes:
    """The standard output and the standard error of a command, as separate pipes."""

    def __init__(self) -> None:
        self._out = _Stream(*os.pipe())
        try:
            self._err = _Stream(*os.pipe())
        except OSError:
            self._out.close()
            raise
        self.fds: Mapping[int, int] = {1: self._out.given, 2: self._err.given}

    async def open(self) -> dict[str, StreamReader]:
        return {"stdout": await self._out.open(), "stderr": await self._err.open()}

    def close(self) -> None:
        self._out.close()
        self._err.close()


class Terminal:
    """A terminal for the command alone; it gets no input."""

    def __init__(self, rows: int, columns: int) -> None:
        self._stream = _Stream(*os.openpty())
        given = self._stream.given
        termios.tcsetwinsize(given, (rows, columns))
        self.fds: Mapping[int, int] = {0: given, 1: given, 2: given}

    async def open(self) -> dict[str, StreamReader]:
        return {"terminal": await self._stream.open()}

    def close(self) -> None:
        self._stream.close()


class _Stream:
    """One end to read, one end to give to the command."""

    def __init__(self, own: int, given: int) -> None:
        self._own: int | None = own
        self._transport: ReadTransport | None = None
        self.given: int = given

    async def open(self) -> StreamReader:
        self._close_given()
        assert self._own is not None  # it is opened once
        file, self._own = os.fdopen(self._own, "rb", buffering=0), None
        reader = StreamReader(limit=OUTPUT_CHUNK_BYTES_MAX)
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: _Protocol(reader), file
        )
        return reader

    def close(self) -> None:
        self._close_given()
        if self._transport is not None:
            self._transport.close()
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def _close_given(self) -> None:
        if self.given >= 0:
            os.close(self.given)
            self.given = -1


class _Protocol(StreamReaderProtocol):
    """Takes an I/O error as the end: a terminal raises it when no process has it open any more."""

    def connection_lost(self, exc: Exception | None) -> None:
        ended = isinstance(exc, OSError) and exc.errno == errno.EIO
        super().connection_lost(None if ended else exc)
