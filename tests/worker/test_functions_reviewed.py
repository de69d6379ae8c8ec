"""What a hostile review asked of real workers: neighbours, large output, and what is undone."""

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from floor import Floor, opened, patient
from shop import gone

from holdfast.core.catalogue import ReasonCode
from holdfast.core.job import Job
from holdfast.core.retry import Retry
from holdfast.core.state import State
from holdfast.sdk.store_url import StoreUrl
from holdfast.system import boot_id

APP = """
import subprocess
from dataclasses import dataclass

class Five(int): pass

@dataclass
class Disk:
    size: int
    def __post_init__(self):
        raise OSError("no such disk")

@app.job
async def naps(seconds: float):
    await asyncio.sleep(seconds)
    return os.getpid()

@app.job
async def mounts(disk: Disk): return "mounted"

@app.job
async def advances(ctx: holdfast.Context):
    ctx.progress(1, Five(5))
    await asyncio.sleep(0.05)
    ctx.progress(1, True)
    return os.getpid()

@app.job
def floods(size: int): print("x" * size)

@app.job
def writes_bytes(): sys.stdout.buffer.write(b"raw" + bytes([255, 10]))

async def see(ctx: holdfast.Context):
    Path("seen").write_text(str(ctx.last_checkpoint()))

@app.job(compensate=see)
async def keeps_and_fails(ctx: holdfast.Context):
    await ctx.checkpoint_async({"step": 7})
    raise ValueError("no")

async def hang():
    await asyncio.sleep(60)

@app.job(compensate=hang)
async def fails(): raise ValueError("no")

def trace(word):
    with open("trace", "a") as file:
        file.write(f"{word} {os.getpid()}" + chr(10))

def undo(): trace("undo")

@app.job(compensate=undo)
def heedless():
    while True:
        trace("work")
        time.sleep(0.01)

@app.job(isolation="process")
def stays(name: str):
    Path(f"stays-{name}").write_text(str(os.getpid()))
    while not Path("over").exists(): time.sleep(0.02)

@app.job(isolation="process")
def leaves_yes():
    child = subprocess.Popen(["yes"])
    time.sleep(0.1)
    return [os.getpid(), child.pid]

@app.job(isolation="process")
def echoes():
    subprocess.run(["sh", "-c", "echo said"], check=True)
    return os.getpid()
"""
ONCE = Retry(max_failures=1, max_crashes=1)
TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    with opened("sqlite", tmp_path_factory.mktemp("reviewed"), APP) as floor:
        floor.worker("w-1", "-c", "50")
        yield floor


@pytest.fixture
def floor(tmp_path: Path) -> Iterator[Floor]:
    with opened("sqlite", tmp_path, APP) as floor:
        yield floor


def costs(job: Job) -> tuple[int, int, int]:
    """What the job has paid: attempts, failures, crashes."""
    return job.attempt, job.failures, job.crashes


def parked(job: Job) -> ReasonCode | None:
    """Why the job is a dead letter, if it is one."""
    return None if job.dead_letter is None else job.dead_letter.reason_code


def process_seconds(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def test_coroutines_that_end_as_their_time_is_up_cost_their_neighbours_nothing(
    shared: Floor,
) -> None:
    neighbour = shared.enqueue("naps", {"seconds": 3.2})
    limit = timedelta(seconds=0.3)
    brief = [
        shared.enqueue("naps", {"seconds": 0.3 + n / 400}, timeout=limit, retry=ONCE)
        for n in range(40)
    ]

    ended = [shared.ended(job_id) for job_id in brief]
    job = shared.succeeded(neighbour)

    assert costs(job) == (1, 0, 0)
    assert {e.result for e in ended if e.state is State.SUCCEEDED} <= {job.result}
    assert {parked(e) for e in ended} <= {None, ReasonCode.TIMEOUT}
    assert "has a fault" not in shared.said("w-1")


def test_an_argument_whose_making_raises_fails_its_own_attempt(shared: Floor) -> None:
    job = shared.ended(shared.enqueue("mounts", {"disk": {"size": 1}}, retry=ONCE), 8)

    assert job.state is State.DEAD_LETTERED
    assert "no such disk" in (job.reason or "")
    shared.succeeded(shared.enqueue("naps", {"seconds": 0}), 8)


def test_odd_whole_numbers_are_progress_and_lose_no_ending(shared: Floor) -> None:
    jobs = [shared.enqueue("advances") for _ in range(3)]
    jobs += [shared.enqueue("naps", {"seconds": n / 100}) for n in range(12)]

    results = {shared.succeeded(job_id, 8).result for job_id in jobs}

    assert len(results) == 1
    assert all(costs(shared.job(job_id)) == (1, 0, 0) for job_id in jobs)


def test_seventy_million_characters_are_kept_and_the_worker_lives(shared: Floor) -> None:
    neighbour = shared.enqueue("naps", {"seconds": 1})
    job_id = shared.enqueue("floods", {"size": 70_000_000}, retry=ONCE)

    assert costs(shared.succeeded(job_id)) == (1, 0, 0)
    assert costs(shared.succeeded(neighbour)) == (1, 0, 0)
    output = shared.output(job_id)
    assert len(output) == 70_000_001
    assert output.count(b"x") == 70_000_000


def test_what_is_written_as_bytes_or_by_a_child_is_kept_with_the_job(shared: Floor) -> None:
    written = shared.enqueue("writes_bytes")
    echoed = shared.enqueue("echoes")
    shared.succeeded(written, 8)
    shared.succeeded(echoed, 8)

    assert shared.output(written) == b"raw\xff\n"
    assert shared.output(echoed) == b"said\n"


def test_a_compensation_sees_the_last_checkpoint(shared: Floor) -> None:
    job_id = shared.enqueue("keeps_and_fails", retry=ONCE)
    shared.ended(job_id, 8)

    assert shared.file("seen") == "{'step': 7}"
    assert "job_compensated" in shared.types(job_id)


def test_a_compensation_has_the_time_its_handler_had(shared: Floor) -> None:
    job_id = shared.enqueue("fails", retry=ONCE, timeout=timedelta(seconds=0.4))

    job = shared.ended(job_id, 8)

    assert parked(job) is ReasonCode.COMPENSATION_FAILED


def test_what_a_job_left_running_neither_eats_the_worker_nor_speaks_for_the_next(
    shared: Floor,
) -> None:
    worker = shared.workers["w-1"].pid
    left = shared.succeeded(shared.enqueue("leaves_yes"), 8)
    assert isinstance(left.result, list)
    runner, child = left.result
    assert gone(child, 3)
    assert gone(runner, 3)
    before = process_seconds(worker)
    time.sleep(0.5)
    assert process_seconds(worker) - before < 0.2

    job_id = shared.enqueue("echoes")

    assert shared.succeeded(job_id, 8).result != runner
    assert shared.output(job_id) == b"said\n"


def test_a_spool_is_of_one_store_and_one_boot(shared: Floor) -> None:
    shared.succeeded(shared.enqueue("naps", {"seconds": 0}), 8)

    [label] = [path.read_text() for path in shared.spool.glob("*/store")]

    assert label == f"{StoreUrl(shared.url).name} {boot_id()}"


def test_nothing_is_undone_beside_what_is_still_being_done(floor: Floor) -> None:
    """A thread that does not heed its timeout is ended with its process, then compensated."""
    floor.worker("w-1", "-c", "4")
    neighbour = floor.enqueue("naps", {"seconds": 2})
    job_id = floor.enqueue("heedless", retry=ONCE, timeout=timedelta(seconds=0.5))

    job = floor.ended(job_id)
    ran = floor.succeeded(neighbour)

    words = [line.split() for line in (floor.folder / "trace").read_text().splitlines()]
    assert [word for word, _ in words].count("undo") == 1
    assert words[-1][0] == "undo"
    assert words[-1][1] != words[0][1]
    assert parked(job) is ReasonCode.TIMEOUT
    assert "job_compensated" in floor.types(job_id)
    assert costs(ran) == (2, 0, 0)
    assert ran.result != int(words[0][1])


def test_every_slot_has_a_process_and_what_waits_for_one_is_not_shown_as_running(
    floor: Floor,
) -> None:
    floor.worker("w-1", "-c", "6")
    jobs = [floor.enqueue("stays", {"name": str(n)}) for n in range(7)]

    patient(lambda: len(list(floor.folder.glob("stays-*"))) == 6, 15)
    for n in range(6):
        floor.running(jobs[n])
    time.sleep(0.4)

    pids = {floor.file(path.name) for path in floor.folder.glob("stays-*")}
    assert len(pids) == 6
    assert floor.job(jobs[6]).state is not State.RUNNING
    (floor.folder / "over").write_text("yes")
    for job_id in jobs:
        assert costs(floor.succeeded(job_id))[1:] == (0, 0)
