"""Redaction: secret values never leave the worker, even when a job prints them."""

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.core.limits import SHORTENED
from holdfast.core.tracebacks import LEFT_OUT

MASK = b"***"
SECRET_BYTES_MIN = 4
T = TypeVar("T")

_CUT = re.compile(f"({LEFT_OUT.pattern}|{re.escape(SHORTENED)}$)")
"""Where a text was shortened before it came here, which may be in the middle of a secret."""


class Redactor:
    """Masks secret values in a stream of chunks; what might be the start of one is held back.

    Values shorter than four bytes are not masked: they occur in ordinary text. A value is also masked in
    its JSON encoding.
    """

    def __init__(self, secrets: Iterable[str], *, terminal: bool = False) -> None:
        values = {os.fsencode(secret) for secret in secrets}
        values |= {_in_json(value) for value in values}
        if terminal:  # it writes the end of a line as two characters
            values |= {value.replace(b"\n", b"\r\n") for value in values}
        self._values = sorted((v for v in values if len(v) >= SECRET_BYTES_MIN), key=len, reverse=True)
        self._longest = max(map(len, self._values), default=0)
        self._pattern = re.compile(b"|".join(map(re.escape, self._values)) or b"(?!)")
        self._held = b""

    def copy(self, more: Sequence[str] = (), *, terminal: bool = False) -> "Redactor":
        """Return a redactor for another stream, with the same secrets and `more`."""
        if not (self._values or more):
            return self
        return Redactor([*map(os.fsdecode, self._values), *more], terminal=terminal)

    @property
    def hides(self) -> bool:
        """Whether there is anything to hide."""
        return bool(self._values)

    def document(self, data: bytes) -> bytes:
        """Return a whole text, or a JSON document, with secrets masked."""
        return self._pattern.sub(MASK, data) if self._values else data

    def text(self, text: str) -> str:
        if not self._values:
            return text
        parts = _CUT.split(text)
        parts[::2] = [self._part(part, n, len(parts)) for n, part in enumerate(parts) if n % 2 == 0]
        return "".join(parts)

    def _part(self, text: str, place: int, parts: int) -> str:
        """Return one of the parts into which a text was cut, without what may be left of a secret there."""
        data = text.encode(errors="surrogatepass")
        if place > 0:
            data = data[self._safe_start(data) :]
        if place < parts - 1:
            data = data[: self._safe_end(data)]
        return self.document(data).decode(errors="surrogatepass")

    def value(self, value: T) -> T:
        """Return the JSON value with secrets masked in all of its strings."""
        return self._value(value) if self._values else value

    def _value(self, value: Any) -> Any:  # noqa: ANN401
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self._value(name): self._value(one) for name, one in value.items()}
            case list() | tuple():
                return [self._value(one) for one in value]
        return value

    def feed(self, chunk: bytes) -> bytes:
        if not self._values:
            return chunk
        text = self._held + chunk
        cut = self._safe_end(text)
        self._held = text[cut:]
        return self._pattern.sub(MASK, text[:cut])

    def flush(self) -> bytes:
        rest, self._held = self._pattern.sub(MASK, self._held), b""
        return rest

    def _safe_start(self, text: bytes) -> int:
        """Return where the text begins behind what may be the end of a secret."""
        ends = range(min(len(text), self._longest - 1), 0, -1)
        start = next((n for n in ends if any(value.endswith(text[:n]) for value in self._values)), 0)
        for match in self._pattern.finditer(text):
            if match.start() < start < match.end():
                return match.end()
        return start

    def _safe_end(self, text: bytes) -> int:
        """Return where the text can be cut so that no secret is cut: before a tail that may be the
        beginning of a secret, and before a secret that contains such a tail."""
        cut = len(text)
        for start in range(max(0, cut - self._longest + 1), cut):
            tail = text[start:]
            if any(len(value) > len(tail) and value.startswith(tail) for value in self._values):
                cut = start
                break
        for match in self._pattern.finditer(text):
            if match.start() < cut < match.end():
                return match.start()
        return cut


NOTHING_HIDDEN = Redactor(())


def _in_json(value: bytes) -> bytes:
    """Return the value as a JSON string contains it; one that is not text stays as it is."""
    try:
        return msgspec.json.encode(value.decode())[1:-1]
    except UnicodeDecodeError:
        return value
