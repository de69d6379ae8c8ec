"""expire: what time does to jobs. Anybody may call it, as often as they like; nobody has to."""

from holdfast.core.errors import Invalid
from holdfast.core.limits import BATCH_ITEMS_MAX
from holdfast.registry.line import Line


async def expire(line: Line, *, limit: int = 100) -> int:
    """Close attempts whose lease has lapsed and jobs past their deadline; answers how many changed."""
    if not 1 <= limit <= BATCH_ITEMS_MAX:
        raise Invalid(f"A sweep looks at 1 to {BATCH_ITEMS_MAX} jobs, not {limit}.")
    return await line.sweep(limit)
