"""A context whose messages to the worker a test can read."""

import asyncio

from holdfast import Context
from holdfast.core.catalogue import WorkerEventType
from holdfast.core.event import Attributes
from holdfast.runner.bridge import Bridge
from holdfast.system import SystemClock
from holdfast.worker.frames import Run


class RecordingChannel:
    """A channel to the worker that keeps what is sent."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def write(self, stream: str, data: bytes) -> None:
        self.calls.append((stream, data))

    def emit(self, event_type: WorkerEventType, attributes: Attributes) -> None:
        self.calls.append((event_type, attributes))

    def progress(self, done: int, total: int | None, message: str | None) -> None:
        self.calls.append((done, total, message))

    def checkpoint(self, value: bytes) -> "asyncio.Future[None]":
        self.calls.append((value,))
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        kept.set_result(None)
        return kept


def context_on(channel: RecordingChannel) -> Context:
    """A context on this channel, on the running loop."""
    run = Run(1, "work", "job-1", b"{}", 1, 1, None, 0.0, "default", "job-1", None, None, None, None)
    return Context(run, channel, SystemClock(), Bridge(asyncio.get_running_loop()))
