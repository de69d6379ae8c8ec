"""Listing the promised outputs of a job: as the last validation saw them, else as they were promised."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing

import msgspec

from holdfast.core.errors import Conflict, Corrupt, Invalid, Unavailable
from holdfast.core.job import Job
from holdfast.core.limits import PAGE_ITEMS_MAX
from holdfast.core.outputs import Found, Output, Promise
from holdfast.outputs import manifests
from holdfast.outputs.examining import elsewhere
from holdfast.outputs.reports import Lack, is_report, read_lacks, read_rows
from holdfast.ports import OutputPage, Outputs, Registry

_PLACE_DIGITS_MAX = 12


class Listing:
    """What is known about the outputs of jobs: from reports, from the events of verdicts, or from what
    was promised. A cursor is a place in the promise."""

    def __init__(self, registry: Registry, outputs: Outputs | None) -> None:
        self._registry = registry
        self._outputs = outputs

    async def page(self, job: Job, *, missing: bool, after: str | None, limit: int) -> OutputPage:
        """Some outputs; see `holdfast.ports.Inspector`."""
        if not 1 <= limit <= PAGE_ITEMS_MAX:
            raise Invalid(f"A page has from 1 to {PAGE_ITEMS_MAX} items, not {limit}.")
        evidence = await self._evidence(job)
        checked = _told(job, evidence)
        start = _start(after)
        found: list[Output] = []
        following = None
        async with aclosing(self._rows(job, evidence, start, missing=missing)) as rows:
            async for row in rows:
                if missing and checked and row.output.missing is None:
                    continue
                if len(found) == limit:
                    following = str(row.place)
                    break
                found.append(row.output)
        return OutputPage(outputs=tuple(found), next=following, checked=checked)

    async def lacks(self, job: Job) -> AsyncGenerator[Lack, None]:
        """Each missing output with its place; `Conflict` when nobody knows which they are."""
        evidence = await self._evidence(job)
        if not _told(job, evidence):
            raise Conflict(
                f"It is not on record which outputs of job {job.job_id} are missing. Look first:"
                " validate --force",
                job_id=job.job_id,
                version=job.version,
            )
        async with aclosing(self._rows(job, evidence, 0, missing=True)) as rows:
            async for row in rows:
                if row.output.missing is not None:
                    yield row

    def store(self, promise: Promise) -> Outputs:
        """The output store in which the promised outputs are; `Unavailable` when it is not here."""
        why = elsewhere(promise, self._outputs)
        if why is not None or self._outputs is None:
            raise Unavailable(why or "There is no output store here.")
        return self._outputs

    async def _rows(
        self, job: Job, evidence: Sequence[Output], start: int, *, missing: bool
    ) -> AsyncGenerator[Lack, None]:
        promise = job.spec.outputs
        found = job.found
        if found is not None and found.report is not None and promise is not None:
            if not is_report(found.report, job.job_id):
                raise Corrupt(
                    f"The report of job {job.job_id} is none of its own: validate --force"
                )
            read = read_lacks if missing else read_rows
            async for row in read(self.store(promise), found.report, start=start):
                yield row
            return
        for place, output in enumerate(_named(promise, found, evidence)):
            if place >= start:
                yield Lack(place, output)
        if promise is not None and promise.manifest is not None:
            async for row in self._promised(promise, start):
                yield row

    async def _promised(self, promise: Promise, start: int) -> AsyncIterator[Lack]:
        place = promise.count - promise.entries
        async for task in manifests.tasks(self.store(promise), promise.manifest or ""):
            if place >= start:
                yield Lack(place, Output(name=task.name))
            place += 1

    async def _evidence(self, job: Job) -> tuple[Output, ...]:
        """What the event of the last verdict says, one by one."""
        if job.found is None or job.found.report is not None:
            return ()
        for event in reversed(await self._registry.history(job.job_id)):
            if "found" in event.attributes:
                told = event.attributes.get("evidence", [])
                return tuple(msgspec.convert(told, list[Output]))
        return ()


def _told(job: Job, evidence: Sequence[Output]) -> bool:
    """Whether it is known of each output if it is there."""
    found = job.found
    if found is None:
        return False
    lacks = sum(1 for output in evidence if output.missing is not None)
    return found.report is not None or lacks == found.missing


def _named(
    promise: Promise | None, found: Found | None, evidence: Sequence[Output]
) -> Iterator[Output]:
    """The outputs that were named one by one. Of one without evidence it is known that it is there, if
    anything is: what is missing is always told."""
    if promise is None:
        yield from evidence
        return
    known = {output.name: output for output in evidence}
    reused = found is not None and found.reused == found.verified > 0
    for name in (*(file.path for file in promise.files), *promise.names):
        yield known.get(name) or Output(name=name, reused=reused)


def _start(after: str | None) -> int:
    if after is None:
        return 0
    if not (after.isascii() and after.isdecimal() and len(after) <= _PLACE_DIGITS_MAX):
        raise Invalid(f"{after[:40]!r} is not a cursor of this list; start without one.")
    return int(after)
