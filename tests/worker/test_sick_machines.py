"""A machine that cannot run jobs: none of them pays for it, others run them, and it finds back by itself."""

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from floor import Floor, opened, patient

from holdfast import Client
from holdfast.core.command import Command, encode_command
from holdfast.core.job import Job
from holdfast.core.retry import COMMAND_RETRY
from holdfast.core.spec import COMMAND_KIND, Spec
from holdfast.core.state import State
from holdfast.ports import Request

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
def floor(tmp_path: Path) -> Iterator[Floor]:
    with opened("sqlite", tmp_path, APP) as floor:
        yield floor


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte: a real file system, in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=False, capture_output=True)


def submit(floor: Floor, *argv: str, cwd: Path | None = None) -> str:
    """A command that fails for good when it fails once."""
    payload = encode_command(Command(argv=argv, cwd=None if cwd is None else str(cwd)))
    request = Request(spec=Spec(payload=payload, retry=COMMAND_RETRY))
    assert request.spec.kind == COMMAND_KIND
    return floor.use(lambda r: r.enqueue(request, actor="user:ana")).job_id


def works(floor: Floor, name: str, *options: str) -> int:
    """A worker for commands and functions that has run something; returns its process id."""
    process = floor.worker(name, "--commands", *options)
    first = submit(floor, "true")
    floor.succeeded(first)
    return process.pid


def take_descriptors(pid: int) -> tuple[int, int]:
    """From now on the process can open nothing; returns the limits that it had."""
    return resource.prlimit(
        pid, resource.RLIMIT_NOFILE, (3, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1])
    )


def free(job: Job) -> bool:
    return (job.failures, job.crashes) == (0, 0)


def test_a_worker_without_descriptors_gives_all_back_and_another_runs_them(floor: Floor) -> None:
    sick = works(floor, "sick", "-c", "4")
    limits = take_descriptors(sick)
    jobs = [submit(floor, "true") for _ in range(20)]
    jobs += [floor.enqueue("apart") for _ in range(5)]

    patient(lambda: any(floor.job(job_id).attempt > 1 for job_id in jobs))
    given = next(job for job in map(floor.job, jobs) if job.attempt > 1)
    assert free(given)
    assert "This machine cannot run jobs" in floor.said("sick")
    assert "Too many open files" in str(given.reason)
    assert "Too many open files" in floor.use(lambda r: r.why(given.job_id))
    floor.worker("healthy", "--commands", "-c", "4")
    ended = [floor.succeeded(job_id) for job_id in jobs]

    assert [floor.history(job.job_id) for job in ended if not free(job)] == [], floor.everything()
    assert sum(job.not_started for job in ended) == 0
    assert sum(job.attempt for job in ended) < 3 * len(jobs)
    floor.leave("healthy")
    resource.prlimit(sick, resource.RLIMIT_NOFILE, limits)
    floor.succeeded(submit(floor, "true"))
    assert "This machine runs jobs again." in floor.said("sick")
    floor.sound()


def test_a_folder_that_is_not_there_yet_costs_nothing(floor: Floor, tmp_path: Path) -> None:
    works(floor, "w")
    share = tmp_path / "share"
    job_id = submit(floor, "true", cwd=share)

    job = floor.until(job_id, lambda job: job.not_started > 0)
    assert (job.state, free(job)) == (State.QUEUED, True)
    assert f"No such file or directory ({share})" in floor.use(lambda r: r.why(job_id))
    share.mkdir()

    assert free(floor.succeeded(job_id))


def test_a_program_that_is_being_replaced_is_run_when_it_is_whole(
    floor: Floor, tmp_path: Path
) -> None:
    works(floor, "w")
    program = tmp_path / "program"
    shutil.copy(shutil.which("true") or "/bin/true", program)
    with program.open("r+b"):
        job_id = submit(floor, str(program))
        busy = floor.until(job_id, lambda job: job.not_started > 0)
        assert "Text file busy" in str(busy.reason)

    assert free(floor.succeeded(job_id))


def test_one_job_with_a_mistyped_folder_makes_nobody_pause(floor: Floor, tmp_path: Path) -> None:
    works(floor, "w")
    mistyped = submit(floor, "true", cwd=tmp_path / "nowhere")

    floor.until(mistyped, lambda job: job.not_started > 1)
    floor.succeeded(submit(floor, "true"))
    typed = floor.ended(submit(floor, "no-such-program-here"))

    assert typed.error is not None
    assert (typed.state, typed.attempt, typed.error.exit_code) == (State.FAILED, 1, 127)
    assert "This machine cannot run jobs" not in floor.said("w")


def test_a_share_that_is_gone_makes_its_worker_pause(floor: Floor, tmp_path: Path) -> None:
    works(floor, "w", "-c", "1")
    share = tmp_path / "share"
    jobs = [submit(floor, "true", cwd=share / str(n)) for n in range(6)]

    patient(lambda: "This machine cannot run jobs" in floor.said("w"))
    for n in range(6):
        (share / str(n)).mkdir(parents=True)

    assert all(free(floor.succeeded(job_id)) for job_id in jobs)
    assert "This machine runs jobs again." in floor.said("w")


def test_a_full_output_store_costs_nothing(floor: Floor, disk: Path) -> None:
    place = f"file://{disk}"
    with Client(floor.url, outputs=place) as client:
        job_id = client.enqueue("leaves", outputs=["model.bin"]).job_id
    filler = disk / "filler"
    filler.write_bytes(bytes(700 * 1024))
    floor.worker("w", "--outputs", place)

    job = floor.until(job_id, lambda job: job.attempt > 1)
    assert (job.state, free(job), job.not_started) == (State.QUEUED, True, 1)
    assert "No space left on device" in str(job.reason)
    patient(lambda: "This machine cannot run jobs" in floor.said("w"))
    filler.unlink()

    assert free(floor.succeeded(job_id))
    assert "This machine runs jobs again." in floor.said("w")


def test_a_sick_worker_can_be_told_to_leave(floor: Floor) -> None:
    sick = works(floor, "sick")
    take_descriptors(sick)
    submit(floor, "true")
    patient(lambda: "This machine cannot run jobs" in floor.said("sick"))

    os.kill(sick, signal.SIGTERM)

    assert floor.workers["sick"].wait(20) == 0, floor.said("sick")


def test_a_handler_for_which_there_is_no_thread_costs_nothing_and_is_run_once(floor: Floor) -> None:
    floor.worker("w", "-c", "4")
    floor.succeeded(floor.enqueue("starves"))
    job_id = floor.enqueue("plain")

    job = floor.until(job_id, lambda job: job.attempt > 2)
    assert (free(job), job.not_started) == (True, 0)
    assert "can't start new thread" in str(job.reason)
    assert "This machine cannot run jobs" in floor.said("w")
    (floor.folder / "healthy").touch()

    assert free(floor.succeeded(job_id))
    assert floor.file("plain") == "run;"
    assert "This machine runs jobs again." in floor.said("w")


def test_a_compensation_for_which_there_is_no_thread_is_tried_again(floor: Floor) -> None:
    floor.worker("w")
    job_id = floor.enqueue("fails")
    patient(lambda: f"to undo {job_id}" in floor.said("w"))
    (floor.folder / "healthy").touch()

    job = floor.ended(job_id)

    assert floor.file("undone") == "undone"
    assert str(job.reason).startswith("exhausted_retries: no good")
    assert floor.types(job_id).count("job_compensated") == 1
