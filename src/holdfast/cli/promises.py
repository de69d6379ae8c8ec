"""Promises as people write them: `results/model.pt`, `run-7/*.parquet:4`, `model.pt,size=2GiB`."""

import re
from collections.abc import AsyncIterator
from typing import IO

import click
from msgspec.structs import replace

from holdfast.cli.inspecting import inspecting
from holdfast.cli.sizes import Size
from holdfast.core.errors import Invalid
from holdfast.core.job import Job
from holdfast.core.limits import TASK_BYTES_MAX
from holdfast.core.outputs import File, Promise, check_promise
from holdfast.ports import Registry, Request
from holdfast.sdk.caller import actor

_PROMISE = re.compile(
    r"(?P<path>.+?)(?::(?P<count>[0-9]{1,18}))?(?P<rest>(?:,(?:size|sha256)=[^,:]*)*)\Z", re.DOTALL
)
_MEANT = re.compile(r",(bytes|checksum|count|md5|sha|sha1|sha-256|sha512)=[^,/]*\Z", re.IGNORECASE)


class PlainOutput(click.ParamType[File]):
    """PATH[:COUNT][,size=BYTES][,sha256=HEX]. What stands at the end in this form is meant so; a path
    that ends like it gets a count of its own: `odd:3:1`."""

    name = "output"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> File:
        if isinstance(value, File):
            return value
        match = _PROMISE.match(str(value))
        if match is None:
            self.fail("An output needs a path, such as results/model.pt.", param, ctx)
        if meant := _MEANT.search(match["path"]):
            self.fail(f"{meant[1]}= says nothing here; write size= or sha256=.", param, ctx)
        said = [part.partition("=")[::2] for part in match["rest"].split(",")[1:]]
        if len(dict(said)) < len(said):
            self.fail(f"{value!r} says the same thing twice.", param, ctx)
        size, sha256 = dict(said).get("size"), dict(said).get("sha256")
        file = File(
            path=match["path"],
            count=int(match["count"]) if match["count"] else None,
            size=None if size is None else Size().convert(size, param, ctx),
            sha256=None if sha256 is None else sha256.lower(),
        )
        try:
            check_promise(Promise(files=(file,)), plain=True)
        except Invalid as error:
            self.fail(error.message, param, ctx)
        return file


async def submit_promising(
    registry: Registry,
    request: Request,
    files: tuple[File, ...],
    manifest: IO[bytes] | None,
    *,
    reuse: bool,
) -> Job:
    """Ask for work that promises these; when all of it is there already, the job that says so."""
    async with inspecting(registry, kept=manifest is not None, create=True) as inspector:
        promise = Promise(files=files)
        if manifest is not None:
            sha256, entries = await inspector.keep(_lines(manifest))
            promise = replace(promise, manifest=sha256, entries=entries)
        promising = replace(request, spec=replace(request.spec, outputs=promise))
        return await inspector.submit(promising, actor=actor(), reuse=reuse)


async def _lines(manifest: IO[bytes]) -> AsyncIterator[bytes]:
    """Line by line, and of a line that is too long only enough to see that it is."""
    while line := manifest.readline(TASK_BYTES_MAX + 1):
        yield line
