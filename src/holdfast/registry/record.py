"""record: external events, with ids of the caller's own, about a job or about none."""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.catalogue import EventClass
from holdfast.core.event import Event, check_external, with_scoped_id
from holdfast.registry.commit_queue import CommitQueue


async def record(commits: CommitQueue, events: Sequence[Event], *, reach: str | None = None) -> int:
    """Append the events, ignoring known ids; return how many were new. With a `reach`, ids are unique among
    its callers, or within the job that the event is about; without one they are unique in the store."""
    now = await commits.store.now()
    checked = []
    for event in events:
        external = replace(check_external(event), event_class=EventClass.EXTERNAL, received_at=now)
        checked.append(external if reach is None else with_scoped_id(external, reach))
    new = await commits.store.record(checked)
    commits.counters.other_events[EventClass.EXTERNAL] += new
    return new
