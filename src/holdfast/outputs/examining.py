"""Examining: look for everything that a job promised, in a stream. What is not seen is never missing."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import Corrupt, HoldfastError, Unavailable
from holdfast.core.job import Job
from holdfast.core.limits import ATTRIBUTES_BYTES_MAX, clip
from holdfast.core.manifest import Task
from holdfast.core.outputs import File, Found, Output, Promise
from holdfast.outputs import manifests
from holdfast.outputs.family import Family, family_name
from holdfast.outputs.managed import check_named
from holdfast.outputs.plain import check_file
from holdfast.outputs.reports import Report
from holdfast.outputs.results import Results
from holdfast.ports import Outputs

TOGETHER = 512
"""Tasks that are looked for in one go."""

AHEAD = 3
"""So many of these goes are under way at once: a bucket answers late, and a disk has a queue."""

NAMES_MAX = 20
_NAMES_BYTES_MAX = 8 * 1024
_EVIDENCE_BYTES_MAX = ATTRIBUTES_BYTES_MAX - 2 * _NAMES_BYTES_MAX
_REASON_CHARACTERS_MAX = 240


log = logging.getLogger("holdfast.outputs")


class Unseen(Exception):
    """The outputs could not be seen, and why: no verdict."""


class LeftOff(Exception):
    """For who is told how much is done: leave off."""


class Examined(Struct, frozen=True, kw_only=True):
    """What was found, and the evidence for each output when that fits into an event."""

    found: Found
    evidence: tuple[Output, ...] = ()


class Examination:
    """What somebody who sees an output store, or the files of a machine, finds of one promise."""

    def __init__(
        self, outputs: Outputs | None, *, machine: str | None, job_id: str, promise: Promise
    ) -> None:
        self._outputs = outputs
        self._machine = machine
        self._job_id = job_id
        self._promise = promise

    async def examine(
        self, family: Family, *, tell: Callable[[int], None], whole: bool = False
    ) -> Examined | None:
        """Look for all of it; `tell` hears after every part how much is done. With `whole` the answer
        is None as soon as something is missing. `Unseen` when something keeps us from seeing it, be it
        a mistake of ours: a job must not wait without a reason. `LeftOff` when `tell` raises it."""
        try:
            return await self._examine(family, tell, whole)
        except (HoldfastError, OSError) as error:
            words = error.message if isinstance(error, HoldfastError) else str(error)
            raise Unseen(words or type(error).__name__) from error
        except LeftOff:
            raise
        except Exception as error:
            log.exception("The outputs of job %s could not be examined.", self._job_id)
            raise Unseen(f"{type(error).__name__}: {error}") from error

    async def _examine(
        self, family: Family, tell: Callable[[int], None], whole: bool
    ) -> Examined | None:
        count = _Count()
        listed = self._promise.manifest is not None
        report = Report(self._store, self._job_id) if listed else None
        evidence: list[Output] = []
        await self._verify()
        async with aclosing(self._parts(family)) as parts:
            async for part in parts:
                count.add(part)
                if whole and count.missing:
                    break
                if report is None:
                    evidence += part
                else:
                    await report.add(part)
                tell(count.verified + count.missing)
        await self._verify()
        if whole and count.missing:
            if report is not None:
                await report.discard()
            return None
        if (seen := count.verified + count.missing) != self._promise.count:
            said = self._promise.count
            raise Corrupt(f"By the manifest there are {seen:,} outputs; {said:,} are promised.")
        path = None if report is None else await report.close()
        return Examined(found=count.found(path), evidence=_fitting(evidence))

    @property
    def _store(self) -> Outputs:
        assert self._outputs is not None  # whoever is blind does not begin
        return self._outputs

    async def _verify(self) -> None:
        if self._promise.names or self._promise.manifest:
            await self._store.verify()

    async def _parts(self, family: Family) -> AsyncGenerator[Sequence[Output], None]:
        """The outputs in the order of the promise."""
        for file in self._promise.files:
            yield [await self._plain(file, family)]
        for name in self._promise.names:
            yield [await check_named(self._store, family.owners, name)]
        if self._promise.manifest is not None:
            async with aclosing(self._addressed(self._promise.manifest)) as parts:
                async for part in parts:
                    yield part

    async def _plain(self, file: File, family: Family) -> Output:
        """The file where the job ran, or where one that resumed it did."""
        first: Output | None = None
        for machine, folder in map(_place, family.places):
            if machine != self._machine:
                continue
            output = await check_file(file, Path(folder), family.since)
            if output.missing is None:
                return output
            first = first or output
        elsewhere = [place for place in family.places if _place(place)[0] != self._machine]
        if first is None or elsewhere:
            raise Unavailable(f"{file.path} may be on another machine: {', '.join(elsewhere)}")
        return first

    async def _addressed(self, manifest: str) -> AsyncGenerator[Sequence[Output], None]:
        results = Results(self._store)
        under_way: deque[asyncio.Task[list[Output]]] = deque()
        try:
            async with (
                aclosing(manifests.tasks(self._store, manifest)) as tasks,
                aclosing(_together(tasks)) as groups,
            ):
                async for group in groups:
                    under_way.append(asyncio.create_task(self._check(results, group)))
                    if len(under_way) >= AHEAD:
                        yield await under_way.popleft()
            while under_way:
                yield await under_way.popleft()
        finally:
            for one in under_way:
                one.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _check(self, results: Results, tasks: Sequence[Task]) -> list[Output]:
        ours = family_name(self._job_id)
        checked = []
        for output, writer in await results.check_many(tasks):
            if output.missing is not None:
                words = clip(output.missing, _REASON_CHARACTERS_MAX)
                checked.append(replace(output, missing=words))
            else:
                reused = writer is None or family_name(writer.job_id) != ours
                checked.append(replace(output, reused=True) if reused else output)
        return checked


class _Count:
    def __init__(self) -> None:
        self.verified = self.missing = self.reused = self._bytes = 0
        self._names: list[str] = []

    def add(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            if output.missing is None:
                self.verified += 1
                self.reused += output.reused
                continue
            self.missing += 1
            if len(self._names) < NAMES_MAX:
                self._bytes += len(output.name.encode())
                if self._bytes <= _NAMES_BYTES_MAX:
                    self._names.append(output.name)

    def found(self, report: str | None) -> Found:
        return Found(
            verified=self.verified,
            missing=self.missing,
            reused=self.reused,
            names=tuple(self._names),
            report=report,
        )


def elsewhere(promise: Promise, outputs: Outputs | None) -> str | None:
    """Why what is promised cannot be seen in this output store (None for none), or None when it can."""
    if not (promise.names or promise.manifest):
        return None
    if outputs is not None and outputs.store_id == promise.store:
        return None
    place = f" ({promise.place})" if promise.place else ""
    here = "none" if outputs is None else f"{outputs.store_id} ({outputs.place})"
    return f"Its outputs are in output store {promise.store}{place}; here is {here}."


def seen_at(job: Job) -> tuple[str, str] | None:
    """The machine and the folder that a job says it ran in."""
    where = job.check.where if job.check else None
    return None if where is None else _place(where)


def _place(where: str) -> tuple[str, str]:
    machine, _, folder = where.partition(":")
    return machine, folder


def _fitting(evidence: Sequence[Output]) -> tuple[Output, ...]:
    """The evidence as it fits into an event: what is the least needed goes first."""
    lacks = [output for output in evidence if output.missing is not None]
    for rows in (evidence, _short(evidence), _short(lacks)):
        if len(msgspec.json.encode(rows)) <= _EVIDENCE_BYTES_MAX:
            return tuple(rows)
    return ()


def _short(rows: Sequence[Output]) -> list[Output]:
    return [replace(row, path=None) for row in rows]


async def _together(tasks: AsyncIterator[Task]) -> AsyncGenerator[list[Task], None]:
    some: list[Task] = []
    async for task in tasks:
        some.append(task)
        if len(some) == TOGETHER:
            yield some
            some = []
    if some:
        yield some
