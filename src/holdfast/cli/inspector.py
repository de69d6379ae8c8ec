"""The inspector of the outputs of a job: this process, or the server that sees them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.cli.options import chosen_store, given_outputs
from holdfast.core.outputs import OutputPromise
from holdfast.ports import Inspector, Registry
from holdfast.sdk.output_store import open_chosen_outputs, open_inspector


def in_output_store(promise: OutputPromise | None) -> bool:
    """Return whether an output store holds what is promised, all of it or a part."""
    return promise is not None and promise.in_store


@asynccontextmanager
async def chosen_inspector(
    registry: Registry, *, stored: bool, create: bool = False
) -> AsyncIterator[Inspector]:
    """Yield the inspector that sees what is promised. `kept`: in an output store; plain paths no server
    sees. Only with `create` is a new output store made."""
    url = chosen_store()
    outputs = await open_chosen_outputs(url, given_outputs(), create=create) if stored else None
    try:
        server = None if stored else False
        yield await open_inspector(registry, url, outputs=outputs, server=server)
    finally:
        if outputs is not None:
            await outputs.close()
