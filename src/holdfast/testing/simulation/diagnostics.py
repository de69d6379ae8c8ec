"""What a run would print beside its result: log records, warnings, exceptions that nobody can catch."""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO


class Diagnostics:
    """The messages of one run, in order. A sound run has none."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def add_record(self, record: logging.LogRecord) -> None:
        """Take a log record that would have been printed."""
        error = record.exc_info[1] if record.exc_info else None
        self._add(f"logged by {record.name}", record.getMessage(), error)

    def add_warning(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        """Take a warning, in place of `warnings.showwarning`."""
        self._add("warned", f"{category.__name__}: {message}", None)

    def add_unraisable(self, unraisable: Any) -> None:
        """Take an exception that has no caller, in place of `sys.unraisablehook`.

        The object it names is not kept: that would bring it back to life."""
        words = unraisable.err_msg or f"Exception ignored in {type(unraisable.object).__name__}"
        self._add("unraisable", words, unraisable.exc_value)

    def _add(self, kind: str, words: str, error: BaseException | None) -> None:
        self.messages.append(f"{kind}: {words}" + ("" if error is None else f" ({error!r})"))


@contextmanager
def collected() -> Iterator[Diagnostics]:
    """Collect everything that would be printed meanwhile. Nothing is."""
    diagnostics = Diagnostics()
    handler = _Handler(diagnostics.add_record)
    unraisable = sys.unraisablehook
    logging.getLogger().addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = diagnostics.add_warning
            sys.unraisablehook = diagnostics.add_unraisable
            yield diagnostics
    finally:
        sys.unraisablehook = unraisable
        logging.getLogger().removeHandler(handler)


class _Handler(logging.Handler):
    """Hands on what Python prints where nobody has set up logging: warnings and worse."""

    def __init__(self, take: Callable[[logging.LogRecord], None]) -> None:
        super().__init__(logging.WARNING)
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        self._take(record)
