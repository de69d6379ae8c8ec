"""The task token: the proof of a grant that a wire client holds. Nothing is stored for it."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

from msgspec import Struct

from holdfast.core.errors import Invalid, NotFound

TASK_TOKEN_CHARACTERS_MAX = 1024
_MAC_BYTES = 16


class SealedGrant(Struct, frozen=True):
    """The content of a task token: the grant, and the job's queue, region and owner, so that a server need
    not read the job. The fencing token orders, the MAC authenticates."""

    job_id: str
    attempt: int
    fencing_token: int
    queue: str = "default"
    region: str | None = None
    owner: str = ""


def seal(key: bytes, grant: SealedGrant, holder: str = "") -> str:
    """Return the token of this grant, valid for `holder` only. The same grant always has the same token."""
    place = f"{grant.queue}/{grant.region or ''}/{grant.owner}"
    body = f"{grant.job_id}/{grant.attempt}/{grant.fencing_token}/{place}".encode()
    return urlsafe_b64encode(_mac(key, body, holder) + body).rstrip(b"=").decode()


def unseal(key: bytes, token: str, holder: str = "") -> SealedGrant:
    """Return the grant of this token. Raise `Invalid` for an empty or oversized token, and `NotFound` for
    one that was not sealed for this holder."""
    if not token or len(token) > TASK_TOKEN_CHARACTERS_MAX:
        raise Invalid("The task token is empty or too long.")
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, _mac(key, body, holder)):
            raise NotFound("The task token is unknown or expired.")
        job_id, attempt, fencing_token, queue, region, owner = body.decode().split("/")
        return SealedGrant(job_id, int(attempt), int(fencing_token), queue, region or None, owner)
    except ValueError:
        raise NotFound("The task token is unknown or expired.") from None


def _mac(key: bytes, body: bytes, holder: str) -> bytes:
    held = body + b"/" + holder.encode() if holder else body
    return hmac.digest(key, held, sha256().name)[:_MAC_BYTES]
