"""expire: end leases, timeouts and deadlines that are over. Any process may call it, at any time."""

from holdfast.core.errors import Invalid
from holdfast.core.limits import BATCH_ITEMS_MAX
from holdfast.registry.commit_queue import CommitQueue


async def expire(commits: CommitQueue, *, limit: int = 100) -> int:
    """Close attempts whose lease has expired and jobs past their deadline; return how many changed."""
    if not 1 <= limit <= BATCH_ITEMS_MAX:
        raise Invalid(f"One call expires from 1 to {BATCH_ITEMS_MAX} jobs, not {limit}.")
    return await commits.expire_due(limit)
