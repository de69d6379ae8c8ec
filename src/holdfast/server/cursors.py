"""Cursors on the wire: of a caller who does not see everything they are sealed, since a place among all
jobs or in everybody's log says how many others there are."""

from holdfast.core.access import Principal
from holdfast.core.visibility import sees_all, submitter
from holdfast.registry.local import LocalRegistry

JOBS, FEED = "jobs", "feed"


def log_of(job_id: str) -> str:
    """What the cursors of this job's log are good for."""
    return f"log/{job_id}"


def history_of(job_id: str) -> str:
    """What the cursors of this job's history are good for."""
    return f"history/{job_id}"


class Cursors:
    """Seals cursors on their way out, and opens them on their way in. One of one listing, log or key is
    good for no other."""

    def __init__(self, registry: LocalRegistry) -> None:
        self._registry = registry

    async def seal(self, who: Principal, what: str, cursor: str) -> str:
        """The cursor as this caller may have it."""
        if sees_all(who):
            return cursor
        return await self._registry.seal_cursor(cursor, holder=f"{submitter(who)}/{what}")

    async def open(self, who: Principal, what: str, text: str | None) -> str | None:
        """The cursor in what this caller sent; `Invalid` when it is none of theirs."""
        if text is None or sees_all(who):
            return text
        return await self._registry.unseal_cursor(text, holder=f"{submitter(who)}/{what}")
