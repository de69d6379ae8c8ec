"""The leaving of a worker: what waits until then."""

import asyncio

import pytest

from holdfast.worker.leaving import Leaving
from tests.worker.live_processes import PATIENCE_SECONDS


async def test_a_wait_ends_when_the_worker_leaves_however_often_it_is_told() -> None:
    leaving, ended = Leaving(), asyncio.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(leaving.or_until(forever()))
    await asyncio.sleep(0)
    for _ in range(3):  # the second turn is between the wake-up and its end
        leaving.set()
        await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await waiting
    assert ended.is_set()
    await leaving.or_until(forever())  # nothing is begun any more


async def test_a_timeout_of_the_work_itself_is_raised() -> None:
    async def late() -> None:
        raise TimeoutError("late")

    with pytest.raises(TimeoutError, match="late"):
        await Leaving().or_until(late())


async def test_work_that_ends_by_itself_ends_the_wait_and_the_worker_stays() -> None:
    leaving = Leaving()

    await leaving.or_until(asyncio.sleep(0))

    assert not leaving.is_set()
