"""Sealed cursors: a reader's place, for callers that must not learn how much lies between two cursors."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256, shake_256

from holdfast.core.errors import Invalid

CURSOR_CHARACTERS_MAX = 400
_NONCE_BYTES = 12
_MAC_BYTES = 16
_BLOCK_BYTES = 32
"""Cursors are padded to a multiple of this, because their length grows with the number of events."""


def seal(key: bytes, cursor: str, *, holder: str, nonce: bytes) -> str:
    """Return the cursor encrypted, valid for `holder` only. With a new nonce each time, two sealed cursors
    of the same place have nothing in common."""
    plain = cursor.encode()
    plain += b"\0" * (-len(plain) % _BLOCK_BYTES)
    head = nonce[:_NONCE_BYTES]
    body = head + _masked(key, head, plain)
    return urlsafe_b64encode(_mac(key, body, holder) + body).rstrip(b"=").decode()


def unseal(key: bytes, text: str, *, holder: str) -> str:
    """Return the cursor in the text; raise `Invalid` if it was not sealed for this holder."""
    try:
        raw = urlsafe_b64decode(text[:CURSOR_CHARACTERS_MAX] + "=" * (-len(text) % 4))
    except ValueError:
        raw = b""
    mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
    if not hmac.compare_digest(mac, _mac(key, body, holder)):
        raise Invalid(f"{text[:40]!r} is not a cursor of this key; start without one.")
    head, masked = body[:_NONCE_BYTES], body[_NONCE_BYTES:]
    return _masked(key, head, masked).rstrip(b"\0").decode()


def _masked(key: bytes, nonce: bytes, text: bytes) -> bytes:
    mask = shake_256(b"holdfast cursor" + key + nonce).digest(len(text))
    return bytes(a ^ b for a, b in zip(text, mask, strict=True))


def _mac(key: bytes, body: bytes, holder: str) -> bytes:
    """The MAC. Its prefix keeps it apart from a task token's, which begins with the id of a job."""
    return hmac.digest(key, b"\0cursor\0" + body + holder.encode(), sha256().name)[:_MAC_BYTES]
