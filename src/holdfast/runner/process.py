"""The process of a runner, in which handlers run; the worker that renews their leases is another process.

A worker starts it as `python -m holdfast.runner FD APP THREADS [URL [OUTPUTS]]`; FD is a socket to the
worker. Coroutines run on its loop, plain functions in threads. It ends when the worker is gone. A runner in a
thread of the worker's own process is the same but for its end (`run_until_gone`).
"""

import asyncio
import os
import socket
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from holdfast import tracing
from holdfast.core.errors import Invalid
from holdfast.runner.app import Handler, HandlerApp, load_app
from holdfast.runner.bridge import Bridge
from holdfast.runner.channel import FrameChannel, FrameSender
from holdfast.runner.context import CheckpointRefused, Context
from holdfast.runner.invocation import compensate, handle, internal_error, not_parsed
from holdfast.runner.streams import route
from holdfast.system import SystemClock, SystemIds, tune_garbage_collector
from holdfast.worker.executor import RETURNED, Ending
from holdfast.worker.frames import (
    CheckpointReply,
    Compensate,
    Ended,
    Hello,
    KnownJob,
    Renewed,
    Run,
    Stop,
    StopReceived,
    ToRunner,
    encode,
    from_worker,
)

READ_BYTES = 256 * 1024


class Runner(asyncio.BufferedProtocol):
    """Begins the attempts that the worker sends, and reports how each ended. `gone` is called when the worker
    is."""

    def __init__(self, app: HandlerApp, threads: Executor, gone: Callable[[], None]) -> None:
        self._app = app
        self._gone = gone
        self._clock = SystemClock()
        self._threads = threads
        self._frames = from_worker()
        self._attempts: dict[int, _Attempt] = {}
        self._loop = asyncio.get_running_loop()
        self._bridge = Bridge(self._loop)
        self._outputs = app.output_store()
        self._behind_server = app.url.startswith(("http://", "https://"))
        # A buffer of our own: the loop would map and unmap one for each read.
        self._buffer = memoryview(bytearray(READ_BYTES))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)  # a socket is one
        self._sender = FrameSender(self._loop, transport)
        self._sender.post(hello(self._app))

    def pause_writing(self) -> None:
        self._sender.pause()

    def resume_writing(self) -> None:
        self._sender.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()

    async def abandon(self) -> None:
        """Leave the attempts to themselves: they are asked to stop, and nothing that they report arrives."""
        self._sender.close()
        for attempt in self._attempts.values():
            attempt.context.request_stop()
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self._outputs.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        for messages in self._frames.feed(self._buffer[:nbytes]):
            for message in messages:
                self._receive(message)

    def _receive(self, message: ToRunner) -> None:
        match message:
            case Run():
                self._begin(message, compensating=False)
            case Stop():
                self._stop(message)
            case Renewed():
                if (attempt := self._attempts.get(message.number)) is not None:
                    attempt.context.renew(message.deadline)
            case CheckpointReply():
                self._sender.finish_checkpoint(
                    message.call, CheckpointRefused(message.error) if message.error else None
                )
            case Compensate():
                self._begin(message.run, compensating=True)

    def _begin(self, run: Run, *, compensating: bool) -> None:
        channel = FrameChannel(self._sender, run.number)
        context = Context(run, channel, self._clock, self._bridge, self._outputs)
        if self._behind_server:
            context.behind_server = True
        job = self._app.jobs.get(run.kind)
        if job is None:  # the app was changed after the worker had read it
            words = f"{run.kind}: the app of this worker no longer has this kind."
            gone = not_parsed(words, not_understood=True)
            self._sender.post(Ended(run.number, gone, self._clock.monotonic()))
            return
        work = compensate if compensating else handle
        hook = job.compensate if compensating else None
        on_loop = job.is_async if hook is None else hook.is_async
        attempt = _Attempt(context, channel, thread=not on_loop)
        self._attempts[run.number] = attempt
        running = self._run(run.number, work(job, context, run.payload, self._threads))
        attempt.task = self._loop.create_task(running)

    async def _run(self, number: int, work: Coroutine[Any, Any, Ending]) -> None:
        try:
            ending = await work
        except asyncio.CancelledError:  # before the handler had begun
            ending = Ending(cancelled=True, stopped=True)
        except BaseException as error:
            ending = internal_error(error)
        self._attempts.pop(number).channel.flush()
        if ending is RETURNED:
            self._sender.returned(number)
        else:
            self._sender.post(Ended(number, ending, self._clock.monotonic()))

    def _stop(self, message: Stop) -> None:
        attempt = self._attempts.get(message.number)
        if attempt is None:
            return
        attempt.context.request_stop()
        if message.now and not attempt.thread and attempt.task is not None:
            attempt.task.cancel()
        self._sender.post(StopReceived(message.number, attempt.thread))


class _Attempt:
    """A handler that is running."""

    __slots__ = ("channel", "context", "task", "thread")

    def __init__(self, context: Context, channel: FrameChannel, *, thread: bool) -> None:
        self.context = context
        self.channel = channel
        self.thread = thread
        self.task: asyncio.Task[None] | None = None


def hello(app: HandlerApp) -> Hello:
    """Return the first message to the worker: what the app has."""
    known = tuple(_known(kind, job) for kind, job in app.jobs.items())
    return Hello(app.url, known, outputs=app.outputs)


def _known(kind: str, job: Handler) -> KnownJob:
    hook = job.compensate
    only_async = job.is_async and (hook is None or hook.is_async)
    return KnownJob(kind, job.isolation, job.memory_bytes, hook is not None, only_async, job.queue)


async def run(connection: socket.socket, app: HandlerApp, threads: int) -> None:
    """Run the attempts of the worker at the other end, until it is gone."""
    loop = asyncio.get_running_loop()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="handler")
    await loop.create_connection(lambda: Runner(app, pool, _end_process), sock=connection)
    await loop.create_future()


def _end_process() -> None:
    # Threads would keep the interpreter alive, and another worker may own their jobs by now.
    tracing.flush()
    os._exit(0)


async def run_until_gone(connection: socket.socket, app: HandlerApp, threads: Executor) -> None:
    """Run the attempts of the worker at the other end, in a process that goes on when it is gone."""
    gone = asyncio.Event()
    runner = Runner(app, threads, gone.set)
    await asyncio.get_running_loop().create_connection(lambda: runner, sock=connection)
    await gone.wait()
    await runner.abandon()


def main(arguments: list[str]) -> None:
    number, name, threads, *rest = arguments
    connection = socket.socket(fileno=int(number))
    route()
    try:
        where = os.environ.get("HOLDFAST_TRACES", "off")
        tracing.configure(where, "holdfast-worker", SystemIds().chance())
        app = load_app(name)
    except Invalid as error:
        if error.__cause__ is not None and "could not be imported" in error.message:
            traceback.print_exception(error.__cause__)
        connection.sendall(encode([Hello("", (), error.message)]))
        return
    url, outputs, *_ = *rest, "", ""
    if url:
        app.url = url
    if outputs:
        app.outputs = outputs
    connection.setblocking(False)
    os.register_at_fork(after_in_child=lambda: _disconnect(connection.fileno()))
    tune_garbage_collector(own_code_only=False)
    asyncio.run(run(connection, app, int(threads)))


def _disconnect(descriptor: int) -> None:
    """Cut the connection in a process that a handler has forked: it must not act as the runner. If it goes
    on with the loop, the first thing it learns is that the worker is gone."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, descriptor)
    os.close(nothing)
