"""Submitters, workers and a watcher at one or more servers, which keep what was acknowledged to them."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import timedelta
from typing import TypeVar

import msgspec

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import Unavailable
from holdfast.core.event import Event
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_remote
from holdfast.wire.remote import RemoteRegistry
from tests.server.server_process import until

T = TypeVar("T")

SUBMITTERS, WORKERS = 2, 3
LEASE = timedelta(seconds=10)


class LoadClients:
    """Works until it is stopped. `check` compares what was acknowledged with what is stored."""

    def __init__(self, url: str) -> None:
        self.troubles: Counter[str] = Counter()
        self._url = url
        self._registries: list[RemoteRegistry] = []
        self._enqueued: list[str] = []
        self._completed: list[str] = []
        self._heard: list[str] = []
        self._leaving = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._watching: asyncio.Task[None] | None = None

    @property
    def done(self) -> int:
        return len(self._completed)

    @property
    def heard(self) -> int:
        return len(self._heard)

    async def start(self) -> None:
        roles = [self._submit] * SUBMITTERS + [self._work] * WORKERS
        self._tasks = [asyncio.create_task(role(self._registry())) for role in roles]
        self._watching = asyncio.create_task(self._watch(self._registry()))

    def _registry(self) -> RemoteRegistry:
        registry = open_remote(self._url)
        self._registries.append(registry)
        return registry

    async def _submit(self, registry: RemoteRegistry) -> None:
        while not self._leaving.is_set():
            request = JobRequest(spec=Spec(kind="work", queue="crowd", payload=msgspec.Raw(b"{}")))
            job = await self._tried(lambda: registry.enqueue(request, actor="user:ana"))  # noqa: B023
            if job is not None:
                self._enqueued.append(job.job_id)
            await asyncio.sleep(0.005)

    async def _work(self, registry: RemoteRegistry) -> None:
        while not self._leaving.is_set():
            grants = await self._tried(lambda: registry.claim(["crowd"], owner="w", limit=3, lease=LEASE))
            for grant in grants or []:
                await self._attempt(registry, grant)
            if not grants:
                await registry.changes(timeout=0.2, ready=True)

    async def _attempt(self, registry: RemoteRegistry, grant: Grant) -> None:
        now = await self._tried(registry.now)
        if now is None:
            return
        said = Event(WorkerEventType.OUTPUT, EventClass.WORKER, now, sequence=1, stream="stdout", data=b"x")
        await self._tried(lambda: registry.heartbeat(grant))
        await self._tried(lambda: registry.publish(grant, [said]))
        done = await self._tried(lambda: registry.complete(grant, Success(result=grant.attempt)))
        if done is not None:
            self._completed.append(done.job_id)

    async def _tried(self, act: Callable[[], Awaitable[T]]) -> T | None:
        """Return the result; an unavailable server is counted, any other error is raised."""
        try:
            return await act()
        except Unavailable as error:
            self.troubles[error.message] += 1
            await asyncio.sleep(0.05)
            return None

    async def _watch(self, registry: RemoteRegistry) -> None:
        async with aclosing(registry.watch()) as events:
            async for event in events:
                self._heard.append(event.event_id)

    async def stop(self) -> None:
        """Stop, once each has finished what it does."""
        self._leaving.set()
        await asyncio.gather(*self._tasks)

    async def check(self, registry: LocalRegistry) -> None:
        """Everything acknowledged is there, and the watcher has got every event once."""
        stored = await _all(registry)
        await until(lambda: len(self._heard) >= len(stored))
        assert self._watching is not None
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        for one in self._registries:
            await one.close()

        assert len(set(self._heard)) == len(self._heard)
        assert sorted(self._heard) == sorted(event.event_id for event in stored)
        jobs = [job for job in await registry.status_many(self._enqueued) if job is not None]
        assert len(jobs) == len(self._enqueued) == len(set(self._enqueued))
        ended = await registry.status_many(self._completed)
        assert {job.state for job in ended if job is not None} == {State.SUCCEEDED}
        assert None not in ended
        assert len(set(self._completed)) == len(self._completed)
        assert (await registry.verify()).mismatches == ()


async def _all(registry: LocalRegistry) -> list[Event]:
    events: list[Event] = []
    cursor = None
    while (page := await registry.events(after=cursor)).events:
        events += page.events
        cursor = page.cursor
    return events
