"""What a command writes to, and we read: two pipes, or one terminal. All ends here are our own."""

import asyncio
import errno
import os
import termios
from asyncio import ReadTransport, StreamReader, StreamReaderProtocol
from collections.abc import Mapping
from typing import Protocol

from holdfast.core.limits import OUTPUT_CHUNK_BYTES_MAX


class Streams(Protocol):
    """`fds` are the ends to give away, under the numbers that the command knows them by."""

    fds: Mapping[int, int]

    async def open(self) -> dict[str, StreamReader]:
        """The reading ends, by name. The others were given away, and are closed here."""
        ...

    def close(self) -> None: ...


class Pipes:
    """The standard output and the standard error of a command, apart."""

    def __init__(self) -> None:
        self._out = _Reading(*os.pipe())
        try:
            self._err = _Reading(*os.pipe())
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
    """A terminal of the command's own; nobody types at it."""

    def __init__(self, rows: int, columns: int) -> None:
        self._reading = _Reading(*os.openpty())
        given = self._reading.given
        termios.tcsetwinsize(given, (rows, columns))
        self.fds: Mapping[int, int] = {0: given, 1: given, 2: given}

    async def open(self) -> dict[str, StreamReader]:
        return {"terminal": await self._reading.open()}

    def close(self) -> None:
        self._reading.close()


class _Reading:
    """One end to read, one end to give away."""

    def __init__(self, own: int, given: int) -> None:
        self._own: int | None = own
        self._transport: ReadTransport | None = None
        self.given: int = given

    async def open(self) -> StreamReader:
        self._give()
        assert self._own is not None  # it is opened once
        file, self._own = os.fdopen(self._own, "rb", buffering=0), None
        reader = StreamReader(limit=OUTPUT_CHUNK_BYTES_MAX)
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: _Protocol(reader), file
        )
        return reader

    def close(self) -> None:
        self._give()
        if self._transport is not None:
            self._transport.close()
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def _give(self) -> None:
        if self.given >= 0:
            os.close(self.given)
            self.given = -1


class _Protocol(StreamReaderProtocol):
    """A terminal that nobody has open any more answers with an I/O error: that is its end."""

    def connection_lost(self, exc: Exception | None) -> None:
        ended = isinstance(exc, OSError) and exc.errno == errno.EIO
        super().connection_lost(None if ended else exc)
