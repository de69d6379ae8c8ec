"""Clients of job.v1 and of holdfast.v1 at one server, over a store whose time stands still."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from msgspec import Struct
from wire_load_clients import Clients

from holdfast.core.event import Event
from holdfast.registry.local import LocalRegistry
from holdfast.server.context import Settings
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from holdfast.wire.remote import RemoteRegistry
from wire_world import serving


class Scene(Struct, frozen=True):
    """Clients of a server, and the registry behind it, whose time stands still."""

    clients: Clients
    remote: RemoteRegistry
    registry: LocalRegistry
    store: MemoryStore
    clock: ManualClock

    async def types(self, job_id: str) -> list[str]:
        return [str(event.event_type) for event in await self.registry.history(job_id)]

    async def events(self, job_id: str, kind: str) -> list[Event]:
        log = await self.registry.log(job_id)
        return [event for event in log.events if event.event_type == kind]

    async def pass_by(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.registry.expire()


@asynccontextmanager
async def scene(poll_seconds: float) -> AsyncIterator[Scene]:
    clock, ids = ManualClock(), SystemIds()
    store = MemoryStore(clock, ids)
    registry = LocalRegistry(store, ids)
    async with serving(registry, Settings(poll_seconds=poll_seconds)) as served:
        remote = served.remote()
        yield Scene(Clients(served.url), remote, registry, store, clock)
        await remote.close()
    await registry.close()


def play(body: Callable[[Scene], Coroutine[None, None, None]], poll_seconds: float = 0.0) -> None:
    async def main() -> None:
        async with scene(poll_seconds) as here:
            await body(here)
            assert (await here.registry.verify()).equal

    asyncio.run(main())


async def refusal(call: Coroutine[object, object, object]) -> Code:
    with pytest.raises(ConnectError) as caught:
        await call
    return caught.value.code
