"""Reports: the evidence of a validation that is too long for an event, kept in the output store.

A report is an index and its parts, all under `reports/{job_id}/` and named by the sha256 of their bytes:
two validators that find the same write the same files, and never mix. A part has the next `PART_ROWS`
outputs in the order of the promise, one JSON object a line. Missing outputs are written again to parts
of their own, with their place in the promise, so that a reader of these alone reads no other part.
"""

import re
from collections.abc import AsyncIterator, Sequence
from hashlib import sha256

import msgspec
from msgspec import Struct

from holdfast.core.errors import Corrupt, NotFound
from holdfast.core.outputs import Output
from holdfast.ports import Outputs

PART_ROWS = 4096


class Index(Struct, frozen=True, kw_only=True):
    """The parts of a report. `missing` has each part of missing outputs with the place of its first."""

    rows: int
    part_rows: int
    parts: tuple[str, ...] = ()
    missing: tuple[tuple[int, str], ...] = ()


class ReportRow(Struct, frozen=True):
    """An output and its place in the promise, from 0."""

    place: int
    output: Output


_INDEX_NAME = re.compile(r"[0-9a-f]{64}\.json\Z")
_encode = msgspec.json.Encoder(order="deterministic").encode
_outputs = msgspec.json.Decoder(Output)
_missing_lines = msgspec.json.Decoder(ReportRow)


def is_report(path: str, job_id: str) -> bool:
    """Return whether this is the path of a report of this job. The path in a job's record comes from the
    client that completed its validation, and must not make us read anything else."""
    folder, _, name = path.rpartition("/")
    return folder == f"reports/{job_id}" and _INDEX_NAME.match(name) is not None


class Report:
    """A report while it is written, with at most one part in memory."""

    def __init__(self, outputs: Outputs, job_id: str) -> None:
        self._outputs = outputs
        self._folder = f"reports/{job_id}"
        self._rows = 0
        self._row_lines: list[bytes] = []
        self._missing_lines: list[bytes] = []
        self._first_missing = 0
        self._parts: list[str] = []
        self._missing: list[tuple[int, str]] = []

    async def add(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            self._row_lines.append(_encode(output))
            if output.missing is not None:
                self._first_missing = self._first_missing if self._missing_lines else self._rows
                self._missing_lines.append(_encode(ReportRow(self._rows, output)))
            self._rows += 1
            if len(self._row_lines) == PART_ROWS:
                self._parts.append(await self._put(self._row_lines))
            if len(self._missing_lines) == PART_ROWS:
                self._missing.append((self._first_missing, await self._put(self._missing_lines)))

    async def close(self) -> str:
        """Write the index; return the path of the report."""
        if self._row_lines:
            self._parts.append(await self._put(self._row_lines))
        if self._missing_lines:
            self._missing.append((self._first_missing, await self._put(self._missing_lines)))
        index = Index(
            rows=self._rows,
            part_rows=PART_ROWS,
            parts=tuple(self._parts),
            missing=tuple(self._missing),
        )
        body = _encode(index)
        path = f"{self._folder}/{sha256(body).hexdigest()}.json"
        await self._outputs.put(path, body)
        return path

    async def discard(self) -> None:
        for name in (*self._parts, *(name for _, name in self._missing)):
            await self._outputs.delete(f"{self._folder}/{name}.jsonl")

    async def _put(self, lines: list[bytes]) -> str:
        body = b"\n".join(lines) + b"\n"
        lines.clear()
        name = sha256(body).hexdigest()
        await self._outputs.put(f"{self._folder}/{name}.jsonl", body)
        return name


async def read_rows(outputs: Outputs, report: str, *, start: int) -> AsyncIterator[ReportRow]:
    index = await _index(outputs, report)
    first = start // index.part_rows
    for number, name in enumerate(index.parts[first:], first):
        place = number * index.part_rows
        for line in await _lines(outputs, report, name):
            if place >= start:
                yield ReportRow(place, _outputs.decode(line))
            place += 1


async def read_missing(outputs: Outputs, report: str, *, start: int = 0) -> AsyncIterator[ReportRow]:
    """Yield the missing outputs of a report from place `start` on."""
    missing = (await _index(outputs, report)).missing
    ends = [place for place, _ in missing[1:]]
    for number, (_, name) in enumerate(missing):
        if number < len(ends) and ends[number] <= start:
            continue
        for line in await _lines(outputs, report, name):
            lack = _missing_lines.decode(line)
            if lack.place >= start:
                yield lack


async def _index(outputs: Outputs, report: str) -> Index:
    name = report.rpartition("/")[2].removesuffix(".json")
    return msgspec.json.decode(await _read_checked(outputs, report, name), type=Index)


async def _lines(outputs: Outputs, report: str, name: str) -> list[bytes]:
    path = f"{report.rpartition('/')[0]}/{name}.jsonl"
    return (await _read_checked(outputs, path, name)).splitlines()


async def _read_checked(outputs: Outputs, path: str, name: str) -> bytes:
    body = await outputs.get(path)
    if body is None:
        raise NotFound(f"{path} is not in the output store any more. Run: validate --force")
    if sha256(body).hexdigest() != name:
        raise Corrupt(f"{path} is damaged in the output store. Run: validate --force")
    return body
