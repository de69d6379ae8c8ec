"""The worker's connection to one runner: the process, what is sent to it and what it sends."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from holdfast.system import resident_bytes
from holdfast.worker.frames import FrameDecoder, Hello, ToRunner, ToWorker, encode, from_runner
from holdfast.worker.processes import ProcessExit, ProcessStarter, StartedProcess
from holdfast.worker.runner_attempt import RunnerAttempt

FOREVER_SECONDS = 10.0 * 365 * 24 * 3600
SOCKET_BYTES = 1024 * 1024
READ_BYTES = 64 * 1024
PIPE_READS_MAX = 16
DISCONNECT_SECONDS = 2.0


class RunnerListener(Protocol):
    """The owner of the attempts: what the runners and their pool tell it."""

    def begin(self, runner: "RunnerConnection", attempts: Sequence[RunnerAttempt]) -> None:
        """This runner is free for the attempts: send them."""
        ...

    def no_runner(self, attempt: RunnerAttempt, error: Exception) -> None:
        """No runner could be started for the attempt."""
        ...

    def received(self, runner: "RunnerConnection", messages: Sequence[ToWorker]) -> None:
        """The runner has sent these, in one frame."""
        ...

    def wrote(self, runner: "RunnerConnection", stream: str, data: bytes) -> None:
        """The process wrote to a stream directly, not through Python's `sys.stdout` or `sys.stderr`."""
        ...

    def runner_ended(self, runner: "RunnerConnection", exit: ProcessExit) -> None: ...  # noqa: A002


class RunnerConnection(asyncio.BufferedProtocol):
    """The worker's end. `exclusive` runners run one job at a time, and may be killed to stop it.

    Their standard streams are pipes to the worker; with `piped` so are those of the shared runner, else
    they go where the worker's stderr goes. `ended` is called when the process has ended.
    """

    def __init__(
        self,
        listener: RunnerListener,
        ended: "Callable[[RunnerConnection, ProcessExit], None]",
        *,
        exclusive: bool,
        memory_bytes: int | None,
        piped: bool = False,
    ) -> None:
        self.exclusive = exclusive
        self.piped = piped or exclusive
        self.memory_bytes = memory_bytes
        self.attempts: dict[int, RunnerAttempt] = {}
        self.attempts_done = 0
        self.ready = False
        self.retired = False
        self.deadline = float("inf")
        self.hello: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._listener = listener
        self._ended = ended
        self._frames: FrameDecoder[ToWorker] = from_runner()
        # A buffer of our own: the loop would map and unmap one for each read.
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._unsent: list[ToRunner] = []
        self._loop = asyncio.get_running_loop()
        self._pipes: dict[int, str] = {}
        self._disconnected = asyncio.Event()
        self._paused = False
        self._exited = False

    async def start(
        self,
        processes: ProcessStarter,
        argv: Sequence[str],
        app: str,
        *,
        stores: tuple[str, str],
        threads: int,
        env: Mapping[str, str],
    ) -> None:
        """Start the process and connect to it. `argv` is the command line of the runner program. `stores`
        are the URLs of the job store and of the output store, where they override the app's own."""
        ours, theirs = socket.socketpair()
        with theirs:
            for side in (ours, theirs):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
            given: list[int] = []
            try:
                if self.piped:
                    given.append(self._pipe("stdout"))
                    given.append(self._pipe("stderr"))
                out, err = given or (2, 2)
                self.child: StartedProcess = await processes.spawn(
                    [*argv, "3", app, str(threads), *stores],
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
        self._ending = asyncio.create_task(self._watch_exit())

    def _pipe(self, stream: str) -> int:
        """Make a pipe for what the process writes to this stream; return the end to give it."""
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        self._pipes[ours] = stream
        self._loop.add_reader(ours, self._read_pipe, ours)
        return theirs

    def _read_pipe(self, pipe: int) -> None:
        try:
            data = os.read(pipe, READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._listener.wrote(self, self._pipes[pipe], data)
        else:
            self._close(pipe)

    def _close(self, pipe: int) -> None:
        self._loop.remove_reader(pipe)
        del self._pipes[pipe]
        os.close(pipe)

    def unread_output(self) -> Iterator[tuple[str, bytes]]:
        """Return what is in the pipes now: at most what they can hold, though a process may go on
        writing."""
        for pipe, stream in self._pipes.items():
            with suppress(BlockingIOError):
                for _ in range(PIPE_READS_MAX):
                    yield stream, os.read(pipe, READ_BYTES)

    async def _watch_exit(self) -> None:
        exit = await self.child.wait()  # noqa: A001
        if not self.hello.done():
            self.hello.set_exception(
                ConnectionError(f"The process that runs the app ended at once ({exit.status}).")
            )
            self.hello.exception()
        self._exited = True
        self.resume_reading()
        with suppress(TimeoutError):  # what it sent before it died still counts
            async with asyncio.timeout(DISCONNECT_SECONDS):
                await self._disconnected.wait()
        self._transport.close()
        if not self.exclusive:
            for stream, data in self.unread_output():
                self._listener.wrote(self, stream, data)
        self._ended(self, exit)
        for pipe in list(self._pipes):
            self._close(pipe)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        for messages in self._frames.feed(self._buffer[:nbytes]):
            if isinstance(messages[0], Hello):
                self.hello.set_result(messages[0])
            else:
                self._listener.received(self, messages)

    def connection_lost(self, exc: Exception | None) -> None:
        """Kill the process: the result of what it still runs could not be received."""
        self._disconnected.set()
        self.kill()

    def pause_reading(self) -> bool:
        """Stop reading; return whether that changed anything. What a process that has ended left behind is
        read all the same."""
        if self._paused or self._exited or self._transport.is_closing():
            return False
        self._paused = True
        self._transport.pause_reading()
        for pipe in self._pipes:
            self._loop.remove_reader(pipe)
        return True

    def resume_reading(self) -> None:
        """Read again."""
        if self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()
            for pipe in self._pipes:
                self._loop.add_reader(pipe, self._read_pipe, pipe)

    def send(self, message: ToRunner) -> None:
        """Send it, in one frame with all that is sent in this turn of the loop."""
        if not self._unsent:
            self._loop.call_soon(self._write)
        self._unsent.append(message)

    def send_many(self, messages: Sequence[ToRunner]) -> None:
        """Send them at once, in one frame with what waits."""
        self._unsent += messages
        self._write()

    def _write(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and not self._transport.is_closing():
            self._transport.write(encode(unsent))

    def set_deadline(self, deadline: float, now: float) -> None:
        """Have the supervisor kill the process at this time, unless it is set again."""
        if abs(deadline - self.deadline) > 0.01:
            self.deadline = deadline
            self.child.set_lifetime(min(deadline - now, FOREVER_SECONDS))

    def resident_bytes(self) -> int:
        """Return the memory that the process uses now."""
        return resident_bytes(self.child.pid)

    def kill(self) -> None:
        """End the process; nothing more is sent to it."""
        self.retired = True
        self.child.send(signal.SIGKILL)

    async def close(self) -> None:
        self.kill()
        await self._ending
