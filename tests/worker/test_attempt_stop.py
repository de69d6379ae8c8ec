"""Stopping functions: cancels, timeouts, handlers that hold the interpreter, and their neighbours."""

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from holdfast.core.retry import Retry
from holdfast.core.state import State
from tests.worker.function_workers import FunctionWorkers, open_workers
from tests.worker.live_processes import wait_until

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
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FunctionWorkers]:
    with open_workers("sqlite", tmp_path_factory.mktemp("stopping"), APP) as workers:
        workers.start("w-1")
        workers.start("w-2", "-q", "apart")
        yield workers


@pytest.fixture(scope="module")
def unheeding(workers: FunctionWorkers) -> tuple[str, list[str]]:
    """A thread that was asked to stop and does not, and jobs in the same runner. It takes long."""
    job_id = begun(workers, "ignores", seconds=60, queue="apart")
    kinds = ("innocent", "plain_innocent")
    innocents = [begun(workers, kind, seconds=14, queue="apart") for kind in kinds]
    workers.running(job_id)
    workers.cancel(job_id, hard=False)
    return job_id, innocents


def begun(workers: FunctionWorkers, kind: str, **more: object) -> str:
    """A job whose handler is running."""
    payload = {"seconds": more.pop("seconds")} if "seconds" in more else {}
    job_id = workers.enqueue(kind, payload, **more)
    workers.file(job_id)
    return job_id


@pytest.mark.usefixtures("unheeding")
@pytest.mark.parametrize("kind", ["heeds", "heeds_plain"])
def test_a_soft_cancel_is_seen_and_the_checkpoint_kept(workers: FunctionWorkers, kind: str) -> None:
    """Scenario 21."""
    job_id = begun(workers, kind)
    workers.running(job_id)

    assert workers.cancel(job_id, hard=False).state is State.RUNNING
    job = workers.ended(job_id)
    assert (job.state, job.checkpoint) == (State.CANCELLED, {"page": 3})


def test_a_hard_cancel_ends_the_job_at_once_and_cancels_the_coroutine(
    workers: FunctionWorkers,
) -> None:
    job_id = begun(workers, "sleeps")
    workers.running(job_id)

    version = workers.cancel(job_id, hard=True).version

    assert workers.file(f"{job_id}-out") == "out"
    wait_until(lambda: job_id + " sleeps is no longer ours" in workers.worker_log("w-1"))
    job = workers.job(job_id)
    assert (job.state, job.version) == (State.CANCELLED, version)


def test_the_completion_of_a_thread_that_was_cancelled_hard_is_refused(
    workers: FunctionWorkers,
) -> None:
    job_id = begun(workers, "ignores", seconds=1.0)
    workers.running(job_id)
    version = workers.cancel(job_id, hard=True).version
    time.sleep(1.2)

    job = workers.job(job_id)
    assert (job.state, job.version, job.result) == (State.CANCELLED, version, None)
    assert workers.succeeded(workers.enqueue("innocent", {"seconds": 0})).attempt == 1


def test_what_is_cancelled_before_it_was_claimed_never_runs(workers: FunctionWorkers) -> None:
    job_id = workers.enqueue("sleeps", delay=timedelta(seconds=1))
    workers.cancel(job_id, hard=False)
    time.sleep(1.2)

    assert workers.types(job_id) == ["job_queued", "job_cancelled"]


@pytest.mark.parametrize("kind", ["sleeps", "ignores", "ignores_apart"])
def test_a_timeout_stops_the_work_and_counts_as_a_failure(workers: FunctionWorkers, kind: str) -> None:
    more = {"seconds": 60} if kind == "ignores" else {}
    innocent = begun(workers, "innocent", seconds=2)
    job_id = begun(workers, kind, timeout=timedelta(seconds=0.5), retry=ONCE, **more)

    job = workers.ended(job_id)

    assert job.dead_letter is not None
    assert (job.dead_letter.reason_code, job.failures, job.crashes) == ("timeout", 1, 0)
    assert workers.succeeded(innocent).attempt == 1


def test_who_holds_the_interpreter_for_three_leases_keeps_its_lease_and_everybody_elses(
    workers: FunctionWorkers,
) -> None:
    innocents = [begun(workers, name, seconds=0.5) for name in ("innocent", "plain_innocent")]
    hog = begun(workers, "holds_gil", seconds=6.5)
    before = time.monotonic()
    wait_until(lambda: workers.job(hog).heartbeats > 3)

    job = workers.succeeded(hog)

    assert time.monotonic() - before > 6
    assert (job.result, job.attempt, job.crashes) == (1, 1, 0)
    assert [workers.succeeded(job_id).attempt for job_id in innocents] == [1, 1]


def test_a_coroutine_that_blocks_the_loop_keeps_its_lease_and_everybody_elses(
    workers: FunctionWorkers,
) -> None:
    innocent = begun(workers, "innocent", seconds=0.5)
    hog = begun(workers, "blocks_loop", seconds=2.5)

    assert [workers.succeeded(job_id).attempt for job_id in (hog, innocent)] == [1, 1]


@pytest.mark.parametrize("why", ["cancel", "timeout"])
def test_who_holds_the_interpreter_and_must_stop_is_killed_and_innocents_run_again_for_free(
    workers: FunctionWorkers, why: str
) -> None:
    innocent = begun(workers, "innocent", seconds=1)
    limit = timedelta(seconds=1) if why == "timeout" else None
    hog = begun(workers, "holds_gil", seconds=60, timeout=limit, retry=ONCE)
    if why == "cancel":
        workers.running(hog)
        workers.cancel(hog, hard=True)

    job = workers.succeeded(innocent)

    assert (job.attempt, job.crashes, job.failures) == (2, 0, 0)
    assert workers.job(hog).ended
    assert workers.job(hog).failures == (1 if why == "timeout" else 0)


def test_a_thread_that_ignores_a_cancel_is_cancelled_with_its_lease_and_innocents_live_on(
    workers: FunctionWorkers, unheeding: tuple[str, list[str]]
) -> None:
    ignorant, innocents = unheeding

    job = workers.ended(ignorant)

    assert job.state is State.CANCELLED
    assert job.ended_at is not None
    assert job.cancel is not None
    patience = (job.ended_at - job.cancel.requested_at).total_seconds()
    assert 10 < patience < 10 + 2 + 30
    for job_id in innocents:
        job = workers.succeeded(job_id)
        assert (job.attempt, job.crashes) == (1, 0)


def test_record_and_log_agree(workers: FunctionWorkers) -> None:
    workers.assert_consistent()
