"""A server in a test: a real one, on a free port of this machine, over any store."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.lazily import Opening, no_outputs
from holdfast.ports import Outputs
from holdfast.registry.local import LocalRegistry
from holdfast.server.app import App
from holdfast.server.context import Settings
from holdfast.server.serving import Place, Server
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemClock, SystemIds
from holdfast.testing.fakes import CountingIds, ManualClock
from holdfast.testing.world import World
from holdfast.wire.link import Link
from holdfast.wire.remote import RemoteRegistry


class Served:
    """A server that runs in this loop."""

    def __init__(self, app: App, url: str, server: Server) -> None:
        self.app = app
        self.url = url
        self.server = server

    def remote(self, key: str | None = None) -> RemoteRegistry:
        return RemoteRegistry(Link((self.url,), key), SystemClock(), SystemIds())


def outputs_in(folder: Path) -> Opening:
    """An output store in this folder, made when it is first needed."""

    async def opening(_: bool) -> Outputs | None:
        return await DirectoryOutputs.open(folder, create=True)

    return opening


@asynccontextmanager
async def serving(
    registry: LocalRegistry, settings: Settings | None = None, opening: Opening = no_outputs
) -> AsyncIterator[Served]:
    """A server over the registry, on a free port."""
    clock, ids = SystemClock(), SystemIds()
    app = App(registry, clock, ids, settings or Settings(), opening)
    server = Server(app, Place(port=0), clock, ids)
    opened: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(
        server.run_until_stopped(lambda place: opened.set_result(place.url))
    )
    try:
        yield Served(app, await opened, server)
    finally:
        app.context.stop()
        server.should_exit = True
        await running


async def _served_world(folder: Path, body: Callable[[World], Coroutine[None, None, None]]) -> None:
    clock, ids = ManualClock(), CountingIds()
    store = MemoryStore(clock, ids)
    behind = LocalRegistry(store, ids)
    async with serving(behind) as served:
        remote = served.remote()
        try:
            await body(World(store, clock, ids, local=behind, registry=remote))
        finally:
            await remote.close()
    await behind.close()


def play_served(folder: Path, body: Callable[[World], Coroutine[None, None, None]]) -> None:
    """Run an async test body in a fresh world whose registry is at a server."""
    asyncio.run(_served_world(folder, body))
