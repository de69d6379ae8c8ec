"""Claims start at a mark when dead rows are in the way, and nothing that goes back behind it is forgotten."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Request
from holdfast.sdk.open import open_registry
from holdfast.stores.postgres import marks
from holdfast.stores.postgres.marks import BEGINNING, MARGIN, Marks
from holdfast.testing.fakes import EPOCH, ManualClock
from postgres_world import fresh_url


def looked(found: Marks, clock: ManualClock, seconds: float, first: timedelta) -> bool:
    """One look at one row; whether it began at the beginning."""
    [start] = found.begin(["row"])
    clock.advance(seconds)
    found.end({"row": EPOCH + first}, 1)
    return start == BEGINNING


def test_while_looks_are_quick_every_one_begins_at_the_beginning() -> None:
    clock = ManualClock()
    found = Marks(clock)
    for n in range(5):
        assert looked(found, clock, 0.001, timedelta(seconds=n))


def test_after_a_slow_look_the_next_ones_begin_where_it_found_something_and_now_and_then_anew() -> (
    None
):
    clock = ManualClock()
    found = Marks(clock)
    assert looked(found, clock, 0.3, timedelta(seconds=50))
    assert found.begin(["row", "another"]) == [EPOCH + timedelta(seconds=50) - MARGIN, BEGINNING]
    assert not looked(found, clock, 0.001, timedelta(seconds=60))
    assert found.begin(["row"]) == [EPOCH + timedelta(seconds=60) - MARGIN]
    clock.advance(20 * 0.3)
    assert looked(found, clock, 0.3, timedelta(seconds=70))
    clock.advance(20 * 0.3)
    assert looked(found, clock, 0.001, timedelta(seconds=80))
    assert looked(found, clock, 0.001, timedelta(seconds=80))


def test_marks_that_are_forgotten_are_begun_anew() -> None:
    clock = ManualClock()
    found = Marks(clock)
    looked(found, clock, 0.3, timedelta(seconds=50))
    found.forget()
    assert looked(found, clock, 0.3, timedelta(seconds=50))


def test_what_goes_back_to_an_old_place_is_claimed_again_although_claims_start_at_a_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "SLOW_SECONDS", -1)  # every look from the beginning is a slow one
    monkeypatch.setattr(marks, "SLOW_SECONDS_PER_JOB", 0)

    async def body() -> None:
        url = await fresh_url(tmp_path)
        ours, theirs = await open_registry(url), await open_registry(url)
        await ours.enqueue_many([Request(spec=Spec())] * 4, actor="user:ana")
        first, second = await ours.claim(["default"], owner="w-1", limit=2)
        await asyncio.sleep(MARGIN.total_seconds() + 0.1)
        await ours.enqueue(Request(spec=Spec()), actor="user:ana")
        [third] = await ours.claim(["default"], owner="w-1")
        await ours.release(first)
        [again] = await ours.claim(["default"], owner="w-1")
        assert again.job_id == first.job_id  # what we put back ourselves is first in line at once
        await theirs.release(second)
        async with asyncio.timeout(5):
            claimed: list[str] = []
            while second.job_id not in claimed:
                claimed += [g.job_id for g in await ours.claim(["default"], owner="w-1")]
                await asyncio.sleep(0.05)
        for grant in (again, third):
            await ours.complete(grant, Success())
        assert (await ours.verify()).equal
        await ours.close()
        await theirs.close()

    asyncio.run(body())
