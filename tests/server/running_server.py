"""A server in a test: a real one, on a free port of this machine, over any store."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.lazy import OpenOutputs, no_outputs
from holdfast.ports import Outputs
from holdfast.registry.local import LocalRegistry
from holdfast.server import http_server
from holdfast.server.app import ServerApp
from holdfast.server.context import ServerSettings
from holdfast.server.http_server import HttpServer, ListenAddress
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemClock, SystemIds
from holdfast.testing.fakes import CountingIds, ManualClock
from holdfast.testing.world import World
from holdfast.wire.remote import RemoteRegistry
from holdfast.wire.server_connection import ServerConnection


class RunningServer:
    """A server that runs in this loop."""

    def __init__(self, app: ServerApp, url: str, server: HttpServer) -> None:
        self.app = app
        self.url = url
        self.server = server

    def remote(self, key: str | None = None) -> RemoteRegistry:
        return RemoteRegistry(ServerConnection((self.url,), key), SystemClock(), SystemIds())


def outputs_in(folder: Path) -> OpenOutputs:
    """An output store in this folder, made when it is first needed."""

    async def opening(_: bool) -> Outputs | None:
        return await DirectoryOutputs.open(folder, create=True)

    return opening


@contextmanager
def no_expire_loop() -> Iterator[None]:
    """Servers that start meanwhile expire nothing by themselves. Where a test moves the clock, they would
    expire what is due at any moment within a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_server, "EXPIRE_SECONDS", 3600.0)
        yield


@asynccontextmanager
async def serving(
    registry: LocalRegistry,
    settings: ServerSettings | None = None,
    opening: OpenOutputs = no_outputs,
) -> AsyncIterator[RunningServer]:
    """A server over the registry, on a free port."""
    clock, ids = SystemClock(), SystemIds()
    app = ServerApp(registry, clock, ids, settings or ServerSettings(), opening)
    server = HttpServer(app, ListenAddress(port=0), clock, ids)
    opened: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run_until_stopped(lambda place: opened.set_result(place.url)))
    try:
        yield RunningServer(app, await opened, server)
    finally:
        app.context.stop()
        server.should_exit = True
        await running


@asynccontextmanager
async def served_world() -> AsyncIterator[World]:
    """A fresh world whose registry is at a server."""
    clock, ids = ManualClock(), CountingIds()
    store = MemoryStore(clock, ids)
    behind = LocalRegistry(store, ids)
    with no_expire_loop():
        async with serving(behind) as served:
            remote = served.remote()
            try:
                yield World(store, clock, ids, local=behind, registry=remote)
            finally:
                await remote.close()
    await behind.close()
