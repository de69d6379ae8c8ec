"""A worker runs commands: their output, their ending, their environment."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import click
import pytest

from holdfast.cli.sizes import Size
from holdfast.core.catalogue import ReasonCode, WorkerEventType
from holdfast.core.process_spec import ProcessSpec, decode_process_spec, encode_process_spec
from holdfast.core.retry import COMMAND_RETRY, Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.fencing import parse
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.worker.failures import DRAIN_TRIES
from tests.worker.command_workers import CommandWorkers
from tests.worker.live_processes import gone


def test_output_is_stored_with_stdout_and_stderr_apart(command_workers: CommandWorkers) -> None:
    job_id = command_workers.shell("echo to-out; echo to-err >&2; echo more")

    command_workers.drain()

    job = command_workers.job(job_id)
    assert job.state is State.SUCCEEDED
    assert job.result == {"exit_code": 0}
    assert command_workers.output(job_id, "stdout") == b"to-out\nmore\n"
    assert command_workers.output(job_id, "stderr") == b"to-err\n"
    ours = [e.event_type for e in command_workers.log(job_id) if e.sequence is None]
    assert ours == ["job_queued", "job_claimed", "job_started", "job_succeeded"]


def test_a_command_that_exits_with_three_has_failed_with_three(
    command_workers: CommandWorkers,
) -> None:
    """Scenario 3."""
    job_id = command_workers.shell("exit 3")

    command_workers.drain()

    job = command_workers.job(job_id)
    assert job.state is State.FAILED
    assert job.error is not None
    assert job.error.exit_code == 3
    assert "exited with 3" in (job.reason or "")
    [end] = [e for e in command_workers.log(job_id) if e.event_type == WorkerEventType.PROCESS_END]
    assert end.attributes["exit_code"] == 3


def test_a_command_that_was_killed_counts_as_a_crash_and_is_tried_again(
    command_workers: CommandWorkers,
) -> None:
    job_id = command_workers.shell("kill -9 $$", retry=Retry(max_failures=1, max_crashes=2))

    command_workers.drain()

    job = command_workers.job(job_id)
    assert (job.state, job.attempt, job.crashes, job.failures) == (State.DEAD_LETTERED, 2, 2, 0)
    assert job.error is not None
    assert job.error.exit_code == 137


def test_a_command_that_cannot_be_started_says_why(command_workers: CommandWorkers, tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("not a program")
    missing = command_workers.submit("no-such-program-here")
    forbidden = command_workers.submit(str(tmp_path / "plain.txt"))

    command_workers.drain()

    for job_id, code, words in (
        (missing, 127, "no-such-program-here could not be started: No such file"),
        (forbidden, 126, "Permission denied"),
    ):
        job = command_workers.job(job_id)
        assert job.state is State.FAILED
        assert job.error is not None
        assert job.error.exit_code == code
        assert words in job.error.message


def test_a_worker_that_drains_does_not_wait_for_a_folder_for_ever(
    command_workers: CommandWorkers,
) -> None:
    job_id = command_workers.submit("true", cwd="/no/such/folder")

    command_workers.drain()

    job = command_workers.job(job_id)
    assert (job.state, job.not_started, job.failures) == (State.QUEUED, DRAIN_TRIES, 0)
    assert job.reason == "w-1: true could not be started: No such file or directory (/no/such/folder)."


def test_a_timeout_kills_the_whole_process_group(command_workers: CommandWorkers, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {pid_file}; wait"
    job_id = command_workers.shell(script, timeout=timedelta(seconds=0.5))

    command_workers.drain()

    job = command_workers.job(job_id)
    assert job.state is State.FAILED
    assert job.error is not None
    assert (job.error.code, job.error.exit_code) == ("Timeout", 124)
    assert job.error.reason_code is ReasonCode.TIMEOUT
    assert gone(int(pid_file.read_text()))


def test_what_a_command_leaves_running_is_killed_with_it(
    command_workers: CommandWorkers, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    job_id = command_workers.shell(f"sleep 60 & echo $! > {pid_file}")

    command_workers.drain()

    assert command_workers.job(job_id).state is State.SUCCEEDED
    assert gone(int(pid_file.read_text()))


def test_a_job_sees_little_of_the_workers_environment(command_workers: CommandWorkers) -> None:
    own = {**os.environ, "WORKER_ONLY": "private", "LC_ALL": "C", "GPU": "7"}
    job_id = command_workers.submit("env", env={"MINE": "yes"})

    command_workers.drain(own=own, passed=("GPU",))

    seen = dict(line.split("=", 1) for line in command_workers.output(job_id, "stdout").decode().splitlines())
    assert seen["MINE"] == "yes"
    assert seen["GPU"] == "7"
    assert seen["HOLDFAST_JOB_ID"] == job_id
    fence = parse(seen["HOLDFAST_FENCE"])
    assert (fence.token, fence.job_id, fence.resource) == (1, job_id, job_id)
    assert seen["HOLDFAST_FENCING_TOKEN"] == seen["HOLDFAST_ATTEMPT"] == "1"
    assert "WORKER_ONLY" not in seen


def test_a_secret_reaches_the_command_and_nothing_else(command_workers: CommandWorkers) -> None:
    secret = "s3cr3t-c4n4ry-value"
    script = 'test "$TOKEN" = "s3cr3t-c4n4ry"-value && echo "it is $TOKEN"; echo "$TOKEN" >&2'
    job_id = command_workers.shell(script, secrets=("TOKEN",))

    command_workers.drain(own={**os.environ, "TOKEN": secret})

    assert command_workers.job(job_id).state is State.SUCCEEDED
    assert command_workers.output(job_id, "stdout") == b"it is ***\n"
    assert command_workers.output(job_id, "stderr") == b"***\n"
    for path in command_workers.folder.iterdir():
        assert secret.encode() not in path.read_bytes()


def test_a_secret_the_worker_does_not_have_fails_the_job_by_name(
    command_workers: CommandWorkers,
) -> None:
    job_id = command_workers.submit("true", secrets=("API_KEY",))

    command_workers.drain(own={"PATH": os.environ["PATH"]})

    job = command_workers.job(job_id)
    assert job.state is State.FAILED
    assert "API_KEY" in (job.reason or "")


def test_a_payload_that_is_no_command_is_refused_and_the_worker_goes_on(
    command_workers: CommandWorkers,
) -> None:
    async def enqueue(registry: LocalRegistry) -> str:
        return (await registry.enqueue(JobRequest(spec=Spec()), actor="user:ana")).job_id

    broken = command_workers.use(enqueue)
    fine = command_workers.submit("true")

    command_workers.drain()

    job = command_workers.job(broken)
    assert job.state is State.DEAD_LETTERED
    assert job.dead_letter is not None
    assert job.dead_letter.reason_code is ReasonCode.PARSE_ERROR
    assert command_workers.job(fine).state is State.SUCCEEDED


def test_megabytes_of_output_arrive_whole_and_in_order(command_workers: CommandWorkers) -> None:
    job_id = command_workers.submit(
        "sh", "-c", "i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i+1)); done"
    )

    command_workers.drain()

    lines = command_workers.output(job_id, "stdout").decode().splitlines()
    assert lines == [f"line {n}" for n in range(40_000)]
    sequences = [e.sequence for e in command_workers.log(job_id) if e.sequence is not None]
    assert sequences == list(range(1, len(sequences) + 1))


def test_bytes_are_stored_exactly_as_written(command_workers: CommandWorkers) -> None:
    job_id = command_workers.submit("printf", r"\000\377\033]0;title\007\r\n")

    command_workers.drain()

    assert command_workers.output(job_id, "stdout") == b"\x00\xff\x1b]0;title\x07\r\n"


def test_a_busy_command_keeps_its_lease_for_as_long_as_it_runs(
    command_workers: CommandWorkers,
) -> None:
    """Four processes that never yield, two leases and a half, beside the worker on two cores."""
    script = "end=$(($(date +%s) + 5)); while [ $(date +%s) -lt $end ]; do :; done"
    jobs = [command_workers.shell(script, lease=timedelta(seconds=2)) for _ in range(4)]

    command_workers.drain(slots=4)

    for job_id in jobs:
        job = command_workers.job(job_id)
        assert (job.state, job.attempt, job.crashes) == (State.SUCCEEDED, 1, 0)
        assert job.heartbeats >= 3


def test_a_grandchild_in_a_session_of_its_own_holds_up_nobody(
    command_workers: CommandWorkers,
) -> None:
    job_id = command_workers.shell("setsid sleep 20 & echo started")

    command_workers.drain()

    assert command_workers.job(job_id).state is State.SUCCEEDED
    assert command_workers.output(job_id, "stdout") == b"started\n"


def test_a_worker_that_drains_leaves_what_it_cannot_run(command_workers: CommandWorkers) -> None:
    async def enqueue(registry: LocalRegistry) -> None:
        for spec in (Spec(kind="resize"), Spec(executor="k8s"), Spec(region="us", queue="default")):
            await registry.enqueue(JobRequest(spec=spec), actor="user:ana")

    command_workers.use(enqueue)
    mine = command_workers.submit("true")

    command_workers.drain(region="eu")

    assert command_workers.job(mine).state is State.SUCCEEDED


def submit(command_workers: CommandWorkers, command: ProcessSpec, retry: Retry = COMMAND_RETRY) -> str:
    async def enqueue(registry: LocalRegistry) -> str:
        spec = Spec(payload=encode_process_spec(command), retry=retry)
        return (await registry.enqueue(JobRequest(spec=spec), actor="user:ana")).job_id

    return command_workers.use(enqueue)


LOOK_AT_TERMINAL = """
import os, sys
assert all(os.isatty(n) for n in range(3))
print("%d rows, %d columns" % os.get_terminal_size()[::-1], os.environ["TERM"])
print("error", file=sys.stderr)
"""


def test_a_command_may_have_a_terminal_of_its_own(command_workers: CommandWorkers) -> None:
    program = (sys.executable, "-c", LOOK_AT_TERMINAL)
    default = submit(command_workers, ProcessSpec(argv=program, pty=True))
    large = submit(
        command_workers,
        ProcessSpec(argv=program, pty=True, rows=50, columns=200, env={"TERM": "vt100"}),
    )

    command_workers.drain(own={"PATH": os.environ["PATH"], "TERM": "dumb"})

    for job_id, words, rows, columns in (
        (default, b"24 rows, 80 columns xterm-256color\r\nerror\r\n", 24, 80),
        (large, b"50 rows, 200 columns vt100\r\nerror\r\n", 50, 200),
    ):
        assert command_workers.job(job_id).state is State.SUCCEEDED
        assert command_workers.output(job_id, "terminal") == words
        log = [event for event in command_workers.log(job_id) if event.sequence is not None]
        assert [event.event_type for event in log[:2]] == ["process_start", "terminal_resize"]
        assert log[1].attributes == {"rows": rows, "columns": columns}
        assert not any(event.event_type == "process_error" for event in log)


def test_megabytes_on_a_terminal_arrive_whole(command_workers: CommandWorkers) -> None:
    script = "i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i+1)); done"
    job_id = submit(command_workers, ProcessSpec(argv=("sh", "-c", script), pty=True))

    command_workers.drain()

    lines = command_workers.output(job_id, "terminal").decode().split("\r\n")
    assert lines == [*(f"line {n}" for n in range(40_000)), ""]


def test_secrets_are_masked_on_a_terminal_too_whatever_lines_they_have(
    command_workers: CommandWorkers,
) -> None:
    secret = "first-line\nsecond-line"
    command = ProcessSpec(argv=("sh", "-c", 'echo "it is $TOKEN."'), secrets=("TOKEN",), pty=True)
    job_id = submit(command_workers, command)

    command_workers.drain(own={**os.environ, "TOKEN": secret})

    assert command_workers.output(job_id, "terminal") == b"it is ***.\r\n"


def test_a_command_that_uses_more_memory_than_it_may_is_killed_and_says_so(
    command_workers: CommandWorkers,
) -> None:
    script = "held = b'x' * 100_000_000; import time; time.sleep(30)"
    argv = (sys.executable, "-S", "-c", script)
    once = Retry(max_failures=1, max_crashes=1)
    much = submit(command_workers, ProcessSpec(argv=argv, memory_bytes=64_000_000), once)
    little = submit(command_workers, ProcessSpec(argv=("true",), memory_bytes=64_000_000), once)

    command_workers.drain()

    error = command_workers.job(much).error
    assert error is not None
    assert (error.crash, error.exit_code) == (True, 137)
    assert error.message == "It used more memory than its limit of 64 MB."
    assert command_workers.job(little).state is State.SUCCEEDED


def test_a_terminal_and_a_limit_can_be_asked_for_on_the_command_line(
    command_workers: CommandWorkers,
) -> None:
    holdfast = (sys.executable, "-m", "holdfast")
    store = ("--store", command_workers.url)
    asked = subprocess.run(
        [*holdfast, "submit", *store, "--pty", "--memory", "1.5GB", "--", "true"],
        capture_output=True,
        text=True,
        check=True,
    )
    ran = subprocess.run(
        [*holdfast, "run", *store, "--pty", "--memory", "512MiB", "--", "tty"],
        capture_output=True,
        check=True,
        env={**os.environ, "LINES": "30", "COLUMNS": "90"},
    )

    command = decode_process_spec(command_workers.job(asked.stdout.strip()).spec.payload)
    assert command == ProcessSpec(argv=("true",), cwd=command.cwd, pty=True, memory_bytes=1_500_000_000)
    assert ran.stdout.startswith(b"/dev/pts/")


@pytest.mark.parametrize(
    ("text", "size"),
    [("100000", 100_000), ("512MB", 512_000_000), ("1.5 gb", 1_500_000_000), ("2GiB", 2 << 30)],
)
def test_sizes_are_written_as_people_write_them(text: str, size: int) -> None:
    assert Size().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1.5.2GB", "12 bytes", "9" * 40])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a size"):
        Size().convert(text, None, None)
