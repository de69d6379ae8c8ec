"""The output of handlers: what they print and log goes to their job, from any thread or task."""

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from holdfast.runner.context import current_context

if TYPE_CHECKING:
    from typing_extensions import Buffer


LOG_FORMAT = "%(levelname)s %(name)s: %(message)s"


def route() -> None:
    """Send everything printed or logged inside a handler to its job from now on."""
    sys.stdout = RoutedStream(sys.stdout, "stdout")
    sys.stderr = RoutedStream(sys.stderr, "stderr")
    handler = JobLogHandler()
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


@contextmanager
def routed() -> Iterator[None]:
    """A context in which what handlers print and log goes to their jobs, in a process that has other work
    too: everything else goes where it went before. Contexts may overlap."""
    streams = {name: SharedStream(getattr(sys, name), name) for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        setattr(sys, name, stream)
    handler = SharedJobLogHandler()
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    own = logging.getLogger("holdfast.job")
    level = own.level
    own.setLevel(level or logging.INFO)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        own.setLevel(level)
        for name, stream in streams.items():
            if getattr(sys, name) is stream:  # else it is under that of somebody who came later
                setattr(sys, name, stream.plain)


class RoutedStream(io.TextIOBase):
    """A text stream that writes to the job of the current handler; outside of handlers, to `plain`."""

    def __init__(self, plain: TextIO, stream: str) -> None:
        super().__init__()
        self.plain = plain
        self._stream = stream

    def write(self, text: str) -> int:
        context = current_context.get(None)
        if context is None:
            return self.plain.write(text)
        context.write(self._stream, text.encode(errors="replace"))
        return len(text)

    @property
    def buffer(self) -> "RoutedBytes":
        return RoutedBytes(self)

    def write_bytes(self, data: bytes) -> None:
        """Write bytes that need not be text."""
        context = current_context.get(None)
        if context is None:
            self.plain.buffer.write(data)
        else:
            context.write(self._stream, data)

    def flush(self) -> None:
        self.plain.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.plain.fileno()

    def isatty(self) -> bool:
        return False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"


class SharedStream(RoutedStream):
    """A routed stream in a process that has other work: for that, it is what it stands for."""

    def isatty(self) -> bool:
        return current_context.get(None) is None and self.plain.isatty()

    def close(self) -> None:
        """Do nothing: what it stands for is not ours to close."""

    def __getattr__(self, name: str) -> object:
        return getattr(self.plain, name)


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


class SharedJobLogHandler(JobLogHandler):
    """Writes log records to the job of the current handler. Outside of handlers it does what would be done
    without it."""

    def emit(self, record: logging.LogRecord) -> None:
        if current_context.get(None) is not None:
            super().emit(record)
        elif all(isinstance(one, SharedJobLogHandler) for one in logging.getLogger().handlers):
            last = logging.lastResort
            if last is not None and record.levelno >= last.level:
                last.handle(record)
