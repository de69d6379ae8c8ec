"""Functions whose process dies, grows too large, or cannot be started."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.retry import Retry
from holdfast.core.state import State
from tests.worker.function_workers import FunctionWorkers, open_workers

APP = """
@app.job
def dies(ctx: holdfast.Context, how: str): return die(how)

@app.job
async def dies_async(ctx: holdfast.Context, how: str): return die(how)

@app.job(isolation="process")
def dies_apart(ctx: holdfast.Context, how: str): return die(how)

def die(how):
    if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if how == "segfault": ctypes.string_at(0)
    if how == "os._exit": os._exit(3)
    if how.startswith("sys.exit"): sys.exit(int(how.split()[1]))

@app.job(isolation="process", memory=150 * 1024 * 1024)
def eats(): return bytearray(400 * 1024 * 1024), time.sleep(20)  # kept meanwhile

@app.job
async def talks_then_dies():
    for n in range(80_000): print("line", n)
    for _ in range(3): await asyncio.sleep(0)  # it is on its way, and nobody has read it
    os._exit(1)

@app.job
async def bystander(ctx: holdfast.Context):
    Path(f"{ctx.job_id}-{ctx.attempt}").write_text("here")
    if ctx.attempt == 1: await asyncio.sleep(30)
    return ctx.attempt

@app.job
def good(): return "good"
"""
ONCE = Retry(max_failures=1, max_crashes=1)
SLOTS = 8


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FunctionWorkers]:
    with open_workers("sqlite", tmp_path_factory.mktemp("crash"), APP) as workers:
        workers.start(
            "w-1", "-c", str(SLOTS), "--lease", "20s"
        )  # a crash is reported here, and no lease waited for
        yield workers


@pytest.mark.parametrize(
    ("how", "code", "crash"),
    [
        ("kill", 137, True),
        ("segfault", 139, True),
        ("os._exit", 3, True),
        ("sys.exit 3", 3, False),
        ("sys.exit 137", 137, True),
        ("sys.exit 139", 139, True),
    ],
)
def test_how_a_process_dies_is_told_and_counted(
    workers: FunctionWorkers, how: str, code: int, crash: bool
) -> None:
    kinds = ("dies", "dies_async", "dies_apart")
    for kind in kinds[2:] if "exit 1" in how else kinds:
        job = workers.ended(workers.enqueue(kind, {"how": how}, retry=ONCE))

        assert job.error is not None
        assert (job.error.exit_code, job.error.crash) == (code, crash)
        assert (job.crashes, job.failures) == (int(crash), int(not crash))
    assert workers.succeeded(workers.enqueue("good")).result == "good"


def test_what_takes_too_much_memory_is_killed_and_told(workers: FunctionWorkers) -> None:
    job = workers.ended(workers.enqueue("eats", retry=ONCE))

    assert job.crashes == 1
    assert "It used more memory than its limit of 150 MiB." in (job.reason or "")


def test_a_crash_of_the_shared_runner_costs_nobody_and_each_of_its_jobs_then_runs_alone(
    workers: FunctionWorkers,
) -> None:
    bystander = workers.enqueue("bystander")
    workers.file(f"{bystander}-1")
    culprit = workers.enqueue("dies", {"how": "segfault"}, retry=ONCE)

    job = workers.succeeded(bystander)
    dead = workers.until(culprit, lambda job: job.ended)

    assert (job.result, job.crashes, job.failures) == (2, 0, 0)
    assert (dead.attempt, dead.crashes) == (2, 1)  # alone: now nobody else can be blamed


def test_what_was_said_before_the_process_died_is_kept(workers: FunctionWorkers) -> None:
    job_id = workers.enqueue("talks_then_dies", retry=ONCE)
    workers.ended(job_id)

    assert workers.output(job_id).splitlines() == [b"line %d" % n for n in range(80_000)]


def test_an_app_that_is_broken_meanwhile_puts_jobs_off_and_burns_none(tmp_path: Path) -> None:
    with open_workers("sqlite", tmp_path, APP) as workers:
        workers.start("w-1", "-c", "4")
        break_and_mend(workers)


def break_and_mend(workers: FunctionWorkers) -> None:
    workers.succeeded(workers.enqueue("good"))
    workers.write("raise RuntimeError('half an edit')")
    workers.ended(workers.enqueue("dies", {"how": "os._exit"}, retry=ONCE))
    good = workers.enqueue("good")
    workers.until(good, lambda job: job.attempt > 1)
    workers.write("@app.job\ndef good(): return 'mended'")
    lost = workers.enqueue("bystander")
    put_off = workers.until(lost, lambda job: job.attempt > 1 and job.state is State.QUEUED)
    assert put_off.not_understood > 0
    job = workers.succeeded(good)

    assert (job.result, job.failures, job.crashes) == ("mended", 0, 0)
    assert (put_off.failures, put_off.crashes) == (0, 0)
    assert put_off.reason == (
        "w-1 does not understand it: bystander: the app of this worker no longer has this kind."
    )
    assert "plant:app cannot be run" in workers.worker_log("w-1")
    workers.assert_consistent()
