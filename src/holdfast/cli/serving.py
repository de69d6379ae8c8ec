"""The server that `holdfast serve` runs, from its opening to its end."""

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from importlib.util import find_spec

from holdfast.cli.safe import plain
from holdfast.cli.serve_log import ServerLog
from holdfast.core.errors import Denied, Invalid, Unavailable
from holdfast.outputs.lazily import Opening
from holdfast.ports import Outputs
from holdfast.sdk.open import open_local
from holdfast.sdk.outputs import open_chosen
from holdfast.sdk.store_url import StoreUrl, shown_url
from holdfast.server.app import App
from holdfast.server.context import Settings
from holdfast.server.listener import raise_descriptor_limit
from holdfast.server.serving import Place, Server
from holdfast.system import SystemClock, SystemIds, settle_memory

OUTPUTS_SECONDS = 10.0


async def run(
    url: str,
    place: Place,
    settings: Settings,
    log: ServerLog,
    grpc_place: Place | None = None,
    outputs_url: str | None = None,
) -> None:
    """Serve the store until told to stop; by gRPC as well, if there is a place for that."""
    if StoreUrl(url).is_server:
        raise Invalid("A server serves a store, not another server: give --store a store's URL.")
    grpc_beside = None if grpc_place is None else _grpc()
    registry = await open_local(url)
    try:
        now = await registry.now()
        if settings.keys and not any(key.active(now) for key in await registry.keys()):
            raise Invalid(
                "No key in this store counts, so nobody could come in: holdfast keys create ana"
                " --may admin,admin:keys"
            )
        raise_descriptor_limit()
        clock, ids = SystemClock(), SystemIds()
        app = App(registry, clock, ids, settings, _opening(url, outputs_url))
        server = Server(app, place, clock, ids)
        outputs = await _look_at_outputs(app, log)
        settle_memory(ours=True)
        async with AsyncExitStack() as beside:
            also = None
            if grpc_beside is not None and grpc_place is not None:
                also = await beside.enter_async_context(grpc_beside(app, grpc_place))
            await server.run_until_stopped(
                lambda here: _opened(log, here, also, url, settings, outputs)
            )
        log.say("Stopped: what was answered is stored.", "server_stopped")
    finally:
        await registry.close()


def _opening(url: str, outputs_url: str | None) -> Opening:
    """How the output store is opened; it is made only to keep something in it."""

    async def opening(create: bool) -> Outputs | None:
        return await open_chosen(url, outputs_url, create=create)

    return opening


async def _look_at_outputs(app: App, log: ServerLog) -> str | None:
    """Where the output store is. When it is away, that is said: the server does without it meanwhile."""
    try:
        async with asyncio.timeout(OUTPUTS_SECONDS):
            outputs = await app.context.checking.outputs()
    except (Denied, Unavailable, TimeoutError) as error:
        why = str(error) or "It does not answer."
        words = f"The output store cannot be seen, and is tried again. {why}"
        log.say(plain(words), "server_outputs_away", reason=plain(why))
        return None
    return None if outputs is None else outputs.place


def _grpc() -> Callable[[App, Place], AbstractAsyncContextManager[str]]:
    if find_spec("grpc") is None:
        raise Invalid("For --grpc one more package is needed: pip install 'holdfast[grpc]'")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its log would be its clients' to fill
    from holdfast.server.grpc import grpc_beside

    return grpc_beside


def _opened(
    log: ServerLog,
    place: Place,
    grpc_address: str | None,
    url: str,
    settings: Settings,
    outputs: str | None,
) -> None:
    who = "for holders of keys" if settings.keys else "for everybody on this machine"
    store, services = plain(shown_url(url)), ", ".join(settings.services)
    log.say(
        f"{place.url} serves {store} ({services}) {who}. Ctrl-C stops it.",
        "server_started",
        url=place.url,
        store=store,
        services=settings.services,
    )
    if grpc_address is not None:
        log.say(
            f"Clients of gRPC find it at {grpc_address}.", "server_grpc_started", url=grpc_address
        )
    if outputs is not None:
        log.say(f"It looks for outputs in {plain(outputs)}.", "server_outputs", url=plain(outputs))
