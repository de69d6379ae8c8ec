"""The server's time, compared with our own: what is a step, and what only looks like one."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.core.clock_step import ClockStepSummary
from holdfast.stores.postgres.clock_steps import steps_of
from holdfast.stores.postgres.server_time import ServerTime
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemClock
from tests.stores.postgres.lossy_connection import open_lossy
from tests.stores.postgres.open_stores import connected, schema_of
from tests.stores.postgres.running_server import fresh_url

HOUR = timedelta(hours=1)


class OwnClock(SystemClock):
    """Our own count of seconds, which a test moves on."""

    seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.mark.parametrize("ran", [0.99, 0.999, 1.001, 1.01])
def test_a_clock_that_runs_fast_or_slow_is_never_taken_for_one_that_was_set(ran: float) -> None:
    clock, now = OwnClock(), datetime.now(UTC)
    time = ServerTime(clock)
    for seconds in (0, 1, 60, 3600, 86_400):
        clock.seconds += seconds
        now += timedelta(seconds=seconds * ran)
        assert time.observe(now, time.begin_reading())


def test_a_slow_answer_is_never_taken_for_a_step_and_hides_none() -> None:
    clock, now = OwnClock(), datetime.now(UTC)
    time = ServerTime(clock)
    assert time.observe(now, time.begin_reading())
    asked = time.begin_reading()
    clock.seconds += 3600  # frozen, before the question left or after the answer came
    assert time.observe(now, asked)
    assert time.observe(now + timedelta(hours=1), asked)

    clock.seconds += 1
    assert not time.observe(now + timedelta(hours=2), time.begin_reading())
    assert time.estimate() is None
    step = time.step(now + timedelta(hours=2), time.begin_reading())
    assert step is not None
    assert abs(step.by - timedelta(hours=1)) < timedelta(seconds=2)


async def test_a_step_whose_answer_was_lost_is_dealt_with_once(tmp_path: Path) -> None:
    async with open_lossy(tmp_path, PostgresStore) as lossy:
        await lossy.grant("held")
        store = lossy.registry._store
        assert isinstance(store, PostgresStore)
        time = store._context.time
        time.accept(await store.now() - 10 * HOUR, time.begin_reading(), time.steps)
        lossy.proxy.swallow_commit_answer()

        assert await lossy.registry.expire() == 0

        assert lossy.proxy.swallowed == 1
        assert abs(steps_of(time.steps).total - 10 * HOUR) < timedelta(minutes=1)


@pytest.mark.parametrize("since", ["never", "before", "after"])
async def test_a_machine_that_stood_still_does_not_take_it_for_a_step(tmp_path: Path, since: str) -> None:
    """Its clocks stood still with it; that others were heard of meanwhile shows that the server's went on.
    Only if that was `before` the clock was last set, it shows nothing."""

    async with open_lossy(tmp_path, PostgresStore) as lossy:
        await lossy.grant("held")
        store = lossy.registry._store
        assert isinstance(store, PostgresStore)
        time = store._context.time
        schema = schema_of(await fresh_url(tmp_path))
        heard = f"UPDATE {schema}.state SET updated_at = updated_at - make_interval(secs => 20)"
        was_set = f"INSERT INTO {schema}.meta (name, value) VALUES ('clock', '{{}}')"
        acts = {"never": [heard], "before": [heard, was_set], "after": [was_set, heard]}
        async with connected() as person:
            for act in acts[since]:
                await person.execute(act)
        time.accept(await store.now() - 10 * HOUR, time.begin_reading(), "" if since == "never" else "{}")

        assert await lossy.registry.expire() == 0

        lease = (await lossy.direct.status("held")).lease
        assert lease is not None
        assert lease.moved is None
        assert (steps_of(time.steps) == ClockStepSummary()) is (since != "before")
