"""Handlers, a URL of every kind of store, and what a worker does: claim the next job and end it."""

import asyncio
from pathlib import Path

from holdfast import App, Client, Context, Job
from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Outcome, Success
from holdfast.core.spec import Json
from holdfast.ports import Registry
from holdfast.sdk.background import BackgroundClient
from tests.stores.postgres.running_server import fresh_url

STORES = ("memory", "sqlite", "postgres")


async def resize(ctx: Context, path: str, width: int = 100) -> dict[str, int]:
    return {path: width}


def add(first: int, second: int = 2) -> int:
    return first + second


def url_of(store: str, folder: Path) -> str:
    if store == "postgres":
        return asyncio.run(fresh_url(folder))
    return "memory://" if store == "memory" else f"sqlite:///{folder / 'jobs.db'}"


def reach_of(place: App | Client | BackgroundClient) -> BackgroundClient:
    if isinstance(place, App):
        return place.background
    return place if isinstance(place, BackgroundClient) else place._background


def finish(place: App | Client | BackgroundClient, result: Json = None) -> Job:
    """Do what a worker does to the next job: claim it, and complete it with `result`."""
    return end(place, Success(result=result))


def fail(place: App | Client | BackgroundClient, message: str = "no such model") -> Job:
    return end(place, Failure(message=message, retryable=False))


def end(place: App | Client | BackgroundClient, outcome: Outcome) -> Job:
    return reach_of(place).call(lambda client: worked(client.registry, outcome))


async def worked(registry: Registry, outcome: Outcome, *outputs: tuple[str, bytes]) -> Job:
    """Claim the next job, write to its streams, and end it."""
    [grant] = await registry.claim(["default"], owner="worker-7")
    if outputs:
        now = await registry.now()
        events = [
            Event(
                event_type=WorkerEventType.OUTPUT,
                event_class=EventClass.WORKER,
                occurred_at=now,
                sequence=n,
                stream=stream,
                data=data,
            )
            for n, (stream, data) in enumerate(outputs, 1)
        ]
        await registry.publish(grant, events)
    return await registry.complete(grant, outcome)
