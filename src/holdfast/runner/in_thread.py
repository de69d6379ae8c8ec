"""A runner in a thread of the worker's own process, for functions that no other process can import."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Semaphore, Thread
from typing import Any, TypeVar

from holdfast.runner.app import HandlerApp
from holdfast.runner.process import run_until_gone
from holdfast.worker.processes import ProcessExit

T = TypeVar("T")

JOIN_SECONDS = 2.0
KILLED = ProcessExit(-signal.SIGKILL)


class DaemonThreads(Executor):
    """Threads for plain functions. The end of the process does not wait for them, since nothing can end a
    function that does not return."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._idle = Semaphore(0)
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:  # noqa: ANN401
        future: Future[T] = Future()
        self._work.put((future, partial(fn, *args, **kwargs)))
        if not self._idle.acquire(blocking=False) and self._count < self._most:
            Thread(target=self._run, name="handler", daemon=True).start()
            self._count += 1
        return future

    def _run(self) -> None:
        while (one := self._work.get()) is not None:
            future, call = one
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del one, future, call  # what a function returned is not kept by an idle thread
            self._idle.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Begin nothing more. What runs is not waited for."""
        with suppress(Empty):
            while (one := self._work.get_nowait()) is not None:
                one[0].cancel()
        for _ in range(self._count):
            self._work.put(None)


class RunnerThread:
    """A runner with a loop of its own. Nothing can end a thread: one that is killed loses its worker, which
    its coroutines and whatever it reports next find out."""

    def __init__(self, app: HandlerApp, connection: socket.socket, threads: int) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[ProcessExit] = self._loop.create_future()
        self._cut = connection.dup()
        self.thread = Thread(
            target=self._run, args=(app, connection, threads), name="holdfast-runner", daemon=True
        )
        self.thread.start()

    def _run(self, app: HandlerApp, connection: socket.socket, threads: int) -> None:
        try:
            asyncio.run(run_until_gone(connection, app, DaemonThreads(threads)))
        finally:
            with suppress(RuntimeError):  # the loop of the worker is closed
                self._loop.call_soon_threadsafe(self._end, ProcessExit(0))

    def _end(self, how: ProcessExit) -> None:
        if not self._ended.done():
            self._ended.set_result(how)
            self._cut.close()

    async def wait(self) -> ProcessExit:
        return await asyncio.shield(self._ended)

    def set_lifetime(self, seconds: float) -> None:
        """Do nothing: a thread that is frozen is so with its worker."""

    def send(self, number: signal.Signals) -> None:
        if number == signal.SIGKILL and not self._ended.done():
            with suppress(OSError):  # it has hung up
                self._cut.shutdown(socket.SHUT_RDWR)
            self._end(KILLED)


class RunnerThreads:
    """Starts runners in threads, in place of processes."""

    def __init__(self, app: HandlerApp) -> None:
        self._app = app
        self._started: list[RunnerThread] = []

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        fds: Mapping[int, int],
        seconds: float,
        terminal: bool = False,
        memory_bytes: int | None = None,
    ) -> RunnerThread:
        """Start the runner that this command line starts: FD APP THREADS …, of which only the first and the
        third say anything here."""
        number, _, threads, *_ = argv
        connection = socket.socket(fileno=os.dup(fds[int(number)]))
        connection.setblocking(False)
        started = RunnerThread(self._app, connection, int(threads))
        self._started = [one for one in self._started if one.thread.is_alive()] + [started]
        return started

    async def close(self) -> None:
        """Wait a moment for the threads, which have lost their worker; one in which a handler blocks its loop
        is left."""
        for one in self._started:
            await asyncio.to_thread(one.thread.join, JOIN_SECONDS)
