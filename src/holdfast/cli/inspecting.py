"""Who is asked about the outputs of a job: this process, or the server that sees them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.cli.options import chosen_store, given_outputs
from holdfast.core.outputs import Promise
from holdfast.ports import Inspector, Registry
from holdfast.sdk.outputs import open_chosen, open_inspector


def is_kept(promise: Promise | None) -> bool:
    """Whether what is promised is in an output store, all of it or a part."""
    return promise is not None and bool(promise.names or promise.manifest)


@asynccontextmanager
async def inspecting(
    registry: Registry, *, kept: bool, create: bool = False
) -> AsyncIterator[Inspector]:
    """Whoever sees what is promised, `kept` in an output store or not: no server sees plain paths. Only
    with `create` may a new output store come of it."""
    url = chosen_store()
    outputs = await open_chosen(url, given_outputs(), create=create) if kept else None
    try:
        server = None if kept else False
        yield await open_inspector(registry, url, outputs=outputs, server=server)
    finally:
        if outputs is not None:
            await outputs.close()
