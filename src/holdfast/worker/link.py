"""A link: one runner process, and what it is doing."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from holdfast.worker.attempts import Attempt
from holdfast.worker.frames import Frames, Hello, ToRunner, ToWorker, encode, from_runner
from holdfast.worker.processes import Child, Exit, Processes

FOREVER_SECONDS = 10.0 * 365 * 24 * 3600
SOCKET_BYTES = 1024 * 1024
READ_BYTES = 64 * 1024
PIPE_READS_MAX = 16
HANG_UP_SECONDS = 2.0


class Hears(Protocol):
    """Whoever the runner's words are for."""

    def heard(self, link: "Link", message: ToWorker) -> None: ...

    def wrote(self, link: "Link", stream: str, data: bytes) -> None: ...

    def gone(self, link: "Link", exit: Exit) -> None: ...  # noqa: A002


class Link(asyncio.Protocol):
    """The worker's end. `exclusive` runners have one job at a time, and may be killed for it. With `piped`,
    what another writes past Python is heard as well; else it goes where the worker's stderr goes."""

    def __init__(
        self, hears: Hears, *, exclusive: bool, memory_bytes: int | None, piped: bool = False
    ) -> None:
        self.exclusive = exclusive
        self.piped = piped or exclusive
        self.memory_bytes = memory_bytes
        self.attempts: dict[int, Attempt] = {}
        self.done = 0
        self.ready = False
        self.retired = False
        self.deadline = float("inf")
        self.hello: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._hears = hears
        self._frames: Frames[ToWorker] = from_runner()
        self._waiting: list[ToRunner] = []
        self._loop = asyncio.get_running_loop()
        self._pipes: dict[int, str] = {}
        self._hung_up = asyncio.Event()
        self._deaf = False
        self._dead = False

    async def start(
        self,
        processes: Processes,
        app: str,
        *,
        stores: tuple[str, str],
        threads: int,
        env: Mapping[str, str],
    ) -> None:
        """Start the process, and join it. `hello` is what it says first. `stores` are the URLs of the
        jobs and of their outputs, where the app's own do not count."""
        ours, theirs = socket.socketpair()
        with theirs:
            for line in (ours, theirs):
                line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
            argv = [sys.executable, "-m", "holdfast.sdk.runner", "3", app, str(threads)]
            given: list[int] = []
            try:
                if self.piped:
                    given.append(self._pipe("stdout"))
                    given.append(self._pipe("stderr"))
                out, err = given or (2, 2)
                self.child: Child = await processes.spawn(
                    [*argv, *stores],
                    env=env,
                    fds={1: out, 2: err, 3: theirs.fileno()},
                    seconds=FOREVER_SECONDS,
                    memory_bytes=self.memory_bytes,
                )
            except BaseException:
                ours.close()
                raise
            finally:
                for end in given:
                    os.close(end)
        ours.setblocking(False)
        self._transport, _ = await self._loop.create_connection(lambda: self, sock=ours)
        self._ending = asyncio.create_task(self._wait())

    def _pipe(self, stream: str) -> int:
        """A pipe from the process, for what it writes past Python; answers the end to give away."""
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        self._pipes[ours] = stream
        self._loop.add_reader(ours, self._readable, ours)
        return theirs

    def _readable(self, pipe: int) -> None:
        try:
            data = os.read(pipe, READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._hears.wrote(self, self._pipes[pipe], data)
        else:
            self._close(pipe)

    def _close(self, pipe: int) -> None:
        self._loop.remove_reader(pipe)
        del self._pipes[pipe]
        os.close(pipe)

    def rest(self) -> Iterator[tuple[str, bytes]]:
        """What is in the pipes and was not read yet: as much as they hold, whoever still writes."""
        for pipe, stream in self._pipes.items():
            with suppress(BlockingIOError):
                for _ in range(PIPE_READS_MAX):
                    yield stream, os.read(pipe, READ_BYTES)

    async def _wait(self) -> None:
        exit = await self.child.wait()  # noqa: A001
        if not self.hello.done():
            self.hello.set_exception(
                ConnectionError(f"The process that runs the app ended at once ({exit.status}).")
            )
            self.hello.exception()
        self._dead = True
        self.listen()
        with suppress(TimeoutError):  # what it said before it died still counts
            async with asyncio.timeout(HANG_UP_SECONDS):
                await self._hung_up.wait()
        self._transport.close()
        if not self.exclusive:
            for stream, data in self.rest():
                self._hears.wrote(self, stream, data)
        self._hears.gone(self, exit)
        for pipe in list(self._pipes):
            self._close(pipe)

    def data_received(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            if isinstance(message, Hello):
                self.hello.set_result(message)
            else:
                self._hears.heard(self, message)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more is heard from it: whatever it still runs, it runs for nobody."""
        self._hung_up.set()
        self.kill()

    def deafen(self) -> bool:
        """Hear nothing for a while; answers whether that is news. The last words of a process that
        has ended are heard."""
        if self._deaf or self._dead or self._transport.is_closing():
            return False
        self._deaf = True
        self._transport.pause_reading()
        for pipe in self._pipes:
            self._loop.remove_reader(pipe)
        return True

    def listen(self) -> None:
        """Hear again."""
        if self._deaf and not self._transport.is_closing():
            self._deaf = False
            self._transport.resume_reading()
            for pipe in self._pipes:
                self._loop.add_reader(pipe, self._readable, pipe)

    def send(self, message: ToRunner) -> None:
        """Send it with whatever else is sent in this turn of the loop."""
        if not self._waiting:
            self._loop.call_soon(self._send)
        self._waiting.append(message)

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not self._transport.is_closing():
            self._transport.write(encode(waiting))

    def govern(self, deadline: float, now: float) -> None:
        """Let the process live until then, at most, if nothing more is said."""
        if abs(deadline - self.deadline) > 0.01:
            self.deadline = deadline
            self.child.hold(min(deadline - now, FOREVER_SECONDS))

    def resident_bytes(self) -> int:
        """How much memory the process takes now."""
        try:
            fields = Path(f"/proc/{self.child.pid}/statm").read_text().split()
        except OSError:
            return 0
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """End the process; nothing more is sent to it."""
        self.retired = True
        self.child.send(signal.SIGKILL)

    async def close(self) -> None:
        self.kill()
        await self._ending
