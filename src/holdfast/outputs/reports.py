"""Reports: the evidence of a validation that is too long for an event, kept in the output store.

A report is an index and its parts, all under `reports/{job_id}/` and named by the sha256 of their bytes:
whoever sees the same writes the same, and two validators never mix. A part has the next `PART_ROWS`
outputs in the order of the promise, one JSON object a line. What is missing is told again in parts of
its own, with its place in the promise: those who want to know only that read only that.
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
    """What a report consists of. `missing` has each part with the place of its first output."""

    rows: int
    part_rows: int
    parts: tuple[str, ...] = ()
    missing: tuple[tuple[int, str], ...] = ()


class Lack(Struct, frozen=True):
    """A missing output, and its place in the promise, from 0."""

    place: int
    output: Output


_INDEX_NAME = re.compile(r"[0-9a-f]{64}\.json\Z")
_encode = msgspec.json.Encoder(order="deterministic").encode
_outputs = msgspec.json.Decoder(Output)
_lacks = msgspec.json.Decoder(Lack)


def is_report(path: str, job_id: str) -> bool:
    """Whether this is where a report of this very job is. A job's record says where its report is, and
    whoever judges a job writes that: nothing else is ever read by it."""
    folder, _, name = path.rpartition("/")
    return folder == f"reports/{job_id}" and _INDEX_NAME.match(name) is not None


class Report:
    """A report while it is written: never more than a part of it in memory."""

    def __init__(self, outputs: Outputs, job_id: str) -> None:
        self._outputs = outputs
        self._folder = f"reports/{job_id}"
        self._rows = 0
        self._here: list[bytes] = []
        self._lacks: list[bytes] = []
        self._first_lack = 0
        self._parts: list[str] = []
        self._missing: list[tuple[int, str]] = []

    async def add(self, outputs: Sequence[Output]) -> None:
        """Tell the next outputs."""
        for output in outputs:
            self._here.append(_encode(output))
            if output.missing is not None:
                self._first_lack = self._first_lack if self._lacks else self._rows
                self._lacks.append(_encode(Lack(self._rows, output)))
            self._rows += 1
            if len(self._here) == PART_ROWS:
                self._parts.append(await self._put(self._here))
            if len(self._lacks) == PART_ROWS:
                self._missing.append((self._first_lack, await self._put(self._lacks)))

    async def close(self) -> str:
        """The path of the report, which is whole now."""
        if self._here:
            self._parts.append(await self._put(self._here))
        if self._lacks:
            self._missing.append((self._first_lack, await self._put(self._lacks)))
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
        """Remove what was written of it."""
        for name in (*self._parts, *(name for _, name in self._missing)):
            await self._outputs.delete(f"{self._folder}/{name}.jsonl")

    async def _put(self, lines: list[bytes]) -> str:
        body = b"\n".join(lines) + b"\n"
        lines.clear()
        name = sha256(body).hexdigest()
        await self._outputs.put(f"{self._folder}/{name}.jsonl", body)
        return name


async def read_rows(outputs: Outputs, report: str, *, start: int) -> AsyncIterator[Lack]:
    """The outputs of a report from a place on, each with its place."""
    index = await _index(outputs, report)
    first = start // index.part_rows
    for number, name in enumerate(index.parts[first:], first):
        place = number * index.part_rows
        for line in await _lines(outputs, report, name):
            if place >= start:
                yield Lack(place, _outputs.decode(line))
            place += 1


async def read_lacks(outputs: Outputs, report: str, *, start: int = 0) -> AsyncIterator[Lack]:
    """The missing outputs of a report from a place on."""
    missing = (await _index(outputs, report)).missing
    ends = [place for place, _ in missing[1:]]
    for number, (_, name) in enumerate(missing):
        if number < len(ends) and ends[number] <= start:
            continue
        for line in await _lines(outputs, report, name):
            lack = _lacks.decode(line)
            if lack.place >= start:
                yield lack


async def _index(outputs: Outputs, report: str) -> Index:
    name = report.rpartition("/")[2].removesuffix(".json")
    return msgspec.json.decode(await _whole(outputs, report, name), type=Index)


async def _lines(outputs: Outputs, report: str, name: str) -> list[bytes]:
    path = f"{report.rpartition('/')[0]}/{name}.jsonl"
    return (await _whole(outputs, path, name)).splitlines()


async def _whole(outputs: Outputs, path: str, name: str) -> bytes:
    body = await outputs.get(path)
    if body is None:
        raise NotFound(f"{path} is not in the output store any more. Look again: validate --force")
    if sha256(body).hexdigest() != name:
        raise Corrupt(f"{path} is damaged in the output store. Look again: validate --force")
    return body
