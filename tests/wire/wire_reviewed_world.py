"""A server whose store's time stands still, and its clients: for what a hostile review found."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import pytest
from connectrpc.errors import ConnectError
from msgspec import Struct
from wire_access_world import Caller

from holdfast.core.access import Scope
from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.spec import Spec
from holdfast.ports import Request
from holdfast.registry.local import LocalRegistry
from holdfast.server.context import Settings
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from holdfast.wire.remote import RemoteRegistry
from wire_world import Served, serving

LARGE = msgspec.Raw(b'"' + b"x" * 250_000 + b'"')
PATIENCE_SECONDS = 60.0


class Scene(Struct, frozen=True):
    """A server, a client of it, and the registry behind it, whose time stands still."""

    served: Served
    caller: Caller
    remote: RemoteRegistry
    registry: LocalRegistry
    clock: ManualClock

    async def enqueue(self, queue: str = "q", **more: Any) -> Job:  # noqa: ANN401
        return await self.registry.enqueue(Request(spec=Spec(queue=queue), **more), actor="user:a")

    def output(self, sequence: int, data: bytes) -> Event:
        """What a worker's job printed."""
        return Event(
            WorkerEventType.OUTPUT,
            EventClass.WORKER,
            self.clock.now(),
            sequence=sequence,
            stream="stdout",
            data=data,
        )

    async def key(self, name: str, *scopes: Scope) -> Caller:
        """Somebody with a key."""
        _, text = await self.registry.create_key(name=name, scopes=scopes, actor="user:root")
        return Caller(self.served.url, text)


@asynccontextmanager
async def scene(settings: Settings | None) -> AsyncIterator[Scene]:
    clock, ids = ManualClock(), SystemIds()
    registry = LocalRegistry(MemoryStore(clock, ids), ids)
    async with serving(registry, settings) as served:
        remote = served.remote()
        yield Scene(served, Caller(served.url, None), remote, registry, clock)
        await remote.close()
    await registry.close()


def play(
    body: Callable[[Scene], Coroutine[None, None, None]], settings: Settings | None = None
) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), scene(settings) as here:
            await body(here)

    asyncio.run(main())


async def refusal(call: Coroutine[Any, Any, Any]) -> ConnectError:
    with pytest.raises(ConnectError) as caught:
        await call
    return caught.value


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """How many bytes more are kept than at the beginning, whenever it is asked."""

    def kept() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        began = kept()
        yield lambda: kept() - began
    finally:
        tracemalloc.stop()
