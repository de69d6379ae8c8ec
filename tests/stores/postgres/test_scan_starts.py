"""Looks for due jobs start at a mark when dead rows are in the way, and nothing behind it is forgotten."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.core.lifecycle import Success
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import Grant, JobRequest
from holdfast.sdk.open import open_registry
from holdfast.stores.postgres import scan_starts
from holdfast.stores.postgres.scan_starts import BEGINNING, MARGIN, QUIET_SECONDS, ScanStarts
from holdfast.stores.postgres.sessions import Session
from holdfast.testing.fakes import EPOCH, ManualClock
from holdfast.testing.world import open_world
from tests.stores.postgres.running_server import fresh_url, postgres_store


def looked(found: ScanStarts, clock: ManualClock, seconds: float, first: timedelta) -> bool:
    """One look at one row; whether it began at the beginning."""
    [start] = found.begin(["row"])
    clock.advance(seconds)
    found.end({"row": EPOCH + first}, 1)
    return start == BEGINNING


def test_while_looks_are_quick_every_one_begins_at_the_beginning() -> None:
    clock = ManualClock()
    found = ScanStarts(clock)
    for n in range(5):
        assert looked(found, clock, 0.001, timedelta(seconds=n))


def test_after_a_slow_look_the_next_ones_begin_where_it_found_something_and_now_and_then_anew() -> None:
    clock = ManualClock()
    found = ScanStarts(clock)
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
    found = ScanStarts(clock)
    looked(found, clock, 0.3, timedelta(seconds=50))
    found.forget()
    assert looked(found, clock, 0.3, timedelta(seconds=50))


def test_a_look_that_found_nothing_leaves_a_quiet_moment_behind_it() -> None:
    clock = ManualClock()
    found = ScanStarts(clock)
    quiet = [found.quiet]  # nobody has looked
    found.begin([None])
    found.end({None: EPOCH}, 0)
    for seconds in (0, QUIET_SECONDS - 0.01, 0.01):
        clock.advance(seconds)
        quiet.append(found.quiet)
    found.begin([None])
    found.end({None: EPOCH}, 1)
    quiet.append(found.quiet)  # where one was due, another may be
    assert quiet == [False, True, True, False, False]


@pytest.mark.parametrize("sweeping", [False, True])
async def test_claims_that_follow_close_share_a_look_for_lapsed_leases_and_a_sweep_looks_by_itself(
    sweeping: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    fetch = Session.fetch
    step, lease = 0.01, timedelta(seconds=1.1)
    at_once = Spec(retry=Retry(backoff=timedelta(0)))

    async def noted(self: Session, sql: str, *parameters: object) -> object:
        looks.extend([sql] * ("due_4" in sql))
        return await fetch(self, sql, *parameters)

    async with open_world(postgres_store, tmp_path) as world:
        await world.enqueue("job-1", spec=at_once)
        grant = await world.claim("w-1", lease=lease)
        monkeypatch.setattr(Session, "fetch", noted)
        assert grant.job.lease is not None
        lapses = grant.job.lease.expires_at
        claims = 0
        grants: list[Grant] = []
        while not grants and claims < 200:
            world.clock.advance(step)
            if sweeping:
                await world.registry.expire()
            grants = await world.registry.claim(["default"], owner="w-2")
            claims += 1
        late = (world.clock.now() - lapses).total_seconds()
        assert 0 <= late <= step if sweeping else step < late <= 0.25
        assert claims >= 100
        assert len(looks) >= claims if sweeping else len(looks) <= 6


async def test_what_goes_back_to_an_old_place_is_claimed_again_although_claims_start_at_a_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_starts, "SLOW_SECONDS", -1)  # every look from the beginning is a slow one
    monkeypatch.setattr(scan_starts, "SLOW_SECONDS_PER_JOB", 0)

    url = await fresh_url(tmp_path)
    ours, theirs = await open_registry(url), await open_registry(url)
    await ours.enqueue_many([JobRequest(spec=Spec())] * 4, actor="user:ana")
    first, second = await ours.claim(["default"], owner="w-1", limit=2)
    await asyncio.sleep(MARGIN.total_seconds() + 0.1)
    await ours.enqueue(JobRequest(spec=Spec()), actor="user:ana")
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
