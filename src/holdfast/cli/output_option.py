"""The option `--output`: promises such as `results/model.pt`, `run-7/*.parquet:4`, `model.pt,size=2GiB`."""

import re
from collections.abc import AsyncIterator
from typing import IO

import click
from msgspec.structs import replace

from holdfast.cli.inspector import chosen_inspector
from holdfast.cli.sizes import Size
from holdfast.core.errors import Invalid
from holdfast.core.job import Job
from holdfast.core.limits import TASK_BYTES_MAX
from holdfast.core.outputs import File, OutputPromise, check_promise
from holdfast.ports import JobRequest, Registry
from holdfast.sdk.defaults import actor

_PROMISE = re.compile(
    r"(?P<path>.+?)(?::(?P<count>[0-9]{1,18}))?(?P<rest>(?:,(?:size|sha256)=[^,:]*)*)\Z", re.DOTALL
)
_UNKNOWN = re.compile(r",(bytes|checksum|count|md5|sha|sha1|sha-256|sha512)=[^,/]*\Z", re.IGNORECASE)


class PlainOutput(click.ParamType[File]):
    """PATH[:COUNT][,size=BYTES][,sha256=HEX]. A suffix of this form is not part of the path; a path
    that ends like it needs a count of its own: `odd:3:1`."""

    name = "output"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> File:
        if isinstance(value, File):
            return value
        match = _PROMISE.match(str(value))
        if match is None:
            self.fail("An output needs a path, such as results/model.pt.", param, ctx)
        if unknown := _UNKNOWN.search(match["path"]):
            self.fail(f"{unknown[1]}= is not known here; write size= or sha256=.", param, ctx)
        given = [part.partition("=")[::2] for part in match["rest"].split(",")[1:]]
        if len(dict(given)) < len(given):
            self.fail(f"{value!r} gives the same thing twice.", param, ctx)
        size, sha256 = dict(given).get("size"), dict(given).get("sha256")
        file = File(
            path=match["path"],
            count=int(match["count"]) if match["count"] else None,
            size=None if size is None else Size().convert(size, param, ctx),
            sha256=None if sha256 is None else sha256.lower(),
        )
        try:
            check_promise(OutputPromise(files=(file,)), plain=True)
        except Invalid as error:
            self.fail(error.message, param, ctx)
        return file


async def submit_with_outputs(
    registry: Registry,
    request: JobRequest,
    files: tuple[File, ...],
    manifest: IO[bytes] | None,
    *,
    reuse: bool,
) -> Job:
    """Submit a job that promises these outputs, and return it; with `reuse` it may have succeeded already."""
    async with chosen_inspector(registry, stored=manifest is not None, create=True) as inspector:
        promise = OutputPromise(files=files)
        if manifest is not None:
            sha256, entries = await inspector.store_manifest(_lines(manifest))
            promise = replace(promise, manifest=sha256, entries=entries)
        promising = replace(request, spec=replace(request.spec, outputs=promise))
        return await inspector.submit(promising, actor=actor(), reuse=reuse)


async def _lines(manifest: IO[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines; of one that is too long, only enough to see that it is."""
    while line := manifest.readline(TASK_BYTES_MAX + 1):
        yield line
