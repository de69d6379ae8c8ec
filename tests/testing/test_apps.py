"""The helpers for users' tests: an app in memory, virtual time, and faults that find what is unsafe."""

import asyncio
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Invalid, JobFailed, PermanentError, State
from holdfast.ports import Decision, Work
from holdfast.sdk.job_calls import make_call
from holdfast.sdk.job_function import JobFunction
from holdfast.testing import Bench, memory_app
from holdfast.testing.inline_worker import Endless
from holdfast.testing.virtual_time import Stuck
from tests.testing.inline_app import (
    add,
    add_plainly,
    app,
    breed,
    breed_in_time,
    breed_plainly,
    breed_while_blocking,
    hang,
    keep,
    never,
    said,
    sleep_long,
    sleep_on_and_off,
    snooze_for_ever,
    stumble,
    stumble_plainly,
    wait_a_little,
    wait_long,
    work_in_a_thread,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


@pytest.fixture
def bench() -> Iterator[Bench]:
    said.clear()
    with memory_app(app) as bench:
        yield bench


def test_what_is_enqueued_with_the_app_runs_in_memory(bench: Bench) -> None:
    handles = [add.enqueue(first=1), add_plainly.enqueue(first=2)]

    drained = bench.drain().check()

    assert drained.states == [State.SUCCEEDED, State.SUCCEEDED]
    assert [handle.result(timeout=5) for handle in handles] == [3, 4]
    assert [job.job_id for job in bench.jobs()] == [handle.job_id for handle in handles]


def test_the_app_is_given_back_as_it_was() -> None:
    opener = app.opener

    with memory_app(app) as bench:
        add.enqueue(first=1)
        with memory_app(app) as inner:
            assert inner.drain().attempts == 0
        assert bench.drain().attempts == 1

    assert app.opener is opener
    assert "call_async" not in vars(app.background)
    assert not app.background.open


def test_a_bench_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())

    with memory_app(app) as bench:
        bench.run(add_plainly.call(first=1))

    for thread in threading.enumerate():
        if thread.name.startswith("handler"):
            thread.join(5)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("job", [breed, breed_plainly, breed_while_blocking])
def test_jobs_that_handlers_enqueue_run_too(bench: Bench, job: JobFunction[..., None, Any]) -> None:
    job.enqueue(depth=3)

    assert bench.drain().check().attempts == 4
    assert said == ["depth 3", "depth 2", "depth 1", "depth 0"]


def test_the_clock_does_not_move_by_itself(bench: Bench) -> None:
    before = bench.clock.now()
    breed.enqueue(depth=3)
    add_plainly.enqueue(first=1)

    bench.drain()

    assert bench.clock.now() == before


def test_the_clock_begins_where_it_is_told_to() -> None:
    start = datetime(2030, 5, 1, tzinfo=UTC)

    with memory_app(app, start=start):
        handle = add.enqueue(first=1)

        assert handle.job.created_at == start


def test_a_drain_leaves_what_is_not_ready(bench: Bench) -> None:
    add.configure(delay=60).enqueue(first=1)

    assert bench.drain().attempts == 0
    bench.clock.advance(59)
    assert bench.drain().attempts == 0
    bench.clock.advance(timedelta(seconds=1))
    assert bench.drain().attempts == 1


def test_a_drain_until_idle_moves_the_clock_to_what_is_due(bench: Bench) -> None:
    before = bench.clock.now()
    add.configure(delay=timedelta(days=300)).enqueue(first=1)

    assert bench.drain(until_idle=True).check().attempts == 1
    assert bench.clock.now() - before == timedelta(days=300)


def test_a_retry_waits_for_its_back_off(bench: Bench) -> None:
    stumble.enqueue(times=1)

    first = bench.drain()
    [job] = first.jobs

    assert (first.attempts, job.state) == (1, State.QUEUED)
    assert job.ready_at > bench.clock.now()
    assert bench.drain(until_idle=True).states == [State.SUCCEEDED]


def test_run_returns_the_result(bench: Bench) -> None:
    assert bench.run(stumble.call(times=2)) == 3


def test_run_raises_the_failure_from_what_the_handler_raised(bench: Bench) -> None:
    with pytest.raises(JobFailed) as failed:
        bench.run(stumble.call(times=3))

    assert repr(failed.value.__cause__) == "ValueError('stumbled in attempt 3')"
    assert failed.value.job.state is State.DEAD_LETTERED
    [note] = failed.value.__notes__
    assert note.startswith("In the worker:\nTraceback (most recent call last):\n")
    assert note.endswith("\nValueError: stumbled in attempt 3")
    assert pickle.loads(pickle.dumps(failed.value)).__notes__ == [note]


def test_a_check_shows_the_tracebacks_of_those_that_failed(bench: Bench) -> None:
    add.enqueue(first=1)
    stumble_plainly.enqueue()

    with pytest.raises(AssertionError) as shown:
        bench.drain().check()

    words = str(shown.value)
    assert "(stumble_plainly) is failed after 1 attempt: PermanentError: never\n" in words
    assert 'raise PermanentError("never")' in words
    assert "(add)" not in words


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_job_that_never_ends_is_an_error(bench: Bench, seconds: float) -> None:
    handle = snooze_for_ever.enqueue(seconds)

    with pytest.raises(Endless, match=f"50 of them at job {handle.job_id} .snooze_for_ever"):
        bench.drain(until_idle=True, attempts_max=50)


def test_a_timeout_stops_a_coroutine_and_compensates_it(bench: Bench) -> None:
    before = bench.clock.now()

    with pytest.raises(JobFailed, match="longer than its timeout of 60 s"):
        bench.run(sleep_long.call(why="the sleep"))

    assert said == ["cancelled", "undone the sleep"]
    assert timedelta(seconds=60) <= bench.clock.now() - before < timedelta(seconds=62)


def test_a_timeout_tells_a_plain_function(bench: Bench) -> None:
    with pytest.raises(JobFailed, match="longer than its timeout of 60 s"):
        bench.run(wait_long.call())

    assert said == ["told True"]


def test_waiting_in_a_plain_function_follows_the_clock(bench: Bench) -> None:
    before, began = bench.clock.now(), time.monotonic()

    assert bench.run(wait_a_little.call()) is False

    assert bench.clock.now() - before >= timedelta(seconds=1800)
    assert time.monotonic() - began < 10


def test_sleeping_in_a_coroutine_follows_the_clock_and_keeps_the_lease(bench: Bench) -> None:
    before = bench.clock.now()

    handle = sleep_on_and_off.enqueue()
    bench.drain().check()

    assert timedelta(seconds=600) <= bench.clock.now() - before < timedelta(seconds=601)
    assert handle.refresh().attempt == 1


def test_time_does_not_run_away_from_a_thread_that_works(bench: Bench) -> None:
    assert bench.run(work_in_a_thread.call()) == 7


def test_time_does_not_run_away_from_a_store_that_takes_long(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact = bench.store.transact

    async def slowly(works: Sequence[Work]) -> list[list[Decision]]:
        if threading.current_thread().name == "holdfast-background":
            time.sleep(0.05)  # noqa: ASYNC251  # a store that takes long
        return await transact(works)

    monkeypatch.setattr(bench.store, "transact", slowly)
    breed_in_time.enqueue()

    assert bench.drain().check().attempts == 2


async def test_moving_the_clock_wakes_who_sleeps_by_it_on_another_loop(bench: Bench) -> None:
    sleeping = asyncio.create_task(bench.clock.sleep(60))
    await asyncio.sleep(0)
    await asyncio.to_thread(bench.clock.advance, 60)
    await asyncio.wait_for(sleeping, 5)


def test_a_handler_that_hangs_is_named() -> None:
    never.clear()
    with memory_app(app, patience=0.6) as bench:
        handle = hang.enqueue()
        try:
            with pytest.raises(Stuck, match=f"hang .job {handle.job_id}"):
                bench.drain()
        finally:
            never.set()


def test_checkpoints_progress_and_events_are_kept(bench: Bench) -> None:
    assert bench.run(keep.call(pages=4)) == [0, 1, 2, 3]

    [job] = bench.jobs()
    events = app.background.call(lambda client: client.registry.logs(job.job_id)).events
    pages = [event.attributes["data"] for event in events if event.event_type == "custom"]
    assert pages == [{"number": n} for n in range(4)]
    assert job.attempt == 2


def test_several_slots_run_at_the_same_time(bench: Bench) -> None:
    before = bench.clock.now()
    sleep_on_and_off.enqueue_many([sleep_on_and_off.call() for _ in range(5)])

    assert bench.drain(slots=5).check().attempts == 5
    assert bench.clock.now() - before < timedelta(seconds=602)


async def test_a_coroutine_uses_the_other_forms(bench: Bench) -> None:
    await breed.enqueue_async(depth=1)
    assert (await bench.drain_async()).attempts == 2
    with pytest.raises(Invalid, match="await drain_async"):
        bench.drain()
    with pytest.raises(Invalid, match="await run_async"):
        bench.run(add.call(first=1))
    with pytest.raises(JobFailed) as failed:
        await bench.run_async(stumble_plainly.call())
    assert isinstance(failed.value.__cause__, PermanentError)
    assert await bench.run_async(add.call(first=1)) == 3


async def test_somebody_may_wait_for_a_result_while_it_is_drained(bench: Bench) -> None:
    handle = await add.configure(delay=60).enqueue_async(first=1)
    waiting = asyncio.create_task(handle.result_async(timeout=30))
    await asyncio.sleep(0)
    await bench.drain_async(until_idle=True)
    assert await waiting == 3


def test_every_example_of_the_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    for name, body in blocks:
        with (tmp_path / name).open("a") as file:
            file.write(f"{body}\n\n")

    plugins = [word for name in ("asyncio", "cacheprovider", "randomly") for word in ("-p", f"no:{name}")]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "-W", "error", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{PAGE.read_text().count('def test_')} passed" in ran.stdout


def test_an_argument_that_nobody_knows_is_a_parse_error_when_the_bench_is_idle(
    bench: Bench,
) -> None:
    began = bench.clock.now()
    call = make_call("add", {"first": 1, "gift": 2}, {})

    with pytest.raises(JobFailed, match="parse_error: add: there is no argument gift"):
        bench.run(call)

    [job] = bench.jobs()
    assert (job.state, job.failures) == (State.DEAD_LETTERED, 1)
    assert bench.clock.now() - began < timedelta(minutes=16)


def test_without_moving_the_clock_it_is_given_back_once(bench: Bench) -> None:
    app.background.call(lambda client: client.create_jobs([make_call("add", {"gift": 2}, {})]))

    drained = bench.drain()

    assert (drained.states, drained.attempts) == ([State.QUEUED], 1)
    assert [job.not_understood for job in drained.jobs] == [1]
