"""record: facts from elsewhere, with ids of their own, about a job or about none."""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.catalogue import EventClass
from holdfast.core.event import Event, check_external, kept_in
from holdfast.registry.line import Line


async def record(line: Line, events: Sequence[Event], *, reach: str | None = None) -> int:
    """Append them; ids that are known already are ignored. Answers how many were new. With a `reach`, ids
    are those of its callers alone, or of the job that the fact is about; without one there is one space."""
    now = await line.store.now()
    checked = []
    for event in events:
        mine = replace(check_external(event), event_class=EventClass.EXTERNAL, received_at=now)
        checked.append(mine if reach is None else kept_in(mine, reach))
    new = await line.store.record(checked)
    line.counted.others[EventClass.EXTERNAL] += new
    return new
