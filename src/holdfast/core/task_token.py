"""The task token: what a wire client holds as proof of a grant. Nothing is stored for it."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

from msgspec import Struct

from holdfast.core.errors import Invalid, NotFound

TASK_TOKEN_CHARACTERS_MAX = 512
_MAC_BYTES = 16


class Claimed(Struct, frozen=True):
    """What a task token says: which grant of which job. The integer orders, the MAC authenticates."""

    job_id: str
    attempt: int
    fencing_token: int


def seal(key: bytes, grant: Claimed) -> str:
    """The token of this grant; the same grant always has the same one."""
    body = f"{grant.job_id}/{grant.attempt}/{grant.fencing_token}".encode()
    return urlsafe_b64encode(_mac(key, body) + body).rstrip(b"=").decode()


def unseal(key: bytes, token: str) -> Claimed:
    """The grant of this token. Empty or oversized is `Invalid`; one we never made is `NotFound`."""
    if not token or len(token) > TASK_TOKEN_CHARACTERS_MAX:
        raise Invalid("The task token is empty or too long.")
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, _mac(key, body)):
            raise NotFound("The task token is unknown or expired.")
        job_id, attempt, fencing_token = body.decode().rsplit("/", 2)
        return Claimed(job_id, int(attempt), int(fencing_token))
    except ValueError:
        raise NotFound("The task token is unknown or expired.") from None


def _mac(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, body, sha256().name)[:_MAC_BYTES]
