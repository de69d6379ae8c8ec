"""The slots of a worker: coroutines beside jobs that take a thread or a process each."""

import asyncio
from collections import deque

import msgspec
import pytest

from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.sdk.open import open_registry
from holdfast.testing.fakes import ManualClock
from holdfast.worker.claims import ThreadSlots, WorkerSettings
from holdfast.worker.executor import RETURNED
from holdfast.worker.held_job import HeldJob
from holdfast.worker.slots import OTHERS_SECONDS, ClaimSize, Slots

PLAIN, ASYNC = "plain", "async"
ALL_PLAIN = ThreadSlots(kinds=frozenset({PLAIN}), slots=2, slots_max=32, alone=True)
MIXED = ThreadSlots(kinds=frozenset({PLAIN}), slots=2, slots_max=32, alone=False)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def held_jobs(*kinds: str) -> deque[HeldJob]:
    """Claimed jobs of these kinds, in this order."""

    async def main() -> deque[HeldJob]:
        registry = await open_registry("memory://")
        requests = [JobRequest(spec=Spec(kind=kind, payload=msgspec.Raw(b"{}"))) for kind in kinds]
        await registry.enqueue_many(requests, actor="user:ana")
        grants = await registry.claim(["default"], owner="w", limit=max(1, len(kinds)))
        await registry.close()
        return deque(HeldJob(grant, 60.0) for grant in grants)

    return asyncio.run(main())


def slots_of(clock: ManualClock, slots: int, threads: ThreadSlots | None) -> Slots:
    return Slots(clock, WorkerSettings(owner="w", slots=slots, threads=threads, shares=False))


def begun(slots: Slots, waiting: deque[HeldJob]) -> list[str]:
    """The kinds of the jobs that begin now."""
    found = []
    while (held := slots.next_job(waiting)) is not None:
        found.append(held.grant.job.spec.kind)
    return found


def test_plain_functions_are_claimed_for_a_slot_per_core(clock: ManualClock) -> None:
    slots, waiting = slots_of(clock, 2, ALL_PLAIN), held_jobs(PLAIN, PLAIN)

    assert slots.next_claim(deque(), 0) == ClaimSize(2, 2)
    assert begun(slots, waiting) == [PLAIN, PLAIN]
    assert slots.next_claim(waiting, 0).limit == 0


def test_beside_plain_functions_coroutines_are_claimed_for_the_other_slots(clock: ManualClock) -> None:
    slots = slots_of(clock, 100, MIXED)
    size = slots.next_claim(deque(), 0)

    assert size == ClaimSize(2, 2)
    slots.claimed(size, 2)
    assert begun(slots, held_jobs(PLAIN, PLAIN)) == [PLAIN, PLAIN]
    others = slots.next_claim(deque(), 0)
    assert others == ClaimSize(98, 98, MIXED.kinds)
    slots.claimed(others, 98)
    assert slots.next_claim(deque(), 0).without == MIXED.kinds


def test_coroutines_fill_the_slots_beside_idle_cores(clock: ManualClock) -> None:
    slots = slots_of(clock, 100, MIXED)
    slots.claimed(slots.next_claim(deque(), 0), 2)
    assert begun(slots, held_jobs(ASYNC, ASYNC)) == [ASYNC, ASYNC]

    others = slots.next_claim(deque(), 0)

    assert others == ClaimSize(98, 98, MIXED.kinds)
    slots.claimed(others, 98)
    assert slots.next_claim(deque(), 0) == ClaimSize(2, 98 - 96, frozenset())


def test_other_kinds_are_not_looked_for_beside_every_claim(clock: ManualClock) -> None:
    slots = slots_of(clock, 100, MIXED)
    slots.claimed(slots.next_claim(deque(), 0), 2)
    slots.claimed(slots.next_claim(deque(), 0), 0)

    slots.claimed(slots.next_claim(deque(), 0), 2)
    assert not slots.next_claim(deque(), 0).without
    clock.advance(OTHERS_SECONDS)
    slots.claimed(slots.next_claim(deque(), 0), 2)
    assert slots.next_claim(deque(), 0).without == MIXED.kinds


def test_a_plain_function_without_a_slot_does_not_hold_up_a_coroutine(clock: ManualClock) -> None:
    slots = slots_of(clock, 100, MIXED)
    waiting = held_jobs(PLAIN, PLAIN, PLAIN, ASYNC, PLAIN)

    assert begun(slots, waiting) == [PLAIN, PLAIN, ASYNC]
    assert [held.grant.job.spec.kind for held in waiting] == [PLAIN, PLAIN]
    assert slots.running == 3


def test_a_slot_is_free_again_when_its_job_has_ended_or_did_not_begin(clock: ManualClock) -> None:
    slots, waiting = slots_of(clock, 100, MIXED), held_jobs(PLAIN, PLAIN, PLAIN, PLAIN)
    first, second = slots.next_job(waiting), slots.next_job(waiting)
    assert first is not None
    assert second is not None
    assert slots.next_job(waiting) is None
    assert not slots.has_room_for(MIXED.kinds, deque())

    slots.given_up(first)
    slots.jobs_ended([(second, RETURNED)])

    assert slots.has_room_for(MIXED.kinds, deque())
    assert begun(slots, waiting) == [PLAIN, PLAIN]
    assert slots.running == 2


def test_nothing_was_left_out_of_a_claim_of_all_kinds(clock: ManualClock) -> None:
    assert not slots_of(clock, 100, MIXED).has_room_for(frozenset(), deque())


def test_functions_that_end_within_milliseconds_get_more_slots_and_lose_them_again(
    clock: ManualClock,
) -> None:
    slots, jobs = slots_of(clock, 2, ALL_PLAIN), list(held_jobs(*[PLAIN] * 40))

    def run(jobs_seconds: float, steps: int) -> int:
        """Run jobs that all take so long, again and again; returns how many begin together at last."""
        together: list[HeldJob] = []
        for _ in range(steps):
            waiting = deque(jobs)
            together = []
            while (held := slots.next_job(waiting)) is not None:
                together.append(held)
            clock.advance(jobs_seconds)
            slots.jobs_ended([(held, RETURNED) for held in together])
            slots.next_claim(deque(), 0)
        return len(together)

    assert run(0.0009765625, steps=300) == 32
    assert run(0.0625, steps=10) == 2
