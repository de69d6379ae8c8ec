"""Managed outputs: what a handler writes through its context, under the token of its attempt.

An attempt writes where no other attempt ever writes, the checksum last. What makes a file count is the
completion of the job, which the registry takes from the newest owner alone: an attempt that was thought
dead and writes on harms nothing, for nobody looks under its token.
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


class Mark(Struct, frozen=True):
    """What is written when a file is whole: whose it is, and what its bytes have to be."""

    job_id: str
    token: int
    name: str
    size: int
    sha256: str


_marks = msgspec.json.Decoder(Mark)


def file_path(job_id: str, token: int, name: str) -> str:
    """Where this attempt's file of this name is."""
    return f"managed/{job_id}/{token}/{name}"


def mark_path(job_id: str, token: int, name: str) -> str:
    """Where it says that the file is whole: a place that no file of any name has."""
    return f"managed/{job_id}/complete/{token}/{name}.json"


async def commit(outputs: Outputs, job_id: str, token: int, name: str, source: Path) -> Output:
    """Keep the file `source` as this attempt's output of this name: whole, its checksum last."""
    path = file_path(job_id, token, check_output_name(name))
    digest = await asyncio.to_thread(_digest, source)
    await outputs.put_file(path, source)
    failpoint("outputs.managed_written")
    mark = Mark(job_id, token, name, digest.size, digest.sha256)
    await outputs.put(mark_path(job_id, token, name), msgspec.json.encode(mark))
    return Output(name=name, path=path, size=digest.size, sha256=digest.sha256)


async def check_named(outputs: Outputs, owners: Sequence[tuple[str, int]], name: str) -> Output:
    """The output of this name as one of the `owners` (job and token) that count has left it: the first
    that is whole, else why there is none."""
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
    said = Digest(mark.size, mark.sha256)
    if found == said:
        return Output(name=name, path=path, size=found.size, sha256=found.sha256)
    return Output(
        name=name,
        path=path,
        size=None if found is None else found.size,
        sha256=None if found is None else found.sha256,
        missing=_difference(said, found),
    )


def _difference(said: Digest, found: Digest | None) -> str:
    if found is None:
        return "it was written, and is gone"
    if found.size != said.size:
        return f"it has {found.size:,} bytes; {said.size:,} were written"
    return "its bytes are not those that were written (sha256 differs)"


def _digest(source: Path) -> Digest:
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return Digest(file.tell(), digest.hexdigest())
