"""The fair limiter: its bounds in all and for one key, and whose turn is next."""

import asyncio

import pytest

from holdfast.core.errors import Exhausted
from holdfast.server.fair_limiter import Bounds, FairLimiter


async def breathe() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def asked(room: FairLimiter, *calls: tuple[str | None, int]) -> "list[asyncio.Task[None]]":
    """Calls that came one after the other: those that are done have their place."""
    tasks = [asyncio.create_task(room.acquire(key, size)) for key, size in calls]
    await breathe()
    return tasks


def let_in(tasks: "list[asyncio.Task[None]]") -> list[bool]:
    return [task.done() for task in tasks]


async def leave(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("bounds", "calls", "expected"),
    [
        (Bounds(slots=2), [("a", 0), ("b", 0), ("c", 0)], [True, True, False]),
        (Bounds(slots_per_key=1), [("a", 0), ("a", 0), ("b", 0)], [True, False, True]),
        (Bounds(slots_per_key=1), [(None, 0), (None, 0)], [True, True]),
        (Bounds(bytes=10), [("a", 6), ("b", 6)], [True, False]),
        (Bounds(bytes=10), [("a", 60)], [True]),
        (Bounds(bytes_per_key=10), [("a", 6), ("a", 6), ("b", 6)], [True, False, True]),
        (Bounds(bytes_per_key=10), [("a", 60)], [True]),
        (Bounds(bytes=10), [("a", 6), ("b", 6), ("c", 1)], [True, False, False]),
    ],
)
async def test_a_call_is_let_in_while_there_is_room(
    bounds: Bounds, calls: list[tuple[str | None, int]], expected: list[bool]
) -> None:
    tasks = await asked(FairLimiter("calls", bounds), *calls)
    assert let_in(tasks) == expected
    await leave(tasks)


async def test_who_waits_is_bounded_for_a_key_and_in_all() -> None:
    room = FairLimiter("calls", Bounds(slots=1, waiting=3, waiting_per_key=2))
    tasks = await asked(room, ("a", 0), ("a", 0), ("a", 0))
    with pytest.raises(Exhausted, match="of this key"):
        await room.acquire("a")
    tasks += await asked(room, ("b", 0))
    with pytest.raises(Exhausted, match="of all callers"):
        await room.acquire("c")
    assert (room.refused, room.waiting()) == (2, 3)
    await leave(tasks)
    assert (room.waiting(), room.slots_in_use()) == (0, 1)


async def test_one_that_leaves_lets_the_next_in() -> None:
    """What is large is waited for; when its caller leaves, what stood behind it goes on."""

    room = FairLimiter("bytes", Bounds(bytes=10))
    tasks = await asked(room, ("a", 6), ("b", 6), ("c", 1))
    await leave([tasks[1]])
    await breathe()
    assert (let_in(tasks), room.bytes_in_use()) == ([True, True, True], 7)


async def test_a_place_given_to_one_that_leaves_at_that_instant_is_given_back() -> None:
    room = FairLimiter("calls", Bounds(slots=1))
    tasks = await asked(room, ("a", 0), ("b", 0))
    room.release("a")
    await leave([tasks[1]])
    assert (room.slots_in_use(), room.waiting()) == (0, 0)
