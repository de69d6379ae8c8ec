"""Redaction: secret values never leave the worker, even when a job prints them."""

from collections.abc import Iterable

MASK = b"***"
SECRET_BYTES_MIN = 4


class Redactor:
    """Replaces secret values in a stream of chunks; what might be the start of one is held back.

    Values shorter than four bytes are not looked for: they would blot out ordinary text.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        values = {secret.encode() for secret in secrets}
        self._values = sorted(
            (v for v in values if len(v) >= SECRET_BYTES_MIN), key=len, reverse=True
        )
        self._keep = max((len(value) - 1 for value in self._values), default=0)
        self._held = b""

    def again(self) -> "Redactor":
        """One for another stream with the same secrets."""
        return Redactor(value.decode() for value in self._values)

    def feed(self, chunk: bytes) -> bytes:
        if not self._values:
            return chunk
        text = self._masked(self._held + chunk)
        cut = self._safe_end(text)
        self._held = text[cut:]
        return text[:cut]

    def flush(self) -> bytes:
        rest, self._held = self._masked(self._held), b""
        return rest

    def _masked(self, text: bytes) -> bytes:
        for value in self._values:
            text = text.replace(value, MASK)
        return text

    def _safe_end(self, text: bytes) -> int:
        """Where the text can be cut so that no secret is cut: before any tail that could begin one."""
        for start in range(max(0, len(text) - self._keep), len(text)):
            tail = text[start:]
            if any(value.startswith(tail) for value in self._values):
                return start
        return len(text)
