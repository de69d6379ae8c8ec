"""Stopping functions: cancels, timeouts, handlers that hold the interpreter, and who else is there."""

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from floor import Floor, opened, patient

from holdfast.core.retry import Retry
from holdfast.core.state import State

APP = """
SLEEP = ctypes.PyDLL(None).usleep  # a C call that keeps the GIL

@app.job
async def heeds(ctx: holdfast.Context):
    Path(ctx.job_id).write_text("here")
    await ctx.cancellation()
    await ctx.checkpoint_async({"page": 3})
    ctx.check()

@app.job
def heeds_plain(ctx: holdfast.Context):
    Path(ctx.job_id).write_text("here")
    while not ctx.cancelled: time.sleep(0.01)
    ctx.checkpoint({"page": 3})
    raise holdfast.Cancelled

@app.job
async def sleeps(ctx: holdfast.Context):
    Path(ctx.job_id).write_text("here")
    try:
        await asyncio.sleep(60)
    finally:
        Path(ctx.job_id + "-out").write_text("out")

@app.job
def ignores(ctx: holdfast.Context, seconds: float):
    Path(ctx.job_id).write_text("here")
    time.sleep(seconds)
    return "ignored"

@app.job(isolation="process")
def ignores_apart(ctx: holdfast.Context):
    Path(ctx.job_id).write_text(str(os.getpid()))
    time.sleep(60)

@app.job
def holds_gil(ctx: holdfast.Context, seconds: float):
    Path(ctx.job_id).write_text("here")
    SLEEP(int(seconds * 1e6))
    return ctx.attempt

@app.job
async def blocks_loop(ctx: holdfast.Context, seconds: float):
    Path(ctx.job_id).write_text("here")
    time.sleep(seconds)
    return ctx.attempt

@app.job
async def innocent(ctx: holdfast.Context, seconds: float):
    Path(ctx.job_id).write_text("here")
    end = time.monotonic() + seconds
    while time.monotonic() < end: await asyncio.sleep(0.05)
    return ctx.attempt

@app.job
def plain_innocent(ctx: holdfast.Context, seconds: float):
    Path(ctx.job_id).write_text("here")
    ctx.wait_cancelled(seconds)
    return ctx.attempt
"""
ONCE = Retry(max_failures=1, max_crashes=1)


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    with opened("sqlite", tmp_path_factory.mktemp("stopping"), APP) as floor:
        floor.worker("w-1")
        floor.worker("w-2", "-q", "apart")
        yield floor


@pytest.fixture(scope="module")
def unheeding(floor: Floor) -> tuple[str, list[str]]:
    """A thread that was asked to stop and does not, and jobs in the same runner. It takes long."""
    job_id = begun(floor, "ignores", seconds=60, queue="apart")
    kinds = ("innocent", "plain_innocent")
    innocents = [begun(floor, kind, seconds=14, queue="apart") for kind in kinds]
    floor.running(job_id)
    floor.cancel(job_id, hard=False)
    return job_id, innocents


def begun(floor: Floor, kind: str, **more: object) -> str:
    """A job whose handler is running."""
    payload = {"seconds": more.pop("seconds")} if "seconds" in more else {}
    job_id = floor.enqueue(kind, payload, **more)
    floor.file(job_id)
    return job_id


@pytest.mark.usefixtures("unheeding")
@pytest.mark.parametrize("kind", ["heeds", "heeds_plain"])
def test_a_soft_cancel_is_seen_and_the_checkpoint_kept(floor: Floor, kind: str) -> None:
    """Scenario 21."""
    job_id = begun(floor, kind)
    floor.running(job_id)

    assert floor.cancel(job_id, hard=False).state is State.RUNNING
    job = floor.ended(job_id, 3)
    assert (job.state, job.checkpoint) == (State.CANCELLED, {"page": 3})


def test_a_hard_cancel_ends_the_job_at_once_and_cancels_the_coroutine(floor: Floor) -> None:
    job_id = begun(floor, "sleeps")
    floor.running(job_id)

    version = floor.cancel(job_id, hard=True).version

    assert floor.file(f"{job_id}-out", 3) == "out"
    patient(lambda: job_id + " sleeps is no longer ours" in floor.said("w-1"))
    job = floor.job(job_id)
    assert (job.state, job.version) == (State.CANCELLED, version)


def test_the_completion_of_a_thread_that_was_cancelled_hard_is_refused(floor: Floor) -> None:
    job_id = begun(floor, "ignores", seconds=1.0)
    floor.running(job_id)
    version = floor.cancel(job_id, hard=True).version
    time.sleep(1.2)

    job = floor.job(job_id)
    assert (job.state, job.version, job.result) == (State.CANCELLED, version, None)
    assert floor.succeeded(floor.enqueue("innocent", {"seconds": 0}), 5).attempt == 1


def test_what_is_cancelled_before_it_was_claimed_never_runs(floor: Floor) -> None:
    job_id = floor.enqueue("sleeps", delay=timedelta(seconds=1))
    floor.cancel(job_id, hard=False)
    time.sleep(1.2)

    assert floor.types(job_id) == ["job_queued", "job_cancelled"]


@pytest.mark.parametrize("kind", ["sleeps", "ignores", "ignores_apart"])
def test_a_timeout_stops_the_work_and_counts_as_a_failure(floor: Floor, kind: str) -> None:
    more = {"seconds": 60} if kind == "ignores" else {}
    innocent = begun(floor, "innocent", seconds=2)
    job_id = begun(floor, kind, timeout=timedelta(seconds=0.5), retry=ONCE, **more)

    job = floor.ended(job_id, 5)

    assert job.dead_letter is not None
    assert (job.dead_letter.reason_code, job.failures, job.crashes) == ("timeout", 1, 0)
    assert floor.succeeded(innocent).attempt == 1


def test_who_holds_the_interpreter_for_three_leases_keeps_its_lease_and_everybody_elses(
    floor: Floor,
) -> None:
    innocents = [begun(floor, name, seconds=0.5) for name in ("innocent", "plain_innocent")]
    hog = begun(floor, "holds_gil", seconds=6.5)
    before = time.monotonic()
    patient(lambda: floor.job(hog).heartbeats > 3)

    job = floor.succeeded(hog)

    assert time.monotonic() - before > 6
    assert (job.result, job.attempt, job.crashes) == (1, 1, 0)
    assert [floor.succeeded(job_id).attempt for job_id in innocents] == [1, 1]


def test_a_coroutine_that_blocks_the_loop_keeps_its_lease_and_everybody_elses(floor: Floor) -> None:
    innocent = begun(floor, "innocent", seconds=0.5)
    hog = begun(floor, "blocks_loop", seconds=2.5)

    assert [floor.succeeded(job_id).attempt for job_id in (hog, innocent)] == [1, 1]


@pytest.mark.parametrize("why", ["cancel", "timeout"])
def test_who_holds_the_interpreter_and_must_stop_is_killed_and_innocents_run_again_for_free(
    floor: Floor, why: str
) -> None:
    innocent = begun(floor, "innocent", seconds=1)
    limit = timedelta(seconds=1) if why == "timeout" else None
    hog = begun(floor, "holds_gil", seconds=60, timeout=limit, retry=ONCE)
    if why == "cancel":
        floor.running(hog)
        floor.cancel(hog, hard=True)

    job = floor.succeeded(innocent, 8)

    assert (job.attempt, job.crashes, job.failures) == (2, 0, 0)
    assert floor.job(hog).ended
    assert floor.job(hog).failures == (1 if why == "timeout" else 0)


def test_a_thread_that_ignores_a_cancel_is_cancelled_with_its_lease_and_innocents_live_on(
    floor: Floor, unheeding: tuple[str, list[str]]
) -> None:
    ignorant, innocents = unheeding

    job = floor.ended(ignorant)

    assert job.state is State.CANCELLED
    assert job.ended_at is not None
    assert job.cancel is not None
    patience = (job.ended_at - job.cancel.requested_at).total_seconds()
    assert 10 < patience < 10 + 2 + 2
    for job_id in innocents:
        job = floor.succeeded(job_id)
        assert (job.attempt, job.crashes) == (1, 0)


def test_record_and_log_agree(floor: Floor) -> None:
    floor.sound()
