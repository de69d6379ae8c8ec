"""What a server writes: calls that failed or were slow. Never waiting for whoever reads it."""

import logging
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from holdfast.cli.safe import json_text, plain
from holdfast.cli.worker_log import Out, Stderr
from holdfast.server.tracing import where

_LEVELS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning"}


class Lines(logging.Handler):
    """Writes records as lines: for people, or as JSON in the words of a worker's log.

    Of an exception it writes what broke and where, never what it says: that may quote a payload.
    """

    def __init__(self, out: Out, *, as_json: bool) -> None:
        super().__init__()
        self._out = out
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        if self._out.missing:
            number, self._out.missing = self._out.missing, 0
            self._write(record, f"{number} lines are missing: nobody read them in time", None)
        words = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            words = f"{words}: {where(record.exc_info[1])}"
        self._write(record, words, getattr(record, "call", None))

    def _write(self, record: logging.LogRecord, words: str, told: dict[str, Any] | None) -> None:
        at = datetime.fromtimestamp(record.created, UTC)
        if not self._as_json:
            self._out.write(f"{at:%H:%M:%S} {plain(words)}\n")
            return
        level = _LEVELS.get(record.levelno, "error")
        line = {"time": at, "level": level, **(told or {"event": "trouble", "reason": words})}
        self._out.write(json_text(msgspec.json.encode(line)) + "\n")


class ServerLog:
    """The voice of a server, in either style. `verbose`: every call that is refused as well."""

    def __init__(self, style: str, *, verbose: bool = False) -> None:
        self._log = logging.getLogger("holdfast.server")
        self._as_json = style == "json"
        self._out = Stderr()
        self._lines = Lines(self._out, as_json=self._as_json)
        self._log.setLevel(logging.DEBUG if verbose else logging.INFO)
        logging.getLogger().addHandler(self._lines)

    def say(self, words: str, event: str, **told: object) -> None:
        """Something about the server itself."""
        if self._as_json:
            self._log.info(words, extra={"call": {"event": event, **told}})
        else:
            click.echo(words, err=True)

    def close(self) -> None:
        logging.getLogger().removeHandler(self._lines)
        self._out.close()
