"""The announcer: tells the registry that a worker is there, at a slow pace, and when it has left."""

import asyncio
import os
from collections.abc import Callable
from datetime import datetime

from msgspec import Struct

from holdfast.core.errors import HoldfastError, Unavailable
from holdfast.core.workers import ANNOUNCE_SECONDS, WorkerInfo
from holdfast.ports import Clock, Ids, Registry
from holdfast.system import first_of, jittered
from holdfast.worker.claims import WorkerSettings

LAST_SECONDS = 2.0
"""How long the last announcement may take: nobody waits for it."""


class WorkerProcess(Struct, frozen=True, kw_only=True):
    """What is announced of the process that a worker runs in: `kinds` are those it can run."""

    host: str
    pid: int
    version: str
    app: str | None
    kinds: tuple[str, ...]
    executors: tuple[str, ...]


class Announcer:
    """Announces one worker. A registry that does not answer is no reason for a worker to stop: what fails
    is said again a quarter of a minute later."""

    def __init__(
        self,
        registry: Registry,
        settings: WorkerSettings,
        process: WorkerProcess,
        *,
        clock: Clock,
        ids: Ids,
        leaving: asyncio.Event,
        running: Callable[[], int],
        threads_running: Callable[[], int],
        paused: Callable[[], bool],
        trouble: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._process = process
        self._clock = clock
        self._ids = ids
        self._instance = ids.new()
        self._leaving = leaving
        self._running = running
        self._threads_running = threads_running
        self._paused = paused
        self._trouble = trouble
        self._started_at: datetime | None = None
        self._announced = False
        self._refused = False

    async def run(self) -> None:
        """Announce the worker now, and from time to time, and when it begins to leave, until cancelled."""
        while True:
            await self._announce_or_report()
            seconds = jittered(ANNOUNCE_SECONDS, self._ids)
            if self._leaving.is_set():
                await self._clock.sleep(seconds)
            else:
                await first_of(self._clock.sleep(seconds), self._leaving.wait())

    async def left(self) -> None:
        """Announce that the worker has left, if it was ever announced: also by a call that was cancelled,
        which may have been written."""
        if self._announced:
            try:
                async with asyncio.timeout(LAST_SECONDS):
                    await self._announce(stopped=True)
            except (HoldfastError, TimeoutError):
                return  # it is forgotten in time

    async def _announce_or_report(self) -> None:
        try:
            namesakes = await self._announce()
        except Unavailable:
            self._announced = self._started_at is not None
            return  # whoever claims reports that
        except HoldfastError as error:
            self._announced = self._started_at is not None
            if not self._refused:
                self._refused = True
                self._trouble(f"this worker is not in the list of workers: {error.message}")
            return
        for other in namesakes:
            if self._is_another(other):
                self._trouble(
                    f"another worker is named {other.name}, or was a moment ago: {other.place}."
                    " Give each worker a name of its own: --name"
                )

    async def _announce(self, *, stopped: bool = False) -> tuple[WorkerInfo, ...]:
        settings, process = self._settings, self._process
        self._announced = True
        threads = settings.threads if settings.threads and not settings.threads.alone else None
        announced = await self._registry.announce(
            settings.owner,
            instance=self._instance,
            queues=settings.queues,
            kinds=process.kinds,
            executors=process.executors,
            slots=settings.slots,
            busy=self._running(),
            thread_kinds=sorted(threads.kinds) if threads else (),
            thread_slots=threads.slots if threads else 0,
            thread_busy=self._threads_running() if threads else 0,
            region=settings.region,
            host=process.host,
            pid=process.pid,
            app=process.app,
            version=process.version,
            paused=self._paused(),
            leaving=self._leaving.is_set(),
            stopped=stopped,
            started_at=self._started_at,
        )
        self._started_at = announced.worker.started_at
        return announced.namesakes

    def _is_another(self, other: WorkerInfo) -> bool:
        """Whether this may be a process that still runs. A worker that was killed and started again here
        meets the announcement of its own past."""
        if other.host != self._process.host:
            return True
        return other.pid != self._process.pid and is_running(other.pid)


def is_running(pid: int) -> bool:
    """Return whether this machine has a process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
