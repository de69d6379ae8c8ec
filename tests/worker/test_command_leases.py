"""The lease of a command: its worker killed, frozen, cancelled, or told to leave."""

import signal
from pathlib import Path

from holdfast.core.state import State
from holdfast.registry.local import LocalRegistry
from tests.worker.command_workers import SHORT, CommandWorkers
from tests.worker.live_processes import PATIENCE_SECONDS, gone, number_in, stop, wait_until


def started(command_workers: CommandWorkers, job_id: str, pid_file: Path) -> int:
    """Wait for the command to run; returns its process id."""
    command_workers.until(job_id, lambda job: job.state is State.RUNNING and pid_file.exists())
    return number_in(pid_file)


def test_a_killed_workers_command_dies_and_another_worker_recovers_the_job(
    command_workers: CommandWorkers, tmp_path: Path
) -> None:
    """Scenario 10."""
    pid_file = tmp_path / "pid"
    job_id = command_workers.shell(
        f"echo $$ > {pid_file}; test $HOLDFAST_ATTEMPT = 2 || sleep 60", lease=SHORT
    )
    first, second = command_workers.start("w-1"), None
    try:
        pid = started(command_workers, job_id, pid_file)
        first.kill()

        assert gone(pid)
        second = command_workers.start("w-2")
        job = command_workers.until(job_id, lambda job: job.ended)
    finally:
        stop(first, *([second] if second else []))

    assert (job.state, job.attempt, job.crashes) == (State.SUCCEEDED, 2, 1)
    assert job.fencing_token == 2
    assert command_workers.use(lambda r: r.verify()).equal


def test_a_frozen_workers_command_is_killed_before_its_successor_starts(
    command_workers: CommandWorkers, tmp_path: Path
) -> None:
    """Scenario 9: the zombie wakes up, learns that the job is another's, and changes nothing."""
    pid_file = tmp_path / "pid"
    job_id = command_workers.shell(
        f"echo $$ > {pid_file}; test $HOLDFAST_ATTEMPT = 2 || sleep 60", lease=SHORT
    )
    zombie, successor = command_workers.start("w-1"), None
    try:
        pid = started(command_workers, job_id, pid_file)
        zombie.send_signal(signal.SIGSTOP)

        assert gone(pid)
        successor = command_workers.start("w-2")
        job = command_workers.until(job_id, lambda job: job.ended)
        zombie.send_signal(signal.SIGCONT)
        log = command_workers.folder / "w-1.log"
        wait_until(lambda: "no longer ours" in log.read_text())
    finally:
        stop(zombie, *([successor] if successor else []))

    assert (job.state, job.attempt) == (State.SUCCEEDED, 2)
    assert command_workers.job(job_id).version == job.version


def test_a_hard_cancel_kills_the_command_at_once(command_workers: CommandWorkers, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    job_id = command_workers.shell(f"trap '' TERM; echo $$ > {pid_file}; sleep 60 & wait; sleep 60")
    worker = command_workers.start("w-1")
    try:
        pid = started(command_workers, job_id, pid_file)

        job = command_workers.use(lambda r: cancel(r, job_id, hard=True))

        assert job == State.CANCELLED
        assert gone(pid)
    finally:
        stop(worker)


def test_a_soft_cancel_lets_the_command_end_by_itself(
    command_workers: CommandWorkers, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    script = f"trap 'echo saved; exit 0' TERM; echo $$ > {pid_file}; while :; do sleep 0.1; done"
    job_id = command_workers.shell(script)
    worker = command_workers.start("w-1")
    try:
        started(command_workers, job_id, pid_file)

        asked = command_workers.use(lambda r: cancel(r, job_id, hard=False))
        job = command_workers.until(job_id, lambda job: job.ended)
    finally:
        stop(worker)

    assert asked == State.RUNNING
    assert job.state is State.CANCELLED
    assert command_workers.output(job_id, "stdout") == b"saved\n"


async def cancel(registry: LocalRegistry, job_id: str, *, hard: bool) -> State:
    return (await registry.cancel(job_id, actor="user:ana", hard=hard)).state


def test_a_worker_told_to_leave_gives_its_job_back_at_no_cost(
    command_workers: CommandWorkers, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    job_id = command_workers.shell(f"echo $$ > {pid_file}; sleep 60")
    worker = command_workers.start("w-1", "--leave", "0.2s")
    try:
        pid = started(command_workers, job_id, pid_file)
        worker.send_signal(signal.SIGTERM)

        assert worker.wait(PATIENCE_SECONDS) == 0
    finally:
        stop(worker)

    job = command_workers.job(job_id)
    assert (job.state, job.attempt, job.crashes, job.failures) == (State.QUEUED, 2, 0, 0)
    assert job.reason == "the worker is shutting down"
    assert gone(pid)
