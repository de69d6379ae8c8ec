"""Parts of the SDK, each by itself: the context, the voice, and what is printed as bytes."""

import asyncio
import io
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar, cast

import pytest

from holdfast import App, Context, Invalid, Retry
from holdfast.core.catalogue import WorkerEventType
from holdfast.core.event import Attributes
from holdfast.sdk.context import current
from holdfast.sdk.streams import Routed
from holdfast.sdk.voice import FrameVoice, Sender
from holdfast.system import SystemClock
from holdfast.testing import memory_app
from holdfast.worker.executor import Ending
from holdfast.worker.frames import Advanced, Ended, Said, ToWorker, from_runner

T = TypeVar("T")


class Five(int):
    """A whole number that is more than one."""


class Recorder:
    """A voice that keeps what is said."""

    def __init__(self) -> None:
        self.words: list[tuple[object, ...]] = []

    def write(self, stream: str, data: bytes) -> None:
        self.words.append((stream, data))

    def say(self, event_type: WorkerEventType, attributes: Attributes) -> None:
        self.words.append((event_type, attributes))

    def progress(self, done: int, total: int | None, message: str | None) -> None:
        self.words.append((done, total, message))

    def checkpoint(self, value: bytes) -> "asyncio.Future[None]":
        self.words.append((value,))
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        kept.set_result(None)
        return kept


class Wire:
    """A transport that keeps what is written, as the worker would read it."""

    def __init__(self) -> None:
        self.heard: list[ToWorker] = []
        self._frames = from_runner()

    def write(self, data: bytes) -> None:
        self.heard += self._frames.feed(data)


def told(recorder: Recorder) -> Context:
    """A context that speaks to this recorder, on the running loop."""
    return Context(
        job_id="job-1",
        kind="work",
        queue="default",
        attempt=1,
        fencing_token=1,
        lock=None,
        deadline=0.0,
        correlation_id="job-1",
        trace_id=None,
        checkpoint=None,
        voice=recorder,
        clock=SystemClock(),
        loop=asyncio.get_running_loop(),
    )


def run(work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(10):
            return await work

    return asyncio.run(bounded())


def test_progress_is_said_in_plain_whole_numbers() -> None:
    async def body() -> None:
        recorder = Recorder()
        context = told(recorder)
        context.progress(1, Five(5))
        context.progress(True, True)

        assert recorder.words == [(1, 5, None), (1, 1, None)]
        numbers = [number for word in recorder.words for number in word[:2]]
        assert {type(number) for number in numbers} == {int}

    run(body())


def test_a_message_that_cannot_be_written_fails_its_own_attempt_and_no_other() -> None:
    async def body() -> None:
        wire = Wire()
        sender = Sender(asyncio.get_running_loop(), cast("asyncio.WriteTransport", wire))
        first, second, third = (FrameVoice(sender, number) for number in (1, 2, 3))
        sender.post(Ended(4, Ending(result=b"4"), 1.0))
        first.progress(1, Five(5), None)
        second.say(WorkerEventType.CUSTOM, {"name": "odd", "data": 2**70})
        third.write("stdout", b"heard")
        third.flush()
        sender.post(Ended(5, Ending(result=b"5"), 1.0))
        await asyncio.sleep(0.01)

        four, one, two, three, five = wire.heard
        assert (four, five) == (
            Ended(4, Ending(result=b"4"), 1.0),
            Ended(5, Ending(result=b"5"), 1.0),
        )
        assert isinstance(three, Said)
        assert (three.number, three.data) == (3, b"heard")
        for number, failed in ((1, one), (2, two)):
            assert isinstance(failed, Ended)
            assert failed.number == number
            assert failed.ending.failure is not None
            assert not failed.ending.failure.retryable
            assert "could not be passed on" in failed.ending.failure.message

        first.progress(2, None, None)
        await asyncio.sleep(0.01)
        assert wire.heard[-1] == Advanced(1, 2, None, None)

    run(body())


def test_a_checkpoint_of_nothing_is_invalid_and_false_is_something() -> None:
    async def body() -> None:
        recorder = Recorder()
        context = told(recorder)
        with pytest.raises(Invalid, match="None is nothing"):
            await context.checkpoint_async(None)
        with pytest.raises(Invalid, match="None is nothing"):
            await asyncio.to_thread(context.checkpoint, None)
        assert context.last_checkpoint() is None

        await context.checkpoint_async(False)

        assert recorder.words == [(b"false",)]
        assert context.last_checkpoint() is False

    run(body())


def test_an_event_may_have_an_attribute_called_name() -> None:
    async def body() -> None:
        recorder = Recorder()
        told(recorder).emit("renamed", name="y", self="z")

        facts = {"name": "renamed", "data": {"name": "y", "self": "z"}}
        assert recorder.words == [(WorkerEventType.CUSTOM, facts)]

    run(body())


def test_waiting_for_a_cancel_again_and_again_leaves_nothing_behind() -> None:
    async def body() -> None:
        context = told(Recorder())
        for _ in range(200):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(context.cancellation(), 0.0005)
        assert context._waiters == []
        waiting = [asyncio.create_task(context.cancellation()) for _ in range(3)]
        await asyncio.sleep(0)

        context.tell()
        await asyncio.gather(*waiting)
        await context.cancellation()

        assert context._waiters == []

    run(body())


def test_bytes_written_under_the_text_are_kept_with_the_job() -> None:
    async def body() -> None:
        recorder, below = Recorder(), io.BytesIO()
        stream = Routed(io.TextIOWrapper(below), "stdout")
        stream.buffer.write(b"outside")
        token = current.set(told(recorder))
        assert stream.buffer.write(bytearray(b"in\xffside")) == 7
        stream.buffer.flush()
        current.reset(token)

        assert recorder.words == [("stdout", b"in\xffside")]
        assert below.getvalue() == b"outside"

    run(body())


def test_a_compensation_in_memory_sees_the_last_checkpoint() -> None:
    app, seen = App(), []

    def undo(ctx: Context) -> None:
        seen.append(ctx.last_checkpoint())

    @app.job(compensate=undo, retry=Retry(max_failures=2, backoff=timedelta(seconds=1)))
    def fail(ctx: Context) -> None:
        ctx.checkpoint({"attempt": ctx.attempt})
        raise ValueError("no")

    with memory_app(app) as bench:
        fail.enqueue()
        bench.drain(until_idle=True)

    assert seen == [{"attempt": 2}]
