"""Runners: the processes in which the handlers of an app run, started when there is work for them.

One is shared by all handlers that do not ask for a process of their own. The others are exclusive,
kept warm, and replaced after many jobs or when they have grown large.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from holdfast.core.errors import Invalid
from holdfast.failpoint import failpoint
from holdfast.worker.attempts import Attempt
from holdfast.worker.frames import Hello, Known, ToWorker
from holdfast.worker.link import Link
from holdfast.worker.processes import Exit, Processes
from holdfast.worker.tasks import stop

HELLO_SECONDS = 60.0
RECYCLE_JOBS = 1000
RECYCLE_BYTES = 512 * 1024 * 1024


class Home(Protocol):
    """Whoever has the attempts."""

    def begin(self, link: Link, attempt: Attempt) -> None: ...

    def put_off(self, attempt: Attempt, error: Exception) -> None:
        """No runner can be had for it now."""
        ...

    def heard(self, link: Link, message: ToWorker) -> None: ...

    def wrote(self, link: Link, stream: str, data: bytes) -> None: ...

    def died(self, link: Link, exit: Exit) -> None: ...  # noqa: A002


class Runners:
    """Finds, or starts, a runner for every attempt."""

    def __init__(
        self,
        home: Home,
        processes: Processes,
        app: str,
        *,
        slots: int,
        env: Mapping[str, str],
        stores: tuple[str, str],
        piped: bool = False,
    ) -> None:
        self._home = home
        self._piped = piped
        self._processes = processes
        self._app = app
        self._slots = slots
        self._env = env
        self._stores = stores
        self._shared: Link | None = None
        self._waiting: deque[Attempt] = deque()
        self._lanes: dict[int | None, deque[Attempt]] = {}
        self._starting: dict[asyncio.Task[None], bool] = {}
        self._closing = False
        self.links: dict[Link, None] = {}

    async def load(self) -> Hello:
        """Start the shared runner; `Invalid` when the app cannot be loaded."""
        self._shared, hello = await self._start(exclusive=False, memory_bytes=None)
        return hello

    async def close(self) -> None:
        self._closing = True
        await stop(*self._starting)
        for link in list(self.links):
            await link.close()

    def submit(self, attempt: Attempt, known: Known) -> None:
        """Begin it in a runner, as soon as there is one."""
        if known.isolation == "process":
            self._lanes.setdefault(known.memory_bytes, deque()).append(attempt)
            self._fill(known.memory_bytes)
        elif self._shared is not None and not self._shared.retired:
            self._home.begin(self._shared, attempt)
        else:
            self._waiting.append(attempt)
            self._send()

    def ended(self, link: Link) -> None:
        """An attempt in this runner is over."""
        link.done += 1
        if link.exclusive:
            if link.done >= RECYCLE_JOBS or link.resident_bytes() > RECYCLE_BYTES:
                self.retire(link)
            self._fill_all()
        elif link.retired and not link.attempts:
            link.kill()

    def retire(self, link: Link) -> None:
        """Send no more to this runner, and end it when what it runs has ended."""
        link.retired = True
        if not link.attempts:
            link.kill()

    def gone(self, link: Link, exit: Exit) -> None:  # noqa: A002
        """The process has ended."""
        self.links.pop(link, None)
        if self._shared is link:
            self._shared = None
        self._home.died(link, exit)
        self._look()

    def heard(self, link: Link, message: ToWorker) -> None:
        self._home.heard(link, message)

    def wrote(self, link: Link, stream: str, data: bytes) -> None:
        self._home.wrote(link, stream, data)

    def _send(self) -> None:
        link = self._shared
        if link is not None and not link.retired:
            while self._waiting:
                self._home.begin(link, self._waiting.popleft())
        elif self._waiting and False not in self._starting.values():
            self._spawn(self._renew(), exclusive=False)

    async def _renew(self) -> None:
        try:
            self._shared, _ = await self._start(exclusive=False, memory_bytes=None)
        except (Invalid, OSError) as error:
            while self._waiting:
                self._home.put_off(self._waiting.popleft(), error)

    def _fill_all(self) -> None:
        """Every lane, the one that has waited longest first: none may starve beside a busy one."""
        waited = {m: lane[0].hold.begun_at or 0.0 for m, lane in self._lanes.items() if lane}
        for memory_bytes in sorted(waited, key=waited.__getitem__):
            self._fill(memory_bytes)

    def _fill(self, memory_bytes: int | None) -> None:
        """Share the waiting out among the idle; start more, or make room for them."""
        lane = self._lanes.get(memory_bytes)
        if not lane:
            return
        idle = [link for link in self.links if _idle(link)]
        for link in idle:
            while lane and not link.attempts and link.memory_bytes == memory_bytes:
                self._home.begin(link, lane.popleft())
        others = [link for link in idle if link.memory_bytes != memory_bytes]
        count = sum(link.exclusive for link in self.links)
        coming = sum(self._starting.values())
        for _ in range(len(lane) - coming):
            if count + coming < self._slots:
                coming += 1
                self._spawn(self._grow(memory_bytes), exclusive=True)
            elif others:
                self.retire(others.pop())

    async def _grow(self, memory_bytes: int | None) -> None:
        try:
            await self._start(exclusive=True, memory_bytes=memory_bytes)
        except (Invalid, OSError) as error:
            if lane := self._lanes[memory_bytes]:
                self._home.put_off(lane.popleft(), error)

    def _spawn(self, work: Coroutine[Any, Any, None], *, exclusive: bool) -> None:
        task = asyncio.create_task(work)
        self._starting[task] = exclusive
        task.add_done_callback(self._started)

    def _started(self, task: asyncio.Task[None]) -> None:
        del self._starting[task]
        self._look()

    def _look(self) -> None:
        """Whether anything that waits can go on now."""
        if not self._closing:
            self._send()
            self._fill_all()

    async def _start(self, *, exclusive: bool, memory_bytes: int | None) -> tuple[Link, Hello]:
        link = Link(self, exclusive=exclusive, memory_bytes=memory_bytes, piped=self._piped)
        threads = 1 if exclusive else self._slots
        self.links[link] = None
        try:
            await link.start(
                self._processes, self._app, stores=self._stores, threads=threads, env=self._env
            )
        except BaseException:
            del self.links[link]
            raise
        failpoint("worker.runner_started")
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                hello = await asyncio.shield(link.hello)
        except (TimeoutError, ConnectionError) as error:
            link.kill()
            words = str(error) or f"{self._app} took too long to load."
            raise Invalid(words, advice=self._trial()) from error
        if hello.error is not None:
            raise Invalid(hello.error, advice=self._trial())
        link.ready = True
        return link, hello

    def _trial(self) -> str:
        """What shows by itself whether the app can be loaded."""
        module = self._app.partition(":")[0]
        return f"Try it in the folder of the app: python -c 'import {module}'"


def _idle(link: Link) -> bool:
    return link.exclusive and link.ready and not link.attempts and not link.retired
