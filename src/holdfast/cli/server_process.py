"""The server that `holdfast serve` runs, from its start to its end."""

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from importlib.util import find_spec

from holdfast.cli.server_log import ServerLog
from holdfast.cli.terminal_escape import plain
from holdfast.core.errors import Denied, Invalid, Unavailable
from holdfast.outputs.lazy import OpenOutputs
from holdfast.ports import Outputs
from holdfast.sdk.open import open_local
from holdfast.sdk.output_store import open_chosen_outputs
from holdfast.sdk.store_url import StoreUrl, shown_url
from holdfast.server.app import ServerApp
from holdfast.server.context import ServerSettings
from holdfast.server.http_server import HttpServer, ListenAddress
from holdfast.server.listener import raise_descriptor_limit
from holdfast.system import SystemClock, SystemIds, tune_garbage_collector

OUTPUTS_SECONDS = 10.0


async def run_server(
    url: str,
    place: ListenAddress,
    settings: ServerSettings,
    log: ServerLog,
    grpc_place: ListenAddress | None = None,
    outputs_url: str | None = None,
) -> None:
    """Serve the store until stopped; by gRPC as well, if `grpc_place` is given."""
    if StoreUrl(url).is_server:
        raise Invalid("A server serves a store, not another server: give --store a store's URL.")
    grpc_beside = None if grpc_place is None else _grpc_factory()
    registry = await open_local(url)
    try:
        now = await registry.now()
        if settings.keys and not any(key.active(now) for key in await registry.list_keys()):
            raise Invalid(
                "No key in this store is valid, so every request would be refused. Create one:"
                " holdfast keys create ana --may admin,admin:keys"
            )
        raise_descriptor_limit()
        clock, ids = SystemClock(), SystemIds()
        app = ServerApp(registry, clock, ids, settings, _outputs_opener(url, outputs_url))
        server = HttpServer(app, place, clock, ids)
        outputs = await _open_outputs(app, log)
        tune_garbage_collector(own_code_only=True)
        async with AsyncExitStack() as stack:
            grpc_address = None
            if grpc_beside is not None and grpc_place is not None:
                grpc_address = await stack.enter_async_context(grpc_beside(app, grpc_place))
            await server.run_until_stopped(
                lambda here: _log_start(log, here, grpc_address, url, settings, outputs)
            )
        log.print_line("Stopped: all that was acknowledged is stored.", "server_stopped")
    finally:
        await registry.close()


def _outputs_opener(url: str, outputs_url: str | None) -> OpenOutputs:
    """Return how to open the output store; it is created only to store something in it."""

    async def opening(create: bool) -> Outputs | None:
        return await open_chosen_outputs(url, outputs_url, create=create)

    return opening


async def _open_outputs(app: ServerApp, log: ServerLog) -> str | None:
    """Return where the output store is. Log when it is unavailable: the server does without it meanwhile."""
    try:
        async with asyncio.timeout(OUTPUTS_SECONDS):
            outputs = await app.context.outputs.open()
    except (Denied, Unavailable, TimeoutError) as error:
        why = str(error) or "It does not answer."
        words = f"The output store is unavailable and will be tried again. {why}"
        log.print_line(plain(words), "server_outputs_away", reason=plain(why))
        return None
    return None if outputs is None else outputs.place


def _grpc_factory() -> Callable[[ServerApp, ListenAddress], AbstractAsyncContextManager[str]]:
    if find_spec("grpc") is None:
        raise Invalid("For --grpc one more package is needed: pip install 'holdfast[grpc]'")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its log would be its clients' to fill
    from holdfast.server.grpc import serve_grpc

    return serve_grpc


def _log_start(
    log: ServerLog,
    place: ListenAddress,
    grpc_address: str | None,
    url: str,
    settings: ServerSettings,
    outputs: str | None,
) -> None:
    audience = "to clients with a key" if settings.keys else "to all clients on this machine"
    store, services = plain(shown_url(url)), ", ".join(settings.services)
    log.print_line(
        f"{place.url} serves {store} ({services}) {audience}. Ctrl-C stops it.",
        "server_started",
        url=place.url,
        store=store,
        services=settings.services,
    )
    if grpc_address is not None:
        log.print_line(f"gRPC is served at {grpc_address}.", "server_grpc_started", url=grpc_address)
    if outputs is not None:
        log.print_line(f"It validates outputs in {plain(outputs)}.", "server_outputs", url=plain(outputs))
