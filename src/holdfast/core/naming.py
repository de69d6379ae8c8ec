"""Names that follow from other names: the same request always means the same job."""

from hashlib import blake2b
from uuid import UUID


def derived_id(*parts: str) -> str:
    """A version 8 UUID over the parts; the slash between them cannot occur in an id."""
    digest = bytearray(blake2b("/".join(parts).encode(), digest_size=16).digest())
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return str(UUID(bytes=bytes(digest)))


def follow_up_id(job_id: str, token: int, number: int) -> str:
    """The id of the follow-up of this number that a job makes when it succeeds under this token.

    Queues and request ids make names of two parts, replays of three: none of them meets these. The
    token keeps apart what a job makes that was forgotten and then made again under the same id.
    """
    return derived_id(job_id, "follow-up", str(token), str(number))
