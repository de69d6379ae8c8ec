"""Parts for tests of a worker's insides: a link without a process, functions without a runner."""

import asyncio
import socket
from collections.abc import Coroutine
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Any, TypeVar, cast

from desk import Desk

from holdfast.core.spec import Spec
from holdfast.ports import Registry, Request
from holdfast.sdk.open import open_registry
from holdfast.system import SystemClock
from holdfast.worker.attempts import Attempt
from holdfast.worker.executor import Ending
from holdfast.worker.frames import Ended, Known
from holdfast.worker.functions import Functions
from holdfast.worker.hold import Hold
from holdfast.worker.link import Hears, Link
from holdfast.worker.processes import Child, Exit
from holdfast.worker.tasks import Tasks

T = TypeVar("T")
PATIENCE_SECONDS = 60.0
CLOCK = SystemClock()


def run(work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await work

    return asyncio.run(bounded())


async def held(registry: Registry, kind: str = "work", **spec: object) -> Hold:
    """A job that this worker has just claimed."""
    request = Request(spec=Spec(kind=kind, **spec))  # type: ignore[arg-type]
    job = await registry.enqueue(request, actor="user:ana")
    grant = await registry.acquire(job.job_id, owner="w-1")
    return Hold(grant, CLOCK.monotonic() + 30)


class FakeChild:
    """A process that only counts its signals."""

    pid = 0

    def __init__(self) -> None:
        self.signals: list[int] = []

    def send(self, number: int) -> None:
        self.signals.append(number)

    def hold(self, seconds: float) -> None: ...


class Ears:
    """Hears a runner."""

    def __init__(self) -> None:
        self.words: list[object] = []

    def heard(self, link: Link, message: object) -> None:
        self.words.append(message)

    def wrote(self, link: Link, stream: str, data: bytes) -> None:
        self.words.append(data)

    def gone(self, link: Link, exit: Exit) -> None: ...  # noqa: A002


async def linked(ears: Hears) -> tuple[Link, FakeChild, socket.socket]:
    """A link without a process, and the far end of its line."""
    link, child = Link(ears, exclusive=True, memory_bytes=None), FakeChild()
    link.child = cast("Child", child)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    link._transport, _ = await loop.create_connection(lambda: link, sock=ours)
    return link, child, theirs


class Stage:
    """Functions with one attempt in a runner that is none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def __aenter__(self) -> "Stage":
        self.registry = await open_registry("memory://")
        self.desk = Desk(self.registry, self.folder)
        self.functions = Functions(self.desk.processes, "plant:app", slots=1, env={})
        self.functions._known = {"work": Known("work", "shared", None, compensates=False)}
        self.functions._host = self.desk
        self.functions._tasks = Tasks(self.desk.trouble)
        self.link, self.child, self.far = await linked(Ears())
        self.link.exclusive = False
        self.hold = await held(self.registry, timeout=timedelta(seconds=1))
        self.attempt = Attempt(self.hold)
        self.functions.begin(self.link, self.attempt)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.link._transport.close()
        self.far.close()
        await self.functions._tasks.stop()
        for output in self.desk.outputs.values():
            await output.close()
        await self.registry.close()

    async def told(self) -> None:
        """Wait until it is told to stop now."""
        for _ in range(100):
            await asyncio.sleep(0)
        assert self.attempt.told is not None

    def hears(self) -> bool:
        return not self.link._deaf

    def says(self, ending: Ending, at: float = inf) -> None:
        """It says that it has ended, at a time that is late unless another is given."""
        self.functions.heard(self.link, Ended(self.attempt.number, ending, at))
