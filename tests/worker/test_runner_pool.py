"""Processes of runners: one for each slot, kept warm, and none left over."""

import os
import time
from datetime import timedelta
from pathlib import Path

from holdfast.core.state import State
from tests.worker.function_workers import FunctionWorkers, costs
from tests.worker.live_processes import gone, wait_until

SLOTS = 8


APP = """
import subprocess

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
def where(): return os.getpid()

@app.job(isolation="process")
def naps(seconds: float): time.sleep(seconds)

@app.job(isolation="process", memory=160 * 1024 * 1024)
def lean(): return "lean"

@app.job(isolation="process")
def echoes():
    subprocess.run(["sh", "-c", "echo said"], check=True)
    return os.getpid()
"""
TICKS = os.sysconf("SC_CLK_TCK")


def process_seconds(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def test_what_a_job_left_running_neither_eats_the_worker_nor_speaks_for_the_next(
    shared_workers: FunctionWorkers,
) -> None:
    worker = shared_workers.processes["w-1"].pid
    left = shared_workers.succeeded(shared_workers.enqueue("leaves_yes"))
    assert isinstance(left.result, list)
    runner, child = left.result
    assert gone(child)
    assert gone(runner)
    before = process_seconds(worker)
    time.sleep(0.5)
    assert process_seconds(worker) - before < 0.2

    job_id = shared_workers.enqueue("echoes")

    assert shared_workers.succeeded(job_id).result != runner
    assert shared_workers.output(job_id) == b"said\n"


def test_every_slot_has_a_process_and_what_waits_for_one_is_not_shown_as_running(
    sqlite_workers: FunctionWorkers,
) -> None:
    sqlite_workers.start("w-1", "-c", "6")
    jobs = [sqlite_workers.enqueue("stays", {"name": str(n)}) for n in range(7)]

    wait_until(lambda: len(list(sqlite_workers.folder.glob("stays-*"))) == 6)
    for n in range(6):
        sqlite_workers.running(jobs[n])
    time.sleep(0.4)

    pids = {sqlite_workers.file(path.name) for path in sqlite_workers.folder.glob("stays-*")}
    assert len(pids) == 6
    assert sqlite_workers.job(jobs[6]).state is not State.RUNNING
    (sqlite_workers.folder / "over").write_text("yes")
    for job_id in jobs:
        assert costs(sqlite_workers.succeeded(job_id))[1:] == (0, 0)


def test_processes_of_their_own_are_kept_warm_and_replaced_in_time(
    sqlite_workers: FunctionWorkers,
) -> None:
    sqlite_workers.start("w-1", "-c", str(SLOTS))
    jobs = [sqlite_workers.enqueue("where") for _ in range(60)]

    pids = [sqlite_workers.succeeded(job_id).result for job_id in jobs]

    assert len(set(map(str, pids))) <= SLOTS


def test_no_lane_starves_and_waiting_for_a_process_is_no_timeout(
    sqlite_workers: FunctionWorkers,
) -> None:
    sqlite_workers.start("w-1", "-c", str(SLOTS))
    naps = [sqlite_workers.enqueue("naps", {"seconds": 1.5}) for _ in range(SLOTS)]
    wait_until(lambda: all(sqlite_workers.job(job_id).state is State.RUNNING for job_id in naps))
    limit = timedelta(seconds=1)
    late = sqlite_workers.enqueue("where", timeout=limit)
    other = sqlite_workers.enqueue("lean", timeout=limit)

    job = sqlite_workers.succeeded(late)

    assert isinstance(job.result, int)
    assert sqlite_workers.succeeded(other).result == "lean"
