"""Sizes: about how much memory things take, so that no answer takes more than it may."""

from collections.abc import Iterable

import msgspec

from holdfast.core.errors import Exhausted
from holdfast.core.event import Event
from holdfast.core.job import Job, job_bytes
from holdfast.server.limits import ANSWER_BYTES_MAX

EVENT_BYTES = 550


def event_bytes(event: Event) -> int:
    said = len(msgspec.json.encode(event.attributes)) if event.attributes else 0
    return EVENT_BYTES + len(event.data or b"") + said


def check_size(jobs: Iterable[Job]) -> None:
    """Raise `Exhausted` when these are too much for one answer."""
    if sum(map(job_bytes, jobs)) > ANSWER_BYTES_MAX:
        raise Exhausted("These jobs are too large for one answer: ask for fewer at once.")
