"""The log of a server: calls that failed or were slow. Writing it never waits for a reader."""

import logging
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from holdfast.cli.terminal_escape import json_text, plain
from holdfast.cli.worker_log import LineWriter, StderrWriter
from holdfast.server.call_records import error_location

_LEVELS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning"}


class LineHandler(logging.Handler):
    """A handler that writes lines: for people, or as JSON with the fields of a worker's log.

    Of an exception it writes the class and the place, never the message: that may quote a payload.
    """

    def __init__(self, out: LineWriter, *, as_json: bool) -> None:
        super().__init__()
        self._out = out
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        if self._out.missing:
            number, self._out.missing = self._out.missing, 0
            self._write(record, f"{number} lines are missing: stderr was not read in time", None)
        words = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            words = f"{words}: {error_location(record.exc_info[1])}"
        self._write(record, words, getattr(record, "call", None))

    def _write(self, record: logging.LogRecord, words: str, fields: dict[str, Any] | None) -> None:
        at = datetime.fromtimestamp(record.created, UTC)
        if not self._as_json:
            self._out.write(f"{at:%H:%M:%S} {plain(words)}\n")
            return
        level = _LEVELS.get(record.levelno, "error")
        line = {"time": at, "level": level, **(fields or {"event": "trouble", "reason": words})}
        self._out.write(json_text(msgspec.json.encode(line)) + "\n")


class ServerLog:
    """The log of a server, as text or JSON; with `verbose`, every refused call as well."""

    def __init__(self, style: str, *, verbose: bool = False) -> None:
        self._log = logging.getLogger("holdfast.server")
        self._as_json = style == "json"
        self._out = StderrWriter()
        self._lines = LineHandler(self._out, as_json=self._as_json)
        self._log.setLevel(logging.DEBUG if verbose else logging.INFO)
        logging.getLogger().addHandler(self._lines)

    def print_line(self, words: str, event: str, **fields: object) -> None:
        """Write a line about the server itself."""
        if self._as_json:
            self._log.info(words, extra={"call": {"event": event, **fields}})
        else:
            click.echo(words, err=True)

    def close(self) -> None:
        logging.getLogger().removeHandler(self._lines)
        self._out.close()
