"""A registry and its server, over a store whose time stands still, with a client of each protocol."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.core.access import Scope
from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.server.context import ServerSettings
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from holdfast.wire.remote import RemoteRegistry
from tests.server.connect_client import ConnectClient
from tests.server.job_v1_client import JobV1Client
from tests.server.running_server import RunningServer, no_expire_loop, serving

LARGE = msgspec.Raw(b'"' + b"x" * 250_000 + b'"')
"""A payload just below the largest that is allowed."""

PATIENCE_SECONDS = 60.0
AT_ONCE = ServerSettings(poll_seconds=0.0)
"""A server at which nothing waits for a job."""


class ServedRegistry(Struct, frozen=True):
    """A server, its clients, and the registry behind it."""

    server: RunningServer
    connect: ConnectClient
    job_v1: JobV1Client
    remote: RemoteRegistry
    registry: LocalRegistry
    clock: ManualClock

    async def enqueue(self, queue: str = "q", **more: Any) -> Job:  # noqa: ANN401
        return await self.registry.enqueue(JobRequest(spec=Spec(queue=queue), **more), actor="user:a")

    def output(self, sequence: int, data: bytes) -> Event:
        """Return what a job printed, as an event of its worker."""
        return Event(
            WorkerEventType.OUTPUT,
            EventClass.WORKER,
            self.clock.now(),
            sequence=sequence,
            stream="stdout",
            data=data,
        )

    async def key(self, name: str, *scopes: Scope) -> ConnectClient:
        """Return a client with a new key."""
        _, text = await self.registry.create_key(name=name, scopes=scopes, actor="user:root")
        return ConnectClient(self.server.url, text)

    async def types(self, job_id: str) -> list[str]:
        return [str(event.event_type) for event in await self.registry.history(job_id)]

    async def events(self, job_id: str, kind: str) -> list[Event]:
        log = await self.registry.logs(job_id)
        return [event for event in log.events if event.event_type == kind]

    async def pass_by(self, seconds: float) -> None:
        """Advance the clock, and expire what is due by then."""
        self.clock.advance(seconds)
        await self.registry.expire()


@asynccontextmanager
async def open_served(settings: ServerSettings = AT_ONCE) -> AsyncIterator[ServedRegistry]:
    clock, ids = ManualClock(), SystemIds()
    registry = LocalRegistry(MemoryStore(clock, ids), ids)
    with no_expire_loop():
        async with asyncio.timeout(PATIENCE_SECONDS), serving(registry, settings) as server:
            remote = server.remote()
            connect, job_v1 = ConnectClient(server.url, None), JobV1Client(server.url)
            yield ServedRegistry(server, connect, job_v1, remote, registry, clock)
            assert (await registry.verify()).equal
            await remote.close()
    await registry.close()


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Yield a function that returns how many bytes more are in use than at the beginning."""

    def kept() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        began = kept()
        yield lambda: kept() - began
    finally:
        tracemalloc.stop()
