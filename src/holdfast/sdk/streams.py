"""What handlers print and log is kept with their job, whichever thread or task they run in."""

import io
import logging
import sys
from typing import TYPE_CHECKING, TextIO

from holdfast.sdk.context import current

if TYPE_CHECKING:
    from typing_extensions import Buffer


def route() -> None:
    """From now on, what is printed or logged inside a handler goes to its job."""
    sys.stdout = Routed(sys.stdout, "stdout")
    sys.stderr = Routed(sys.stderr, "stderr")
    handler = JobLog()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class Routed(io.TextIOBase):
    """A text stream that writes to the job of whoever writes; outside of handlers, to `plain`."""

    def __init__(self, plain: TextIO, stream: str) -> None:
        super().__init__()
        self._plain = plain
        self._stream = stream

    def write(self, text: str) -> int:
        context = current.get(None)
        if context is None:
            return self._plain.write(text)
        context.write(self._stream, text.encode(errors="replace"))
        return len(text)

    @property
    def buffer(self) -> "RoutedBytes":
        return RoutedBytes(self)

    def write_bytes(self, data: bytes) -> None:
        """Write what is no text."""
        context = current.get(None)
        if context is None:
            self._plain.buffer.write(data)
        else:
            context.write(self._stream, data)

    def flush(self) -> None:
        self._plain.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._plain.fileno()

    def isatty(self) -> bool:
        return False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"


class RoutedBytes(io.RawIOBase):
    """The bytes under a routed stream, for whoever writes to `sys.stdout.buffer`."""

    def __init__(self, routed: Routed) -> None:
        super().__init__()
        self._routed = routed

    def writable(self) -> bool:
        return True

    def write(self, data: "Buffer") -> int:
        whole = bytes(memoryview(data))
        self._routed.write_bytes(whole)
        return len(whole)

    def flush(self) -> None:
        self._routed.flush()


class JobLog(logging.Handler):
    """Keeps log records with the job; outside of handlers they go to stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n"
        except Exception:
            self.handleError(record)
            return
        context = current.get(None)
        if context is None:
            sys.stderr.write(line)
        else:
            context.write("log", line.encode(errors="replace"))
