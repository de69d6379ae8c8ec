"""Pages of the promised outputs of a job: as the last validation saw them, else as they were promised."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing

import msgspec

from holdfast.core.errors import Conflict, Corrupt, Invalid, Unavailable
from holdfast.core.job import Job
from holdfast.core.limits import PAGE_ITEMS_MAX
from holdfast.core.outputs import Output, OutputPromise, ValidationResult
from holdfast.outputs import manifests
from holdfast.outputs.reports import ReportRow, is_report, read_missing, read_rows
from holdfast.outputs.scan import store_mismatch
from holdfast.ports import OutputPage, Outputs, Registry

_PLACE_DIGITS_MAX = 12


class OutputPages:
    """What is known about the outputs of jobs: from reports, from the events of verdicts, or from the
    promise. A cursor is a place in the promise."""

    def __init__(self, registry: Registry, outputs: Outputs | None) -> None:
        self._registry = registry
        self._outputs = outputs

    async def page(self, job: Job, *, missing: bool, after: str | None, limit: int) -> OutputPage:
        if not 1 <= limit <= PAGE_ITEMS_MAX:
            raise Invalid(f"A page has from 1 to {PAGE_ITEMS_MAX} items, not {limit}.")
        evidence = await self._evidence(job)
        checked = _is_known(job, evidence)
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

    async def missing_rows(self, job: Job) -> AsyncGenerator[ReportRow, None]:
        """Yield each missing output with its place; raise `Conflict` if it is not recorded which they are."""
        evidence = await self._evidence(job)
        if not _is_known(job, evidence):
            raise Conflict(
                f"It is not recorded which outputs of job {job.job_id} are missing. Run first:"
                " validate --force",
                job_id=job.job_id,
                version=job.version,
            )
        async with aclosing(self._rows(job, evidence, 0, missing=True)) as rows:
            async for row in rows:
                if row.output.missing is not None:
                    yield row

    def require_store(self, promise: OutputPromise) -> Outputs:
        """Return the output store of the promised outputs; raise `Unavailable` if it is not here."""
        why = store_mismatch(promise, self._outputs)
        if why is not None or self._outputs is None:
            raise Unavailable(why or "There is no output store here.")
        return self._outputs

    async def _rows(
        self, job: Job, evidence: Sequence[Output], start: int, *, missing: bool
    ) -> AsyncGenerator[ReportRow, None]:
        promise = job.spec.outputs
        found = job.found
        if found is not None and found.report is not None and promise is not None:
            if not is_report(found.report, job.job_id):
                raise Corrupt(f"The report of job {job.job_id} is not one of its own. Run: validate --force")
            read = read_missing if missing else read_rows
            async for row in read(self.require_store(promise), found.report, start=start):
                yield row
            return
        for place, output in enumerate(_named(promise, found, evidence)):
            if place >= start:
                yield ReportRow(place, output)
        if promise is not None and promise.manifest is not None:
            async for row in self._promised(promise, start):
                yield row

    async def _promised(self, promise: OutputPromise, start: int) -> AsyncIterator[ReportRow]:
        place = promise.count - promise.entries
        async for task in manifests.read_tasks(self.require_store(promise), promise.manifest or ""):
            if place >= start:
                yield ReportRow(place, Output(name=task.name))
            place += 1

    async def _evidence(self, job: Job) -> tuple[Output, ...]:
        if job.found is None or job.found.report is not None:
            return ()
        for event in reversed(await self._registry.history(job.job_id)):
            if "found" in event.attributes:
                evidence = event.attributes.get("evidence", [])
                return tuple(msgspec.convert(evidence, list[Output]))
        return ()


def _is_known(job: Job, evidence: Sequence[Output]) -> bool:
    """Return whether it is known for each output if it is there."""
    found = job.found
    if found is None:
        return False
    lacks = sum(1 for output in evidence if output.missing is not None)
    return found.report is not None or lacks == found.missing


def _named(
    promise: OutputPromise | None, found: ValidationResult | None, evidence: Sequence[Output]
) -> Iterator[Output]:
    """Yield the outputs that were promised by name. One without evidence is there, if there was a verdict:
    missing outputs always have evidence."""
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
