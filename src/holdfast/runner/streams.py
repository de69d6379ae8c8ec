"""The output of handlers: what they print and log goes to their job, from any thread or task."""

import io
import logging
import sys
from typing import TYPE_CHECKING, TextIO

from holdfast.runner.context import current_context

if TYPE_CHECKING:
    from typing_extensions import Buffer


def route() -> None:
    """Send everything printed or logged inside a handler to its job from now on."""
    sys.stdout = RoutedStream(sys.stdout, "stdout")
    sys.stderr = RoutedStream(sys.stderr, "stderr")
    handler = JobLogHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class RoutedStream(io.TextIOBase):
    """A text stream that writes to the job of the current handler; outside of handlers, to `plain`."""

    def __init__(self, plain: TextIO, stream: str) -> None:
        super().__init__()
        self._plain = plain
        self._stream = stream

    def write(self, text: str) -> int:
        context = current_context.get(None)
        if context is None:
            return self._plain.write(text)
        context.write(self._stream, text.encode(errors="replace"))
        return len(text)

    @property
    def buffer(self) -> "RoutedBytes":
        return RoutedBytes(self)

    def write_bytes(self, data: bytes) -> None:
        """Write bytes that need not be text."""
        context = current_context.get(None)
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
    """The bytes under a routed stream, for code that writes to `sys.stdout.buffer`."""

    def __init__(self, routed: RoutedStream) -> None:
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


class JobLogHandler(logging.Handler):
    """Writes log records to the job of the current handler; outside of handlers, to stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n"
        except Exception:
            self.handleError(record)
            return
        context = current_context.get(None)
        if context is None:
            sys.stderr.write(line)
        else:
            context.write("log", line.encode(errors="replace"))
