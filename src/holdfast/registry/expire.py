"""expire: what time does to jobs. Anybody may call it, as often as they like; nobody has to."""

from holdfast.registry.line import Line


async def expire(line: Line, *, limit: int) -> int:
    """Close attempts whose lease has lapsed and jobs past their deadline; answers how many changed."""
    return await line.sweep(limit)
