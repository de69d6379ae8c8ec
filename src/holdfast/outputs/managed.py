"""Managed outputs: files that a handler writes through its context, under the token of its attempt.

An attempt writes where no other attempt ever writes, the checksum last. The completion of the job makes
its files count, and the registry accepts that from the newest owner only. An old attempt that still
writes does no harm: no validation reads files under its token.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.core.outputs import Output, check_output_name
from holdfast.failpoint import failpoint
from holdfast.ports.outputs import Digest, Outputs


class CompletionMark(Struct, frozen=True):
    """Written after a file is complete: which attempt wrote it, and its size and checksum."""

    job_id: str
    token: int
    name: str
    size: int
    sha256: str


_marks = msgspec.json.Decoder(CompletionMark)


def file_path(job_id: str, token: int, name: str) -> str:
    return f"managed/{job_id}/{token}/{name}"


def mark_path(job_id: str, token: int, name: str) -> str:
    """Return the path of the mark that the file is complete: a path that no file can have."""
    return f"managed/{job_id}/complete/{token}/{name}.json"


async def commit(outputs: Outputs, job_id: str, token: int, name: str, source: Path) -> Output:
    """Store the file `source` as the output of this attempt under this name, its checksum last."""
    path = file_path(job_id, token, check_output_name(name))
    digest = await asyncio.to_thread(_digest, source)
    await outputs.put_file(path, source)
    failpoint("outputs.managed_written")
    mark = CompletionMark(job_id, token, name, digest.size, digest.sha256)
    await outputs.put(mark_path(job_id, token, name), msgspec.json.encode(mark))
    return Output(name=name, path=path, size=digest.size, sha256=digest.sha256)


async def validate_named(outputs: Outputs, owners: Sequence[tuple[str, int]], name: str) -> Output:
    """Return the output of this name from the first of the `owners` (job and token) that has left a
    complete one, else the reason why it is missing."""
    why = "no attempt that counts has written it" if owners else "the attempt did not complete"
    missing = Output(name=name, missing=why)
    marks = await outputs.get_many([mark_path(*owner, name) for owner in owners])
    for owner, body in zip(owners, marks, strict=True):
        if body is None:
            continue
        output = await _check(outputs, *owner, name, body)
        if output.missing is None:
            return output
        missing = output
    return missing


async def _check(outputs: Outputs, job_id: str, token: int, name: str, body: bytes) -> Output:
    path = file_path(job_id, token, name)
    try:
        mark = _marks.decode(body)
    except msgspec.MsgspecError:
        return Output(name=name, path=path, missing="its checksum cannot be read")
    if (mark.job_id, mark.token, mark.name) != (job_id, token, name):
        return Output(name=name, path=path, missing="the checksum beside it is of another output")
    [found] = await outputs.digests([path])
    expected = Digest(mark.size, mark.sha256)
    if found == expected:
        return Output(name=name, path=path, size=found.size, sha256=found.sha256)
    return Output(
        name=name,
        path=path,
        size=None if found is None else found.size,
        sha256=None if found is None else found.sha256,
        missing=_difference(expected, found),
    )


def _difference(expected: Digest, found: Digest | None) -> str:
    if found is None:
        return "it was written, and is gone"
    if found.size != expected.size:
        return f"it has {found.size:,} bytes; {expected.size:,} were written"
    return "its bytes are not those that were written (sha256 differs)"


def _digest(source: Path) -> Digest:
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return Digest(file.tell(), digest.hexdigest())
