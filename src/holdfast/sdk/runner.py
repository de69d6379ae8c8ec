"""The runner: the process in which handlers run, apart from the worker that keeps their leases.

Started by a worker as `python -m holdfast.sdk.runner FD APP THREADS [URL [OUTPUTS]]`, with a socket to it.
Coroutines run on its loop, plain functions in threads. It ends when the worker is gone.
"""

import asyncio
import os
import socket
import sys
import traceback
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast import tracing
from holdfast.core.errors import Invalid
from holdfast.sdk.app import App
from holdfast.sdk.context import CheckpointRefused, Context
from holdfast.sdk.handling import broken, compensate, handle, not_parsed
from holdfast.sdk.loading import load_app
from holdfast.sdk.outputs import lazy_outputs
from holdfast.sdk.streams import route
from holdfast.sdk.voice import FrameVoice, Sender
from holdfast.system import SystemClock, SystemIds, settle_memory
from holdfast.worker.executor import Ending
from holdfast.worker.frames import (
    Answer,
    Compensate,
    Ended,
    Hello,
    Known,
    Renewed,
    Run,
    Stop,
    Told,
    ToRunner,
    encode,
    from_worker,
)


class Runner(asyncio.Protocol):
    """Begins what the worker sends, and says how each attempt ended."""

    def __init__(self, app: App, threads: int) -> None:
        self._app = app
        self._clock = SystemClock()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="handler")
        self._frames = from_worker()
        self._attempts: dict[int, _Attempt] = {}
        self._loop = asyncio.get_running_loop()
        self._outputs = lazy_outputs(app.url, app.outputs)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)  # a socket is one
        self._sender = Sender(self._loop, transport)
        self._sender.post(hello(self._app))

    def pause_writing(self) -> None:
        self._sender.pause()

    def resume_writing(self) -> None:
        self._sender.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        # Threads would keep the interpreter alive; whatever they do now is a zombie's work.
        tracing.flush()
        os._exit(0)

    def data_received(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            self._take(message)

    def _take(self, message: ToRunner) -> None:
        match message:
            case Run():
                self._begin(message, compensating=False)
            case Stop():
                self._stop(message)
            case Renewed():
                if (attempt := self._attempts.get(message.number)) is not None:
                    attempt.context.renew(message.deadline)
            case Answer():
                self._sender.answered(
                    message.call, CheckpointRefused(message.error) if message.error else None
                )
            case Compensate():
                self._begin(message.run, compensating=True)

    def _begin(self, run: Run, *, compensating: bool) -> None:
        voice = FrameVoice(self._sender, run.number)
        context = Context(
            job_id=run.job_id,
            kind=run.kind,
            queue=run.queue,
            attempt=run.attempt,
            fencing_token=run.fencing_token,
            lock=run.lock,
            deadline=run.deadline,
            correlation_id=run.correlation_id,
            trace_id=run.trace_id,
            traceparent=run.traceparent,
            checkpoint=run.checkpoint,
            voice=voice,
            clock=self._clock,
            loop=self._loop,
            promise=run.promise,
            outputs=self._outputs,
        )
        job = self._app.jobs.get(run.kind)
        if job is None:  # the app was changed after the worker had read it
            words = f"{run.kind}: the app of this worker no longer has it."
            gone = not_parsed(words, not_understood=True)
            self._sender.post(Ended(run.number, gone, self._clock.monotonic()))
            return
        work = compensate if compensating else handle
        undo = job.compensate if compensating else None
        on_loop = job.is_async if undo is None else undo.is_async
        attempt = _Attempt(context, voice, thread=not on_loop)
        self._attempts[run.number] = attempt
        running = self._run(run.number, work(job, context, run.payload, self._threads))
        attempt.task = self._loop.create_task(running)

    async def _run(self, number: int, work: Coroutine[Any, Any, Ending]) -> None:
        try:
            ending = await work
        except asyncio.CancelledError:  # before it had begun
            ending = Ending(cancelled=True, stopped=True)
        except BaseException as error:
            ending = broken(error)
        self._attempts.pop(number).voice.flush()
        self._sender.post(Ended(number, ending, self._clock.monotonic()))

    def _stop(self, message: Stop) -> None:
        attempt = self._attempts.get(message.number)
        if attempt is None:
            return
        attempt.context.tell()
        if message.now and not attempt.thread and attempt.task is not None:
            attempt.task.cancel()
        self._sender.post(Told(message.number, attempt.thread))


class _Attempt:
    """A handler that is running."""

    __slots__ = ("context", "task", "thread", "voice")

    def __init__(self, context: Context, voice: FrameVoice, *, thread: bool) -> None:
        self.context = context
        self.voice = voice
        self.thread = thread
        self.task: asyncio.Task[None] | None = None


def hello(app: App) -> Hello:
    """What the app has."""
    known = tuple(
        Known(kind, job.isolation, job.memory_bytes, job.compensate is not None)
        for kind, job in app.jobs.items()
    )
    return Hello(app.url, known, outputs=app.outputs)


async def run(link: socket.socket, app: App, threads: int) -> None:
    """Serve the worker at the other end, until it is gone."""
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: Runner(app, threads), sock=link)
    await loop.create_future()


def main(arguments: list[str]) -> None:
    number, name, threads, *rest = arguments
    link = socket.socket(fileno=int(number))
    route()
    try:
        where = os.environ.get("HOLDFAST_TRACES", "off")
        tracing.switch_on(where, "holdfast-worker", SystemIds().chance())
        app = load_app(name)
    except Invalid as error:
        if error.__cause__ is not None and "could not be imported" in error.message:
            traceback.print_exception(error.__cause__)
        link.sendall(encode([Hello("", (), error.message)]))
        return
    url, outputs, *_ = *rest, "", ""
    if url:
        app.url = url
    if outputs:
        app.outputs = outputs
    link.setblocking(False)
    os.register_at_fork(after_in_child=lambda: _unlink(link.fileno()))
    settle_memory(ours=False)
    asyncio.run(run(link, app, int(threads)))


def _unlink(link: int) -> None:
    """In a process that a handler has forked: it must neither hear nor speak for the runner. Were it
    to go on with the loop, the first thing it hears is that the worker is gone."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, link)
    os.close(nothing)


if __name__ == "__main__":
    main(sys.argv[1:])
