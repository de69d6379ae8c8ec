"""Functions whose process dies, grows too large, or cannot be started."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from floor import Floor, opened, patient

from holdfast.core.retry import Retry
from holdfast.core.state import State

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

@app.job(isolation="process", memory=160 * 1024 * 1024)
def lean(): return "lean"

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

@app.job(isolation="process")
def where(): return os.getpid()

@app.job(isolation="process")
def naps(seconds: float): time.sleep(seconds)

@app.job
def good(): return "good"
"""
ONCE = Retry(max_failures=1, max_crashes=1)
SLOTS = 8


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    with opened("sqlite", tmp_path_factory.mktemp("crash"), APP) as floor:
        floor.worker(
            "w-1", "-c", str(SLOTS), "--lease", "20s"
        )  # what crashes here is told, not waited for
        yield floor


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
    floor: Floor, how: str, code: int, crash: bool
) -> None:
    kinds = ("dies", "dies_async", "dies_apart")
    for kind in kinds[2:] if "exit 1" in how else kinds:
        job = floor.ended(floor.enqueue(kind, {"how": how}, retry=ONCE), 8)

        assert job.error is not None
        assert (job.error.exit_code, job.error.crash) == (code, crash)
        assert (job.crashes, job.failures) == (int(crash), int(not crash))
    assert floor.succeeded(floor.enqueue("good"), 8).result == "good"


def test_what_takes_too_much_memory_is_killed_and_told(floor: Floor) -> None:
    job = floor.ended(floor.enqueue("eats", retry=ONCE), 8)

    assert job.crashes == 1
    assert "It used more memory than its limit of 150 MiB." in (job.reason or "")


def test_a_crash_of_the_shared_runner_costs_nobody_and_each_of_its_jobs_then_runs_alone(
    floor: Floor,
) -> None:
    bystander = floor.enqueue("bystander")
    floor.file(f"{bystander}-1")
    culprit = floor.enqueue("dies", {"how": "segfault"}, retry=ONCE)

    job = floor.succeeded(bystander, 8)
    dead = floor.until(culprit, lambda job: job.ended)

    assert (job.result, job.crashes, job.failures) == (2, 0, 0)
    assert (dead.attempt, dead.crashes) == (2, 1)  # alone: now nobody else can be blamed


def test_what_was_said_before_the_process_died_is_kept(floor: Floor) -> None:
    job_id = floor.enqueue("talks_then_dies", retry=ONCE)
    floor.ended(job_id, 8)

    assert floor.output(job_id).splitlines() == [b"line %d" % n for n in range(80_000)]


def test_processes_of_their_own_are_kept_warm_and_replaced_in_time(floor: Floor) -> None:
    jobs = [floor.enqueue("where") for _ in range(60)]

    pids = [floor.succeeded(job_id).result for job_id in jobs]

    assert len(set(map(str, pids))) <= SLOTS


def test_no_lane_starves_and_waiting_for_a_process_is_no_timeout(floor: Floor) -> None:
    naps = [floor.enqueue("naps", {"seconds": 1.5}) for _ in range(SLOTS)]
    patient(lambda: all(floor.job(job_id).state is State.RUNNING for job_id in naps))
    limit = timedelta(seconds=1)
    late = floor.enqueue("where", timeout=limit)
    other = floor.enqueue("lean", timeout=limit)

    job = floor.succeeded(late, 10)

    assert isinstance(job.result, int)
    assert floor.succeeded(other, 10).result == "lean"


def test_an_app_that_is_broken_meanwhile_puts_jobs_off_and_burns_none(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path, APP) as floor:
        floor.worker("w-1", "-c", "4")
        break_and_mend(floor)


def break_and_mend(floor: Floor) -> None:
    floor.succeeded(floor.enqueue("good"))
    floor.write("raise RuntimeError('half an edit')")
    floor.ended(floor.enqueue("dies", {"how": "os._exit"}, retry=ONCE))
    good = floor.enqueue("good")
    floor.until(good, lambda job: job.attempt > 1, 8)
    floor.write("@app.job\ndef good(): return 'mended'")
    lost = floor.enqueue("bystander")
    put_off = floor.until(lost, lambda job: job.attempt > 1 and job.state is State.QUEUED, 8)
    assert put_off.not_understood > 0
    job = floor.succeeded(good, 12)

    assert (job.result, job.failures, job.crashes) == ("mended", 0, 0)
    assert (put_off.failures, put_off.crashes) == (0, 0)
    assert put_off.reason == (
        "w-1 does not understand it: bystander: the app of this worker no longer has it."
    )
    assert "plant:app cannot be run" in floor.said("w-1")
    floor.sound()
