"""A machine that cannot run jobs: it costs none of them, others run them, and it recovers by itself."""

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Client
from holdfast.core.job import Job
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.retry import COMMAND_RETRY
from holdfast.core.spec import COMMAND_KIND, Spec
from holdfast.core.state import State
from holdfast.ports import JobRequest
from tests.worker.function_workers import FunctionWorkers
from tests.worker.live_processes import PATIENCE_SECONDS, wait_until

APP = """
@app.job(isolation="process")
def apart(): return os.getpid()

@app.job(max_failures=1, max_crashes=1, outputs=["model.bin"])
def leaves(ctx: holdfast.Context):
    with ctx.output("model.bin") as file:
        file.write(bytes(600 * 1024))

async def recovers():
    while not Path("healthy").exists():
        await asyncio.sleep(0.01)
    threading.stack_size(0)

def take_threads():
    # From now on no thread can be started in this process: its stack would not fit into any memory.
    threading.stack_size(1 << 47)
    app.recovery = asyncio.create_task(recovers())

@app.job
async def starves(): take_threads()

@app.job(max_failures=1, max_crashes=1)
def plain():
    with open("plain", "a") as file: file.write("run;")

def undo(): Path("undone").write_text("undone")

@app.job(max_failures=1, compensate=undo)
async def fails():
    take_threads()
    raise ValueError("no good")
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte: a real file system, in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=False, capture_output=True)


def submit(sqlite_workers: FunctionWorkers, *argv: str, cwd: Path | None = None) -> str:
    """A command that fails for good when it fails once."""
    payload = encode_process_spec(ProcessSpec(argv=argv, cwd=None if cwd is None else str(cwd)))
    request = JobRequest(spec=Spec(payload=payload, retry=COMMAND_RETRY))
    assert request.spec.kind == COMMAND_KIND
    return sqlite_workers.use(lambda r: r.enqueue(request, actor="user:ana")).job_id


def works(sqlite_workers: FunctionWorkers, name: str, *options: str) -> int:
    """A worker for commands and functions that has run something; returns its process id."""
    process = sqlite_workers.start(name, "--commands", *options)
    first = submit(sqlite_workers, "true")
    sqlite_workers.succeeded(first)
    return process.pid


def take_descriptors(pid: int) -> tuple[int, int]:
    """From now on the process can open nothing; returns the limits that it had."""
    return resource.prlimit(
        pid, resource.RLIMIT_NOFILE, (3, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1])
    )


def free(job: Job) -> bool:
    return (job.failures, job.crashes) == (0, 0)


def test_a_worker_without_descriptors_gives_all_back_and_another_runs_them(
    sqlite_workers: FunctionWorkers,
) -> None:
    sick = works(sqlite_workers, "sick", "-c", "4")
    limits = take_descriptors(sick)
    jobs = [submit(sqlite_workers, "true") for _ in range(20)]
    jobs += [sqlite_workers.enqueue("apart") for _ in range(5)]

    wait_until(lambda: any(sqlite_workers.job(job_id).attempt > 1 for job_id in jobs))
    given = next(job for job in map(sqlite_workers.job, jobs) if job.attempt > 1)
    assert free(given)
    assert "This machine cannot run jobs" in sqlite_workers.worker_log("sick")
    assert "Too many open files" in str(given.reason)
    assert "Too many open files" in sqlite_workers.use(lambda r: r.why(given.job_id))
    sqlite_workers.start("healthy", "--commands", "-c", "4")
    ended = [sqlite_workers.succeeded(job_id) for job_id in jobs]

    assert [sqlite_workers.history(job.job_id) for job in ended if not free(job)] == [], (
        sqlite_workers.all_logs()
    )
    assert sum(job.not_started for job in ended) == 0
    assert sum(job.attempt for job in ended) < 3 * len(jobs)
    sqlite_workers.leave("healthy")
    resource.prlimit(sick, resource.RLIMIT_NOFILE, limits)
    sqlite_workers.succeeded(submit(sqlite_workers, "true"))
    assert "This machine runs jobs again." in sqlite_workers.worker_log("sick")
    sqlite_workers.assert_consistent()


def test_a_folder_that_is_not_there_yet_costs_nothing(
    sqlite_workers: FunctionWorkers, tmp_path: Path
) -> None:
    works(sqlite_workers, "w")
    share = tmp_path / "share"
    job_id = submit(sqlite_workers, "true", cwd=share)

    job = sqlite_workers.until(job_id, lambda job: job.not_started > 0)
    assert (job.state, free(job)) == (State.QUEUED, True)
    assert f"No such file or directory ({share})" in sqlite_workers.use(lambda r: r.why(job_id))
    share.mkdir()

    assert free(sqlite_workers.succeeded(job_id))


def test_a_program_that_is_being_replaced_is_run_when_it_is_whole(
    sqlite_workers: FunctionWorkers, tmp_path: Path
) -> None:
    works(sqlite_workers, "w")
    program = tmp_path / "program"
    shutil.copy(shutil.which("true") or "/bin/true", program)
    with program.open("r+b"):
        job_id = submit(sqlite_workers, str(program))
        busy = sqlite_workers.until(job_id, lambda job: job.not_started > 0)
        assert "Text file busy" in str(busy.reason)

    assert free(sqlite_workers.succeeded(job_id))


def test_one_job_with_a_mistyped_folder_makes_nobody_pause(
    sqlite_workers: FunctionWorkers, tmp_path: Path
) -> None:
    works(sqlite_workers, "w")
    mistyped = submit(sqlite_workers, "true", cwd=tmp_path / "nowhere")

    sqlite_workers.until(mistyped, lambda job: job.not_started > 1)
    sqlite_workers.succeeded(submit(sqlite_workers, "true"))
    typed = sqlite_workers.ended(submit(sqlite_workers, "no-such-program-here"))

    assert typed.error is not None
    assert (typed.state, typed.attempt, typed.error.exit_code) == (State.FAILED, 1, 127)
    assert "This machine cannot run jobs" not in sqlite_workers.worker_log("w")


def test_a_share_that_is_gone_makes_its_worker_pause(sqlite_workers: FunctionWorkers, tmp_path: Path) -> None:
    works(sqlite_workers, "w", "-c", "1")
    share = tmp_path / "share"
    jobs = [submit(sqlite_workers, "true", cwd=share / str(n)) for n in range(6)]

    wait_until(lambda: "This machine cannot run jobs" in sqlite_workers.worker_log("w"))
    for n in range(6):
        (share / str(n)).mkdir(parents=True)

    assert all(free(sqlite_workers.succeeded(job_id)) for job_id in jobs)
    wait_until(lambda: "This machine runs jobs again." in sqlite_workers.worker_log("w"))


def test_a_full_output_store_costs_nothing(sqlite_workers: FunctionWorkers, disk: Path) -> None:
    place = f"file://{disk}"
    with Client(sqlite_workers.url, outputs=place) as client:
        job_id = client.enqueue("leaves", outputs=["model.bin"]).job_id
    filler = disk / "filler"
    filler.write_bytes(bytes(700 * 1024))
    sqlite_workers.start("w", "--outputs", place)

    job = sqlite_workers.until(job_id, lambda job: job.attempt > 1)
    assert (job.state, free(job), job.not_started) == (State.QUEUED, True, 1)
    assert "No space left on device" in str(job.reason)
    wait_until(lambda: "This machine cannot run jobs" in sqlite_workers.worker_log("w"))
    filler.unlink()

    assert free(sqlite_workers.succeeded(job_id))
    wait_until(lambda: "This machine runs jobs again." in sqlite_workers.worker_log("w"))


def test_a_sick_worker_can_be_told_to_leave(sqlite_workers: FunctionWorkers) -> None:
    sick = works(sqlite_workers, "sick")
    take_descriptors(sick)
    submit(sqlite_workers, "true")
    wait_until(lambda: "This machine cannot run jobs" in sqlite_workers.worker_log("sick"))

    os.kill(sick, signal.SIGTERM)

    assert sqlite_workers.processes["sick"].wait(PATIENCE_SECONDS) == 0, sqlite_workers.worker_log("sick")


def test_a_handler_for_which_there_is_no_thread_costs_nothing_and_is_run_once(
    sqlite_workers: FunctionWorkers,
) -> None:
    sqlite_workers.start("w", "-c", "4")
    sqlite_workers.succeeded(sqlite_workers.enqueue("starves"))
    job_id = sqlite_workers.enqueue("plain")

    job = sqlite_workers.until(job_id, lambda job: job.attempt > 2)
    assert (free(job), job.not_started) == (True, 0)
    assert "can't start new thread" in str(job.reason)
    assert "This machine cannot run jobs" in sqlite_workers.worker_log("w")
    (sqlite_workers.folder / "healthy").touch()

    assert free(sqlite_workers.succeeded(job_id))
    assert sqlite_workers.file("plain") == "run;"
    wait_until(lambda: "This machine runs jobs again." in sqlite_workers.worker_log("w"))


def test_a_compensation_for_which_there_is_no_thread_is_tried_again(
    sqlite_workers: FunctionWorkers,
) -> None:
    sqlite_workers.start("w")
    job_id = sqlite_workers.enqueue("fails")
    wait_until(lambda: f"to compensate {job_id}" in sqlite_workers.worker_log("w"))
    (sqlite_workers.folder / "healthy").touch()

    job = sqlite_workers.ended(job_id)

    assert sqlite_workers.file("undone") == "undone"
    assert str(job.reason).startswith("exhausted_retries: ValueError: no good")
    assert sqlite_workers.types(job_id).count("job_compensated") == 1
