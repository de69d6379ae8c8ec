"""What the services of one server share."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from msgspec import Struct

from holdfast.core.job import Job
from holdfast.outputs.lazily import Opening, no_outputs
from holdfast.ports import Clock, Ids, Slice
from holdfast.registry.local import LocalRegistry
from holdfast.registry.watch import until_ended
from holdfast.server.calls import Leaving, check_key, who
from holdfast.server.capacity import Capacity
from holdfast.server.checking import Checking
from holdfast.server.depth import Depth
from holdfast.server.grants import Grants
from holdfast.server.keyring import Keyring
from holdfast.server.lanes import Lanes
from holdfast.server.limits import QUEUE_ITEMS_MAX
from holdfast.server.readers import Readers
from holdfast.server.requests import Requests
from holdfast.server.upload import PublishStreams, publish_room
from holdfast.server.waits import Waits

T = TypeVar("T")

GOING = (
    "This server is going away. Open the stream again, there or at another, and send what was not"
    " acknowledged: what was taken is taken once."
)


class Settings(Struct, frozen=True, kw_only=True):
    """What a server is told."""

    services: tuple[str, ...] = ("jobs", "events", "registry", "rest")
    keys: bool = False
    poll_seconds: float = 5.0
    queue_items_max: int = QUEUE_ITEMS_MAX


class Context:
    """One registry, and everything that its callers share."""

    def __init__(
        self,
        registry: LocalRegistry,
        clock: Clock,
        ids: Ids,
        settings: Settings,
        opening: Opening = no_outputs,
    ) -> None:
        self.registry = registry
        registry.count()
        self.clock = clock
        self.ids = ids
        self.settings = settings
        self.stopping = asyncio.Event()
        self.requests = Requests()
        self.keyring = Keyring(registry, clock, required=settings.keys)
        self.grants = Grants(registry, clock, self.keyring)
        self.waits = Waits(clock)
        self.lanes = Lanes(registry, clock, self.stopping, self.waits)
        self.readers = Readers(registry, self.keyring, clock, self.stopping)
        self.capacity = Capacity(clock)
        self.room = publish_room()
        self.publish_streams = PublishStreams()
        self.depth = Depth(registry, clock, settings.queue_items_max)
        self.checking = Checking(registry, clock, ids, opening)
        self._awaited: dict[asyncio.Timeout, None] = {}

    async def check_key(self) -> None:
        """Raise `Unknown` unless the key of the call under way still counts."""
        await check_key(self.keyring)

    async def follow(self, job: Job | None, after: str | None) -> AsyncGenerator[Slice, None]:
        """The pages of a job's log until the job has ended, or of the events of all jobs, for ever: for the
        caller under way, who takes a seat among the readers. An empty page says that this is all so far."""
        principal, job_id = who.get(), None if job is None else job.job_id
        with self.readers.seat(principal, job_id) as stirred:
            pages = self.readers.follow(principal, job, after, stirred)
            if job is not None:
                pages = until_ended(pages, job, partial(self._status, job.job_id), stirred)
            async with aclosing(pages):
                async for page in pages:
                    yield page

    async def _status(self, job_id: str) -> Job | None:
        [job] = await self.registry.get_many([job_id])
        return job

    def stop(self) -> None:
        """End what waits and what streams: clients read on elsewhere, from where they are."""
        self.stopping.set()
        self.lanes.stop()
        self.readers.stop()
        self.checking.stop()
        for limit in self._awaited:
            limit.reschedule(asyncio.get_running_loop().time())

    async def until_stopped(self, messages: AsyncIterator[T]) -> AsyncGenerator[T, None]:
        """What a client sends, as it comes. A server that stops does not wait for more."""
        while True:
            limit = asyncio.timeout(0 if self.stopping.is_set() else None)
            try:
                async with limit:
                    self._awaited[limit] = None
                    message = await anext(messages)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise Leaving(GOING) from None
            finally:
                self._awaited.pop(limit, None)
            yield message

    async def close(self) -> None:
        await self.grants.close()
        await self.checking.close()
