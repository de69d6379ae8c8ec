"""Ids derived from other ids, so that the same request always means the same job."""

from hashlib import blake2b
from uuid import UUID


def derived_id(*parts: str) -> str:
    """Return a version 8 UUID over the parts; the slash between them cannot occur in an id."""
    digest = bytearray(blake2b("/".join(parts).encode(), digest_size=16).digest())
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return str(UUID(bytes=bytes(digest)))


def follow_up_id(job_id: str, token: int, number: int) -> str:
    """Return the id of the follow-up of this number that a job creates when it succeeds under this token.

    Ids from a queue and a request id have two parts, those of replays three: they never collide with these.
    The token keeps apart the follow-ups of a job that was pruned and then created again under its id.
    """
    return derived_id(job_id, "follow-up", str(token), str(number))
