"""The scan for everything that a job promised, in a stream. What cannot be seen is never missing."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import Corrupt, HoldfastError, Unavailable
from holdfast.core.job import Job
from holdfast.core.limits import ATTRIBUTES_BYTES_MAX, clip
from holdfast.core.manifest import Task
from holdfast.core.outputs import File, Output, OutputPromise, ValidationResult
from holdfast.outputs import manifests
from holdfast.outputs.managed import validate_named
from holdfast.outputs.plain import validate_file
from holdfast.outputs.reports import Report
from holdfast.outputs.results import Results
from holdfast.outputs.resume_chain import ResumeChain, chain_id
from holdfast.ports import Outputs

BATCH_TASKS = 512
"""Tasks that are validated in one batch."""

BATCHES_AHEAD = 3
"""Batches under way at once: a bucket answers late, and a disk has a queue."""

NAMES_MAX = 20
_NAMES_BYTES_MAX = 8 * 1024
_EVIDENCE_BYTES_MAX = ATTRIBUTES_BYTES_MAX - 2 * _NAMES_BYTES_MAX
_REASON_CHARACTERS_MAX = 240


log = logging.getLogger("holdfast.outputs")


class ScanFailed(Exception):
    """The outputs could not be scanned, for this reason: there is no verdict."""


class ScanStopped(Exception):
    """Raised by `on_progress` to stop a scan."""


class ScanResult(Struct, frozen=True, kw_only=True):
    """The result of a scan, with the evidence for each output if that fits into an event."""

    found: ValidationResult
    evidence: tuple[Output, ...] = ()


class OutputScan:
    """The scan for the outputs of one promise, in an output store or in the files of a machine."""

    def __init__(
        self, outputs: Outputs | None, *, machine: str | None, job_id: str, promise: OutputPromise
    ) -> None:
        self._outputs = outputs
        self._machine = machine
        self._job_id = job_id
        self._promise = promise

    async def run(
        self,
        chain: ResumeChain,
        *,
        on_progress: Callable[[int], None],
        stop_at_first_missing: bool = False,
    ) -> ScanResult | None:
        """Scan for all outputs, and call `on_progress` with the number scanned so far after every batch.
        With `stop_at_first_missing`, return None as soon as one is missing. Raise `ScanFailed` for
        whatever keeps us from seeing them, also a bug of ours: a job must not wait without a reason.
        Raise `ScanStopped` when `on_progress` does."""
        try:
            return await self._scan(chain, on_progress, stop_at_first_missing)
        except (HoldfastError, OSError) as error:
            reason = error.message if isinstance(error, HoldfastError) else str(error)
            raise ScanFailed(reason or type(error).__name__) from error
        except ScanStopped:
            raise
        except Exception as error:
            log.exception("The outputs of job %s could not be validated.", self._job_id)
            raise ScanFailed(f"{type(error).__name__}: {error}") from error

    async def _scan(
        self, chain: ResumeChain, on_progress: Callable[[int], None], stop_at_first_missing: bool
    ) -> ScanResult | None:
        count = _Count()
        listed = self._promise.manifest is not None
        report = Report(self._store, self._job_id) if listed else None
        evidence: list[Output] = []
        await self._check_store()
        async with aclosing(self._scan_parts(chain)) as parts:
            async for part in parts:
                count.add(part)
                if stop_at_first_missing and count.missing:
                    break
                if report is None:
                    evidence += part
                else:
                    await report.add(part)
                on_progress(count.verified + count.missing)
        await self._check_store()
        if stop_at_first_missing and count.missing:
            if report is not None:
                await report.discard()
            return None
        if (scanned := count.verified + count.missing) != self._promise.count:
            promised = self._promise.count
            raise Corrupt(f"The manifest has {scanned:,} outputs; {promised:,} are promised.")
        path = None if report is None else await report.close()
        return ScanResult(found=count.found(path), evidence=_fit_evidence(evidence))

    @property
    def _store(self) -> Outputs:
        assert self._outputs is not None  # no scan begins without its store
        return self._outputs

    async def _check_store(self) -> None:
        if self._promise.in_store:
            await self._store.check_available()

    async def _scan_parts(self, chain: ResumeChain) -> AsyncGenerator[Sequence[Output], None]:
        for file in self._promise.files:
            yield [await self._scan_file(file, chain)]
        for name in self._promise.names:
            yield [await validate_named(self._store, chain.owners, name)]
        if self._promise.manifest is not None:
            async with aclosing(self._scan_tasks(self._promise.manifest)) as parts:
                async for part in parts:
                    yield part

    async def _scan_file(self, file: File, chain: ResumeChain) -> Output:
        """Return the file from where the job ran, or from where a job that resumed it ran."""
        first: Output | None = None
        for machine, folder in map(_split_place, chain.places):
            if machine != self._machine:
                continue
            output = await validate_file(file, Path(folder), chain.since)
            if output.missing is None:
                return output
            first = first or output
        elsewhere = [place for place in chain.places if _split_place(place)[0] != self._machine]
        if first is None or elsewhere:
            raise Unavailable(f"{file.path} may be on another machine: {', '.join(elsewhere)}")
        return first

    async def _scan_tasks(self, manifest: str) -> AsyncGenerator[Sequence[Output], None]:
        results = Results(self._store)
        under_way: deque[asyncio.Task[list[Output]]] = deque()
        try:
            batches = manifests.read_task_batches(self._store, manifest, BATCH_TASKS)
            async with aclosing(batches):
                async for batch in batches:
                    under_way.append(asyncio.create_task(self._validate_tasks(results, batch)))
                    if len(under_way) >= BATCHES_AHEAD:
                        yield await under_way.popleft()
            while under_way:
                yield await under_way.popleft()
        finally:
            for one in under_way:
                one.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _validate_tasks(self, results: Results, tasks: Sequence[Task]) -> list[Output]:
        ours = chain_id(self._job_id)
        checked = []
        for output, writer in await results.validate_many(tasks):
            if output.missing is not None:
                reason = clip(output.missing, _REASON_CHARACTERS_MAX)
                checked.append(replace(output, missing=reason))
            else:
                reused = writer is None or chain_id(writer.job_id) != ours
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

    def found(self, report: str | None) -> ValidationResult:
        return ValidationResult(
            verified=self.verified,
            missing=self.missing,
            reused=self.reused,
            names=tuple(self._names),
            report=report,
        )


def store_mismatch(promise: OutputPromise, outputs: Outputs | None) -> str | None:
    """Return why this output store (None: no store) is not the promised one, or None if it is."""
    if not promise.in_store:
        return None
    if outputs is not None and outputs.store_id == promise.store:
        return None
    place = f" ({promise.place})" if promise.place else ""
    here = "none" if outputs is None else f"{outputs.store_id} ({outputs.place})"
    return f"Its outputs are in output store {promise.store}{place}; the one here is {here}."


def ran_at(job: Job) -> tuple[str, str] | None:
    """Return the machine and the folder in which the job ran, if it is recorded."""
    where = job.check.where if job.check else None
    return None if where is None else _split_place(where)


def _split_place(where: str) -> tuple[str, str]:
    machine, _, folder = where.partition(":")
    return machine, folder


def _fit_evidence(evidence: Sequence[Output]) -> tuple[Output, ...]:
    """Return the evidence, cut until it fits into an event; what is needed least is cut first."""
    lacks = [output for output in evidence if output.missing is not None]
    for rows in (evidence, _without_paths(evidence), _without_paths(lacks)):
        if len(msgspec.json.encode(rows)) <= _EVIDENCE_BYTES_MAX:
            return tuple(rows)
    return ()


def _without_paths(rows: Sequence[Output]) -> list[Output]:
    return [replace(row, path=None) for row in rows]
