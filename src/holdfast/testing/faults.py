"""Faults: run a handler under the faults of production, to show that it is safe to repeat."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.state import State
from holdfast.runner.call import Call
from holdfast.sdk.app import App
from holdfast.testing.apps import Bench, memory_app
from holdfast.testing.inline_executor import HandlerObserver, HandlerPoint, InlineAttempt

PLACES_MAX = 20
CHECKED = "checked"


class Crash(BaseException):
    """The simulated death of the process that runs the handler. Nothing should catch it."""


class NotSafe(AssertionError):
    """The handler is not safe: a fault broke its invariant."""


class Fault(Struct, frozen=True):
    """A fault that can be injected while a handler is at some place."""

    name: str
    inject: Callable[[Bench, InlineAttempt], None]


class Trial(Struct, frozen=True):
    """One run under one fault: where the fault was injected, how the job ended, and why the responses of
    the affected worker were refused."""

    fault: str
    where: str
    attempts: int
    state: State
    refused: tuple[str, ...] = ()


def _crash(bench: Bench, attempt: InlineAttempt) -> None:
    attempt.die(Crash("the process has died (a test)"))


def _lose_lease(bench: Bench, attempt: InlineAttempt) -> None:
    _let_lapse(bench, attempt)
    attempt.hold.lose("its lease was lost (a test)")


def _deliver_twice(bench: Bench, attempt: InlineAttempt) -> None:
    """Freeze this worker, as if its process were stopped, while another worker claims the job and ends it.
    Then this worker goes on and does not know."""
    hold = attempt.hold
    hold.abandon()
    hold.begun_at = None
    hold.renew_at = hold.deadline = math.inf
    _let_lapse(bench, attempt)
    other = bench.worker("other")
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


def _lose_store(bench: Bench, attempt: InlineAttempt) -> None:
    bench.store.make_unavailable(attempt.hold.grant.lease_seconds + 5)


def _let_lapse(bench: Bench, attempt: InlineAttempt) -> None:
    bench.clock.advance(attempt.hold.grant.lease_seconds + 1)


crash = Fault("A crash", _crash)
"""The process dies, and its worker with it: the attempt reports nothing more, its lease expires, and
another attempt follows."""
lost_lease = Fault("A lost lease", _lose_lease)
"""The lease is lost: the handler is cancelled, its result is dropped, and another attempt follows."""
duplicate_delivery = Fault("A duplicate delivery", _deliver_twice)
"""The worker is stopped for longer than the lease. Meanwhile another attempt does all the work. Then the
first goes on to its end, unaware; its completion is refused."""
store_outage = Fault("An outage of the store", _lose_store)
"""The store is unavailable for longer than the lease."""
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
    """Run the call once for each fault and each place where it can be injected; raise `NotSafe` with those
    that broke it.

    A place is a call of `progress`, `emit` or `checkpoint` (before and after it is stored), and the end
    of the handler, before that is stored. `setup` comes before each run. After each, the job must have
    ended as it does without a fault, and `invariant` must neither raise nor return False.
    """
    places, state = _undisturbed(app, call, invariant, setup)
    trials, broken = [], []
    for fault in faults:
        for number in _chosen(len(places), places_max):
            where = _where(places, number)
            injection = _Injection(fault, number)
            trial, wrong = _tried(app, call, injection, where, state, setup, invariant)
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
    """Return the first places, and always the last."""
    return [*range(min(places, most) - 1), places - 1]


def _undisturbed(
    app: App,
    call: Call[Any],
    invariant: Callable[[], object],
    setup: Callable[[], object] | None,
) -> tuple[list[HandlerPoint], State]:
    """Return the places of the first attempt where a fault can be injected, and how the job ends."""
    places: list[HandlerPoint] = []

    def note(attempt: InlineAttempt, place: HandlerPoint) -> None:
        if attempt.hold.grant.attempt == 1 and attempt.hold.job_id == CHECKED:
            places.append(place)

    trial, wrong = _tried(app, call, note, "", None, setup, invariant)
    if wrong:
        raise NotSafe(f"{call.kind} breaks without any fault: {wrong}")
    return places, trial.state


def _tried(
    app: App,
    call: Call[Any],
    observer: "HandlerObserver | _Injection",
    where: str,
    state: State | None,
    setup: Callable[[], object] | None,
    invariant: Callable[[], object],
) -> tuple[Trial, str | None]:
    """Run the call once on a store of its own; return the trial and what is wrong after it."""
    if setup is not None:
        setup()
    checked = replace(call, request=replace(call.request, job_id=CHECKED, request_id=None))
    with memory_app(app) as bench:
        injection = observer if isinstance(observer, _Injection) else None
        if injection is not None:
            injection.bench = bench
        worker = bench.worker("first", observer)
        try:
            app.background.call(lambda client: client.create_jobs([checked]))
            worker.drain(until_idle=True)
        finally:
            worker.close()
        job = next(job for job in bench.jobs() if job.job_id == CHECKED)
        fault = "none" if injection is None else injection.fault.name
        trial = Trial(fault, where, job.attempt, job.state, tuple(worker.lost))
        if injection is not None and not injection.done:
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


class _Injection:
    """Injects a fault once, when the first attempt is at the place of this number."""

    def __init__(self, fault: Fault, number: int) -> None:
        self.fault = fault
        self.bench: Bench | None = None
        self.done = False
        self._number = number
        self._passed = 0

    def __call__(self, attempt: InlineAttempt, place: HandlerPoint) -> None:
        if self.done or attempt.hold.grant.attempt != 1 or attempt.hold.job_id != CHECKED:
            return
        self._passed += 1
        if self._passed > self._number and self.bench is not None:
            self.done = True
            self.fault.inject(self.bench, attempt)


_WORDS: dict[HandlerPoint, str] = {
    "progress": "at its {nth} ctx.progress",
    "emit": "at its {nth} ctx.emit",
    "checkpoint": "before its {nth} checkpoint is stored",
    "checkpointed": "after its {nth} checkpoint is stored",
    "returned": "after it has returned",
}


def _where(places: list[HandlerPoint], number: int) -> str:
    place = places[number]
    n = Counter(places[: number + 1])[place]
    suffix = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return _WORDS[place].format(nth=f"{n}{suffix}")
