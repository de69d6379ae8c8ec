"""The context of a handler: progress, checkpoints, events and cancellation."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from math import inf, nan

import numpy as np
import pytest

from holdfast import App, Context, Invalid, Retry
from holdfast.core.catalogue import WorkerEventType
from holdfast.testing import memory_app
from tests.runner.recording_channel import RecordingChannel, context_on


class Five(int):
    """A whole number that is more than one."""


async def test_progress_is_said_in_plain_whole_numbers() -> None:
    channel = RecordingChannel()
    context = context_on(channel)
    context.progress(1, Five(5))
    context.progress(True, True)

    assert channel.calls == [(1, 5, None), (1, 1, None)]
    numbers = [number for word in channel.calls for number in word[:2]]
    assert {type(number) for number in numbers} == {int}


async def test_a_checkpoint_of_nothing_is_invalid_and_false_is_something() -> None:
    channel = RecordingChannel()
    context = context_on(channel)
    with pytest.raises(Invalid, match="A checkpoint cannot be None"):
        await context.checkpoint_async(None)
    with pytest.raises(Invalid, match="A checkpoint cannot be None"):
        await asyncio.to_thread(context.checkpoint, None)
    assert context.last_checkpoint() is None

    await context.checkpoint_async(False)

    assert channel.calls == [(b"false",)]
    assert context.last_checkpoint() is False


@dataclass
class Search:
    best: float
    tried: set[int]


async def test_a_checkpoint_keeps_what_json_has_no_word_for() -> None:
    context = context_on(RecordingChannel())

    await context.checkpoint_async({"best": inf, "seen": {1, 2}, "at": (1, 2)})
    assert context.last_checkpoint() == {"best": inf, "seen": {1, 2}, "at": (1, 2)}
    await context.checkpoint_async(Search(-inf, {3}))
    assert context.last_checkpoint(Search) == Search(-inf, {3})
    await context.checkpoint_async({"weights": np.array([0.5, 1.5])})
    assert context.last_checkpoint()["weights"].tolist() == [0.5, 1.5]
    with pytest.raises(Invalid, match="A checkpoint cannot be written as JSON: a object has no JSON form"):
        await context.checkpoint_async({"model": object()})


async def test_an_event_keeps_nan_and_numbers_of_numpy() -> None:
    channel = RecordingChannel()
    context_on(channel).emit("epoch", loss=nan, rate=np.float32(0.5))

    facts = {"name": "epoch", "data": {"loss": {"holdfast:float": "NaN"}, "rate": 0.5}}
    assert channel.calls == [(WorkerEventType.CUSTOM, facts)]


async def test_an_event_may_have_an_attribute_called_name() -> None:
    channel = RecordingChannel()
    context_on(channel).emit("renamed", name="y", self="z")

    facts = {"name": "renamed", "data": {"name": "y", "self": "z"}}
    assert channel.calls == [(WorkerEventType.CUSTOM, facts)]


async def test_waiting_for_a_cancel_again_and_again_leaves_nothing_behind() -> None:
    context = context_on(RecordingChannel())
    for _ in range(200):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(context.cancellation(), 0.0005)
    assert context._waiters == []
    waiting = [asyncio.create_task(context.cancellation()) for _ in range(3)]
    await asyncio.sleep(0)

    context.request_stop()
    await asyncio.gather(*waiting)
    await context.cancellation()

    assert context._waiters == []


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
