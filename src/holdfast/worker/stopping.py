"""Stopping an attempt in a runner: tell it, wait a little, then make it."""

import asyncio
from contextlib import suppress
from typing import Protocol

from holdfast.ports import Clock
from holdfast.worker.attempts import Attempt
from holdfast.worker.executor import Ending
from holdfast.worker.frames import Stop
from holdfast.worker.hold import MARGIN_SECONDS, Hold
from holdfast.worker.link import Link

CANCEL_SECONDS = 10.0
RELEASE_SECONDS = 5.0
TOLD_SECONDS = 2.0
UNWIND_SECONDS = 5.0
HEED_SECONDS = 0.5
END_SECONDS = 0.1


class Owner(Protocol):
    """Whoever runs the attempts."""

    def finish(self, link: Link, attempt: Attempt, ending: Ending) -> None: ...

    def retire(self, link: Link) -> None: ...

    def undoes(self, attempt: Attempt) -> bool:
        """Whether a compensation follows when this attempt is ended as it is."""
        ...


async def stop_attempt(owner: Owner, clock: Clock, link: Link, attempt: Attempt) -> None:
    """See a running attempt to its end, for whatever reason it has to stop."""
    if link.attempts.get(attempt.number) is not attempt:
        return  # it has ended meanwhile
    hold = attempt.hold
    attempt.over = asyncio.Event()
    attempt.stirred = asyncio.Event()
    link.listen()  # whatever it says now must be heard
    link.send(Stop(attempt.number, now=False))
    if await _ends_by_itself(attempt):
        return
    if link.exclusive:
        link.kill()
        return
    attempt.told = asyncio.get_running_loop().create_future()
    link.send(Stop(attempt.number, now=True))
    try:
        async with asyncio.timeout(_patience(hold, clock, TOLD_SECONDS)):
            thread = await attempt.told
    except TimeoutError:
        _give_up(link, "its runner did not answer")
        return
    seconds = HEED_SECONDS if thread else UNWIND_SECONDS
    if await _over(attempt, _patience(hold, clock, seconds)):
        return
    _straggle(owner, link, attempt)


async def _ends_by_itself(attempt: Attempt) -> bool:
    """Whether it ends in the time it has; what is lost, or out of time, has none."""
    hold, stirred, over = attempt.hold, attempt.stirred, attempt.over
    assert stirred is not None  # the caller has made both
    assert over is not None
    with suppress(TimeoutError):
        async with asyncio.timeout(CANCEL_SECONDS if hold.cancelled else RELEASE_SECONDS):
            while not (hold.lost or hold.timed_out or hold.urgent or over.is_set()):
                await stirred.wait()
                stirred.clear()
    return over.is_set()


async def _over(attempt: Attempt, seconds: float) -> bool:
    assert attempt.over is not None  # made when the stopping began
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await attempt.over.wait()
    return attempt.over.is_set()


def _patience(hold: Hold, clock: Clock, most: float) -> float:
    """How long to wait for a runner that should react: so long that it can still be ended by us, and
    not by its warden with everything that is in it."""
    left = hold.deadline - clock.monotonic() - MARGIN_SECONDS
    return max(END_SECONDS, min(most, left - END_SECONDS))


def _give_up(link: Link, why: str) -> None:
    """A runner that does not answer is stuck, with everything in it: it is killed, and what it ran
    through no fault of its own is given back."""
    for attempt in list(link.attempts.values()):
        if not attempt.hold.stopping:
            attempt.hold.listener = None
            attempt.hold.give_back(why)
    link.kill()


def _straggle(owner: Owner, link: Link, attempt: Attempt) -> None:
    """The work goes on though it was told: nothing can make a thread stop but the end of its process.
    A cancelled job ends with its lease; any other is over for us. The runner gets no more work."""
    hold = attempt.hold
    owner.retire(link)
    if owner.undoes(attempt):  # nothing is undone beside what is still being done
        _give_up(link, "a neighbour of it could not be stopped otherwise")
    elif hold.cancelled and not (hold.lost or hold.timed_out or hold.released):
        hold.abandon()
    else:
        owner.finish(link, attempt, Ending(cancelled=hold.cancelled, stopped=True))
        if not link.attempts:
            link.kill()
