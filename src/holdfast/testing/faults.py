"""Faults: run a handler under what production will bring, to show that it is safe to repeat."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.state import State
from holdfast.sdk.app import App
from holdfast.sdk.calls import Call
from holdfast.sdk.inline import Witness
from holdfast.sdk.inline_attempt import Attempt, Place
from holdfast.testing.apps import Bench, memory_app

PLACES_MAX = 20
CHECKED = "checked"


class Crash(BaseException):
    """The process that runs the handler has died here. Nothing should catch it."""


class NotSafe(AssertionError):
    """A fault broke what the handler promises."""


class Fault(Struct, frozen=True):
    """Something that goes wrong while a handler is at some place."""

    name: str
    strike: Callable[[Bench, Attempt], None]


class Trial(Struct, frozen=True):
    """One run under one fault: where it struck, how the job ended, and why the worker that was struck
    had nothing more to say about it."""

    fault: str
    where: str
    attempts: int
    state: State
    refused: tuple[str, ...] = ()


def _crash(bench: Bench, attempt: Attempt) -> None:
    attempt.die(Crash("the process has died (a test)"))


def _lose_lease(bench: Bench, attempt: Attempt) -> None:
    _let_lapse(bench, attempt)
    attempt.hold.lose("its lease was lost (a test)")


def _deliver_twice(bench: Bench, attempt: Attempt) -> None:
    """Everything in this worker stands still, as if it were stopped, while another one takes the job
    and ends it. Then this one goes on, and nobody has told it."""
    hold = attempt.hold
    hold.abandon()
    hold.begun_at = None
    hold.renew_at = hold.deadline = math.inf
    _let_lapse(bench, attempt)
    other = bench.hand("other")
    raised: list[BaseException] = []

    def work() -> None:
        try:
            other.drain(until_idle=True)
        except BaseException as error:
            raised.append(error)
        finally:
            other.close()

    thread = Thread(target=work, name="other")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def _lose_store(bench: Bench, attempt: Attempt) -> None:
    bench.store.leave(attempt.hold.grant.lease_seconds + 5)


def _let_lapse(bench: Bench, attempt: Attempt) -> None:
    bench.clock.advance(attempt.hold.grant.lease_seconds + 1)


crash = Fault("A crash", _crash)
"""The process dies, and its worker with it: nothing of the attempt is heard any more, its lease lapses,
and another attempt follows."""
lost_lease = Fault("A lost lease", _lose_lease)
"""The lease is lost: the handler is told and cancelled, what it returns is dropped, and another attempt
follows."""
duplicate_delivery = Fault("A duplicate delivery", _deliver_twice)
"""The worker is stopped for longer than the lease. Meanwhile another attempt does all the work. Then the
first goes on to its end, unaware; its completion is refused."""
store_outage = Fault("An outage of the store", _lose_store)
"""The store is away for longer than the lease."""
ALL = (crash, lost_lease, duplicate_delivery, store_outage)


def check(
    app: App,
    call: Call[Any],
    *,
    invariant: Callable[[], object],
    setup: Callable[[], object] | None = None,
    faults: Sequence[Fault] = ALL,
    places_max: int = PLACES_MAX,
) -> list[Trial]:
    """Run the call once for each fault and each place where it can strike; `NotSafe` tells which broke it.

    A place is a call of `progress`, `emit` or `checkpoint` (before and after it is stored), and the end
    of the handler, before that is stored. `setup` comes before each run. After each, the job must have
    ended as it does without a fault, and `invariant` must neither raise nor return False.
    """
    places, state = _undisturbed(app, call, invariant, setup)
    trials, broken = [], []
    for fault in faults:
        for number in _chosen(len(places), places_max):
            where = _where(places, number)
            strike = _Strike(fault, number)
            trial, wrong = _tried(app, call, strike, where, state, setup, invariant)
            trials.append(trial)
            if wrong:
                broken.append(f"{fault.name} {where} breaks it: {wrong}")
    if broken:
        raise NotSafe("\n".join([f"{call.kind} is not safe to repeat.", *broken]))
    return trials


async def check_async(
    app: App,
    call: Call[Any],
    *,
    invariant: Callable[[], object],
    setup: Callable[[], object] | None = None,
    faults: Sequence[Fault] = ALL,
    places_max: int = PLACES_MAX,
) -> list[Trial]:
    """As `check`, for coroutines. `setup` and `invariant` are called in another thread."""
    return await asyncio.to_thread(
        check,
        app,
        call,
        invariant=invariant,
        setup=setup,
        faults=faults,
        places_max=places_max,
    )


def _chosen(places: int, most: int) -> list[int]:
    """The first places, and always the last."""
    return [*range(min(places, most) - 1), places - 1]


def _undisturbed(
    app: App,
    call: Call[Any],
    invariant: Callable[[], object],
    setup: Callable[[], object] | None,
) -> tuple[list[Place], State]:
    """Where the first attempt can be struck, and how the job ends."""
    places: list[Place] = []

    def note(attempt: Attempt, place: Place) -> None:
        if attempt.hold.grant.attempt == 1 and attempt.hold.job_id == CHECKED:
            places.append(place)

    trial, wrong = _tried(app, call, note, "", None, setup, invariant)
    if wrong:
        raise NotSafe(f"{call.kind} breaks without any fault: {wrong}")
    return places, trial.state


def _tried(
    app: App,
    call: Call[Any],
    witness: "Witness | _Strike",
    where: str,
    state: State | None,
    setup: Callable[[], object] | None,
    invariant: Callable[[], object],
) -> tuple[Trial, str | None]:
    """One run in a world of its own, and what is wrong after it."""
    if setup is not None:
        setup()
    checked = replace(call, request=replace(call.request, job_id=CHECKED, request_id=None))
    with memory_app(app) as bench:
        struck = witness if isinstance(witness, _Strike) else None
        if struck is not None:
            struck.bench = bench
        hand = bench.hand("first", witness)
        try:
            app.reach.call(lambda client: client.make([checked]))
            hand.drain(until_idle=True)
        finally:
            hand.close()
        job = next(job for job in bench.jobs() if job.job_id == CHECKED)
        fault = "none" if struck is None else struck.fault.name
        trial = Trial(fault, where, job.attempt, job.state, tuple(hand.lost))
        if struck is not None and not struck.done:
            return trial, "the handler did not come there again: it must do the same every time."
        if not job.ended or (state is not None and job.state is not state):
            why = f": {job.reason}" if job.reason else ""
            return trial, f"the job is {job.state}, not {state or 'ended'}{why}."
    return trial, _held(invariant)


def _held(invariant: Callable[[], object]) -> str | None:
    try:
        held = invariant()
    except Exception as error:
        if isinstance(error, AssertionError) and str(error):
            return str(error).splitlines()[0]
        return f"the invariant raises {error!r}"
    return "the invariant does not hold." if held is False else None


class _Strike:
    """Strikes once, when the first attempt is at the place of this number."""

    def __init__(self, fault: Fault, number: int) -> None:
        self.fault = fault
        self.bench: Bench | None = None
        self.done = False
        self._number = number
        self._passed = 0

    def __call__(self, attempt: Attempt, place: Place) -> None:
        if self.done or attempt.hold.grant.attempt != 1 or attempt.hold.job_id != CHECKED:
            return
        self._passed += 1
        if self._passed > self._number and self.bench is not None:
            self.done = True
            self.fault.strike(self.bench, attempt)


_WORDS: dict[Place, str] = {
    "progress": "at its {nth} ctx.progress",
    "emit": "at its {nth} ctx.emit",
    "checkpoint": "before its {nth} checkpoint is stored",
    "checkpointed": "after its {nth} checkpoint is stored",
    "returned": "after it has returned",
}


def _where(places: list[Place], number: int) -> str:
    place = places[number]
    n = Counter(places[: number + 1])[place]
    suffix = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return _WORDS[place].format(nth=f"{n}{suffix}")
