"""What the services of one server share."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from msgspec import Struct

from holdfast.core.job import Job
from holdfast.outputs.lazy import OpenOutputs, no_outputs
from holdfast.ports import Clock, EventPage, Ids
from holdfast.registry.local import LocalRegistry
from holdfast.registry.watch import until_ended
from holdfast.server.calls import ShuttingDown, check_key, current_principal
from holdfast.server.capacity import Capacity, WaitLimit
from holdfast.server.claim_waiters import ClaimWaiters
from holdfast.server.event_streams import EventStreams
from holdfast.server.grants import Grants
from holdfast.server.keyring import Keyring
from holdfast.server.limits import QUEUE_ITEMS_MAX
from holdfast.server.publish_streams import PublishStreams, publish_memory
from holdfast.server.queue_limit import QueueLimit
from holdfast.server.request_metrics import RequestMetrics
from holdfast.server.server_outputs import ServerOutputs

T = TypeVar("T")

SHUTTING_DOWN = (
    "This server is shutting down. Open the stream again, here or at another server, and send what was not"
    " acknowledged: events that were stored already are not stored twice."
)


class ServerSettings(Struct, frozen=True, kw_only=True):
    """The settings of a server."""

    services: tuple[str, ...] = ("jobs", "events", "registry", "rest")
    keys: bool = False
    poll_seconds: float = 5.0
    queue_items_max: int = QUEUE_ITEMS_MAX
    cors_origins: tuple[str, ...] = ()


class ServerContext:
    """One registry, and everything that the services share."""

    def __init__(
        self,
        registry: LocalRegistry,
        clock: Clock,
        ids: Ids,
        settings: ServerSettings,
        opening: OpenOutputs = no_outputs,
    ) -> None:
        self.registry = registry
        registry.start_counting()
        self.clock = clock
        self.ids = ids
        self.settings = settings
        self.stopping = asyncio.Event()
        self.request_metrics = RequestMetrics()
        self.keyring = Keyring(registry, clock, required=settings.keys)
        self.grants = Grants(registry, clock, self.keyring)
        self.wait_limit = WaitLimit(clock)
        self.claim_waiters = ClaimWaiters(registry, clock, self.stopping, self.wait_limit)
        self.event_streams = EventStreams(registry, self.keyring, clock, self.stopping)
        self.capacity = Capacity(clock)
        self.publish_memory = publish_memory()
        self.publish_streams = PublishStreams()
        self.queue_limit = QueueLimit(registry, clock, settings.queue_items_max)
        self.outputs = ServerOutputs(registry, clock, ids, opening)
        self._receiving: dict[asyncio.Timeout, None] = {}

    async def check_key(self) -> None:
        """Raise `Unauthenticated` unless the key of the current call is still valid."""
        await check_key(self.keyring)

    async def follow(self, job: Job | None, after: str | None) -> AsyncGenerator[EventPage, None]:
        """Return the pages of a job's log until the job has ended, or of the events of all jobs, without
        end, as a stream of the caller. An empty page says that this is all so far."""
        principal, job_id = current_principal.get(), None if job is None else job.job_id
        with self.event_streams.subscribe(principal, job_id) as wake:
            pages = self.event_streams.follow(principal, job, after, wake)
            if job is not None:
                pages = until_ended(pages, job, partial(self._status, job.job_id), wake)
            async with aclosing(pages):
                async for page in pages:
                    yield page

    async def _status(self, job_id: str) -> Job | None:
        [job] = await self.registry.status_many([job_id])
        return job

    def stop(self) -> None:
        """End all waiting calls and streams: clients continue at another server, from their cursor."""
        self.stopping.set()
        self.claim_waiters.stop()
        self.event_streams.stop()
        self.outputs.stop()
        for limit in self._receiving:
            limit.reschedule(asyncio.get_running_loop().time())

    async def until_stopped(self, messages: AsyncIterator[T]) -> AsyncGenerator[T, None]:
        """Return the messages of a client as they arrive; `ShuttingDown` when the server stops."""
        while True:
            limit = asyncio.timeout(0 if self.stopping.is_set() else None)
            try:
                async with limit:
                    self._receiving[limit] = None
                    message = await anext(messages)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise ShuttingDown(SHUTTING_DOWN) from None
            finally:
                self._receiving.pop(limit, None)
            yield message

    async def close(self) -> None:
        await self.grants.close()
        await self.outputs.close()
