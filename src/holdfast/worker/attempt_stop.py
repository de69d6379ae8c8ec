"""How an attempt in a runner is stopped: tell it, wait a little, then cancel it or kill its process."""

import asyncio
from contextlib import suppress

from holdfast.ports import Clock
from holdfast.worker.frames import Stop
from holdfast.worker.held_job import MARGIN_SECONDS, HeldJob
from holdfast.worker.runner_attempt import RunnerAttempt
from holdfast.worker.runner_connection import RunnerConnection

CANCEL_SECONDS = 10.0
RELEASE_SECONDS = 5.0
REPLY_SECONDS = 2.0
UNWIND_SECONDS = 5.0
THREAD_STOP_SECONDS = 0.5
REACT_SECONDS_MIN = 0.1


async def stop_attempt(clock: Clock, runner: RunnerConnection, attempt: RunnerAttempt) -> bool:
    """Stop a running attempt. False when the work goes on all the same: only the end of its process can
    stop a thread."""
    if runner.attempts.get(attempt.number) is not attempt:
        return True  # it has ended meanwhile
    held = attempt.held
    attempt.ended = asyncio.Event()
    attempt.changed = asyncio.Event()
    runner.resume_reading()  # its reply must be read
    runner.send(Stop(attempt.number, now=False))
    if await _ends_by_itself(attempt):
        return True
    if runner.exclusive:
        runner.kill()
        return True
    attempt.stop_reply = asyncio.get_running_loop().create_future()
    runner.send(Stop(attempt.number, now=True))
    try:
        async with asyncio.timeout(_seconds_left(held, clock, REPLY_SECONDS)):
            thread = await attempt.stop_reply
    except TimeoutError:
        kill_runner(runner, "its runner did not answer")
        return True
    seconds = THREAD_STOP_SECONDS if thread else UNWIND_SECONDS
    return await _ends_within(attempt, _seconds_left(held, clock, seconds))


async def _ends_by_itself(attempt: RunnerAttempt) -> bool:
    """Whether it ends in the time it has; an attempt that is lost or timed out has none."""
    held, changed, ended = attempt.held, attempt.changed, attempt.ended
    assert changed is not None  # the caller has made both
    assert ended is not None
    with suppress(TimeoutError):
        async with asyncio.timeout(CANCEL_SECONDS if held.cancelled else RELEASE_SECONDS):
            while not (held.lost or held.timed_out or held.urgent or ended.is_set()):
                await changed.wait()
                changed.clear()
    return ended.is_set()


async def _ends_within(attempt: RunnerAttempt, seconds: float) -> bool:
    assert attempt.ended is not None  # `stop_attempt` has made it
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await attempt.ended.wait()
    return attempt.ended.is_set()


def _seconds_left(held: HeldJob, clock: Clock, most: float) -> float:
    """Return how long to wait for a runner that should react, so that the attempt can still be stopped
    alone, before the process supervisor kills the runner with every attempt in it."""
    left = held.deadline - clock.monotonic() - MARGIN_SECONDS
    return max(REACT_SECONDS_MIN, min(most, left - REACT_SECONDS_MIN))


def kill_runner(runner: RunnerConnection, why: str) -> None:
    """Kill a runner that is stuck. Attempts in it that were not being stopped are given back."""
    for attempt in list(runner.attempts.values()):
        if not attempt.held.must_stop:
            attempt.held.listener = None
            attempt.held.give_back(why)
    runner.kill()
