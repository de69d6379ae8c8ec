"""The ids of this machine; and what waits: the first of several awaitables, and a loop with jitter."""

import asyncio
from itertools import pairwise
from uuid import UUID

import pytest

from holdfast.system import ASLEEP_SECONDS, YIELD_SECONDS, SleepWatch, SystemIds, every, first_of, jittered
from holdfast.testing.fakes import CountingIds, ManualClock


class Awaited:
    """An awaitable that a test completes, and that records how it ended."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.ended: str | None = None

    async def wait(self, result: str) -> str:
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # an end that takes a moment
            self.ended = "cancelled"
            raise
        self.ended = "done"
        return result


@pytest.mark.parametrize("stands_still", [False, True])
def test_ids_are_version_7_uuids_that_rise_however_many_are_made_at_once(
    stands_still: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stands_still:
        monkeypatch.setattr("holdfast.system.time.time_ns", lambda: 1_800_000_000_123_456_789)
    ids = SystemIds()

    made = [ids.new(), *ids.many(1), *ids.many(0), *ids.many(1000), ids.new(), *ids.many(63), *ids.many(64)]

    assert len(made) == 1 + 1 + 1000 + 1 + 63 + 64
    assert all(one < other for one, other in pairwise(made))
    assert {(str(UUID(one)), UUID(one).version, UUID(one).variant) for one in made} == {
        (one, 7, "specified in RFC 4122") for one in made
    }


def test_ids_that_are_made_at_once_share_no_random_bits() -> None:
    assert len({one[-14:] for one in SystemIds().many(1000)}) == 1000


async def test_first_of_returns_the_first_result_and_ends_the_others_before_it_returns() -> None:
    slow, fast = Awaited(), Awaited()
    fast.go_on.set()

    result = await first_of(slow.wait("slow"), fast.wait("fast"))

    assert (result, slow.ended, fast.ended) == ("fast", "cancelled", "done")


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a")])
async def test_of_several_that_are_done_first_of_takes_the_earlier_argument(
    order: tuple[str, ...],
) -> None:
    for _ in range(20):
        done = [asyncio.get_running_loop().create_future() for _ in order]
        for future, name in zip(done, order, strict=True):
            future.set_result(name)

        assert await first_of(*done) == order[0]


async def test_first_of_raises_the_error_of_the_first_and_ends_the_others() -> None:
    async def fail() -> str:
        raise ValueError("x")

    slow = Awaited()

    with pytest.raises(ValueError, match="x"):
        await first_of(slow.wait("slow"), fail())

    assert slow.ended == "cancelled"


async def test_first_of_that_is_cancelled_ends_all() -> None:
    both = Awaited(), Awaited()
    waiting = asyncio.create_task(first_of(*(one.wait("") for one in both)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert [one.ended for one in both] == ["cancelled", "cancelled"]


def test_jitter_is_a_quarter_either_way() -> None:
    class Chance(CountingIds):
        drawn = 0.0

        def chance(self) -> float:
            return self.drawn

    ids = Chance()

    least = jittered(40.0, ids)
    ids.drawn = 1.0

    assert (least, jittered(40.0, ids)) == (30.0, 50.0)


async def test_every_sleeps_before_it_acts_and_ends_with_the_error_of_the_action() -> None:
    clock, acted = ManualClock(), list[float]()

    async def act() -> None:
        acted.append(clock.monotonic())
        if len(acted) == 2:
            raise ValueError("enough")

    loop = asyncio.create_task(every(10.0, act, clock=clock, ids=CountingIds()))
    for _ in range(3):
        for _turn in range(5):
            await asyncio.sleep(0)
        clock.advance(12.5)

    with pytest.raises(ValueError, match="enough"):
        await loop
    assert len(acted) == 2


def test_what_runs_when_it_was_due_or_a_little_later_was_awake() -> None:
    clock = ManualClock()
    watch, due_at = SleepWatch(clock), clock.monotonic() + 1

    clock.advance(1 + ASLEEP_SECONDS / 2)

    assert not watch.late(due_at)
    assert (watch.wakes, watch.slept, watch.yielding) == (0, 0, 0)


def test_what_runs_long_after_it_was_due_was_asleep_and_leaves_leases_alone_for_a_moment() -> None:
    clock = ManualClock()
    watch = SleepWatch(clock)

    clock.advance(10)

    assert watch.late(1)
    assert (watch.wakes, watch.slept, watch.yielding) == (1, 9, YIELD_SECONDS)
    clock.advance(YIELD_SECONDS - 0.0001)
    assert watch.yielding == 0  # no wait in which no time would pass


def test_two_loops_that_notice_the_same_sleep_have_woken_once() -> None:
    clock = ManualClock()
    watch = SleepWatch(clock)
    clock.advance(10)

    assert watch.late(1)
    assert watch.late(2)
    assert (watch.wakes, watch.slept) == (1, 9)

    clock.advance(10)
    assert watch.late(12)
    assert (watch.wakes, watch.slept) == (2, 8)


def test_a_suspended_machine_was_asleep_though_its_clock_stood_still() -> None:
    asleep = 100.0
    watch = SleepWatch(ManualClock(), lambda: asleep)
    asleep += 3600

    assert watch.late(0)
    assert watch.slept == 3600
    assert not SleepWatch(ManualClock(), lambda: asleep).late(0)
