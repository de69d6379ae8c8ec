"""Pipes of our own to a child process: asyncio's own make `wait` last until every grandchild is gone."""

import asyncio
import os
from asyncio import ReadTransport, StreamReader, StreamReaderProtocol
from contextlib import suppress

from holdfast.core.limits import OUTPUT_CHUNK_BYTES_MAX


class Pipe:
    """One end to give away, one end to read."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        self._transport: ReadTransport | None = None

    async def open(self) -> StreamReader:
        """The reading end; the other was given away, and is closed here."""
        os.close(self.write_end)
        reader = StreamReader(limit=OUTPUT_CHUNK_BYTES_MAX)
        file = os.fdopen(self._read_end, "rb", buffering=0)
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: StreamReaderProtocol(reader), file
        )
        return reader

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            return
        for end in (self._read_end, self.write_end):
            with suppress(OSError):
                os.close(end)
