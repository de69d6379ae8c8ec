"""The resume chain of a job: the job and those that resumed it. The outputs of all count for the job."""

import re
from datetime import datetime

from msgspec import Struct

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.errors import NotFound
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.limits import ID_CHARACTERS_MAX
from holdfast.ports import Registry

_SUFFIX = re.compile(r"-resume-[0-9a-f]{4}\Z")
_SUFFIX_CHARACTERS = len("-resume-0000")


class ResumeChain(Struct, frozen=True, kw_only=True):
    """Whose outputs count for a job: the (job, token) of every accepted completion, the places
    (`machine:folder`) in which the jobs ran, failed ones too, and when the first was claimed. The job
    itself comes first."""

    owners: tuple[tuple[str, int], ...] = ()
    places: tuple[str, ...] = ()
    since: datetime | None = None


def chain_id(job_id: str) -> str:
    """Return what the ids of all jobs of a chain have in common."""
    return _SUFFIX.sub("", job_id)[: ID_CHARACTERS_MAX - _SUFFIX_CHARACTERS]


async def load_resume_chain(registry: Registry, job: Job) -> ResumeChain:
    """Return the chain from the logs of its jobs; an accepted completion has its token there."""
    owners: list[tuple[str, int]] = []
    places: dict[str, None] = {}
    since: datetime | None = None
    waiting = [job.job_id]
    known = set(waiting)
    while waiting:
        job_id = waiting.pop(0)
        for event in await _events(registry, job_id):
            if event.event_class is EventClass.TRANSITION:
                if event.event_type == EventType.CLAIMED:
                    since = since or event.occurred_at
                if event.event_type == EventType.VALIDATING:
                    owners.append((job_id, event.fencing_token or 0))
                if isinstance(where := event.attributes.get("where"), str):
                    places[where] = None
            elif event.event_type == EventType.RESUMED:
                resumed_as = str(event.attributes.get("resumed_as"))
                if resumed_as not in known:
                    known.add(resumed_as)
                    waiting.append(resumed_as)
    return ResumeChain(owners=tuple(owners), places=tuple(places), since=since)


async def _events(registry: Registry, job_id: str) -> list[Event]:
    """Return the events of a job without its output; none for a job that was pruned."""
    events: list[Event] = []
    cursor = None
    try:
        while part := await registry.logs(job_id, after=cursor, limit=1000, output=False):
            if not part.events:
                break
            events += part.events
            cursor = part.cursor
    except NotFound:
        return []
    return events
