"""A worker and its lease: killed, frozen, cancelled, told to leave."""

import signal
import time
from pathlib import Path

import pytest
from shop import SHORT, Shop, gone, stop

from holdfast.core.state import State
from holdfast.registry.local import LocalRegistry


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def started(shop: Shop, job_id: str, pid_file: Path) -> int:
    """Wait for the command to run; answers its process id."""
    shop.until(job_id, lambda job: job.state is State.RUNNING and pid_file.exists())
    deadline = time.monotonic() + 5
    while not pid_file.read_text().strip() and time.monotonic() < deadline:
        time.sleep(0.01)
    return int(pid_file.read_text())


def test_a_killed_workers_command_dies_and_another_worker_recovers_the_job(
    shop: Shop, tmp_path: Path
) -> None:
    """Scenario 10."""
    pid_file = tmp_path / "pid"
    job_id = shop.shell(
        f"echo $$ > {pid_file}; test $HOLDFAST_ATTEMPT = 2 || sleep 60", lease=SHORT
    )
    first, second = shop.worker("w-1"), None
    try:
        pid = started(shop, job_id, pid_file)
        first.kill()

        assert gone(pid)
        second = shop.worker("w-2")
        job = shop.until(job_id, lambda job: job.ended)
    finally:
        stop(first, *([second] if second else []))

    assert (job.state, job.attempt, job.crashes) == (State.SUCCEEDED, 2, 1)
    assert job.fencing_token == 2
    assert shop.use(lambda r: r.verify()).equal


def test_a_frozen_workers_command_is_killed_before_its_successor_starts(
    shop: Shop, tmp_path: Path
) -> None:
    """Scenario 9: the zombie wakes up, learns that the job is another's, and changes nothing."""
    pid_file = tmp_path / "pid"
    job_id = shop.shell(
        f"echo $$ > {pid_file}; test $HOLDFAST_ATTEMPT = 2 || sleep 60", lease=SHORT
    )
    zombie, successor = shop.worker("w-1"), None
    try:
        pid = started(shop, job_id, pid_file)
        zombie.send_signal(signal.SIGSTOP)

        assert gone(pid)
        successor = shop.worker("w-2")
        job = shop.until(job_id, lambda job: job.ended)
        zombie.send_signal(signal.SIGCONT)
        told = shop.folder / "w-1.log"
        deadline = time.monotonic() + 10
        while "no longer ours" not in told.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        stop(zombie, *([successor] if successor else []))

    assert (job.state, job.attempt) == (State.SUCCEEDED, 2)
    assert shop.job(job_id).version == job.version
    assert "no longer ours" in told.read_text()


def test_a_hard_cancel_kills_the_command_at_once(shop: Shop, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    job_id = shop.shell(f"trap '' TERM; echo $$ > {pid_file}; sleep 60 & wait; sleep 60")
    worker = shop.worker("w-1")
    try:
        pid = started(shop, job_id, pid_file)

        job = shop.use(lambda r: cancel(r, job_id, hard=True))

        assert job == State.CANCELLED
        assert gone(pid, seconds=3)
    finally:
        stop(worker)


def test_a_soft_cancel_lets_the_command_end_by_itself(shop: Shop, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"trap 'echo saved; exit 0' TERM; echo $$ > {pid_file}; while :; do sleep 0.1; done"
    job_id = shop.shell(script)
    worker = shop.worker("w-1")
    try:
        started(shop, job_id, pid_file)

        asked = shop.use(lambda r: cancel(r, job_id, hard=False))
        job = shop.until(job_id, lambda job: job.ended)
    finally:
        stop(worker)

    assert asked == State.RUNNING
    assert job.state is State.CANCELLED
    assert shop.output(job_id, "stdout") == b"saved\n"


async def cancel(registry: LocalRegistry, job_id: str, *, hard: bool) -> State:
    return (await registry.cancel(job_id, actor="user:ana", hard=hard)).state


def test_a_worker_told_to_leave_gives_its_job_back_at_no_cost(shop: Shop, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    job_id = shop.shell(f"echo $$ > {pid_file}; sleep 60")
    worker = shop.worker("w-1", "--leave", "0.2s")
    try:
        pid = started(shop, job_id, pid_file)
        worker.send_signal(signal.SIGTERM)

        assert worker.wait(20) == 0
    finally:
        stop(worker)

    job = shop.job(job_id)
    assert (job.state, job.attempt, job.crashes, job.failures) == (State.QUEUED, 2, 0, 0)
    assert job.reason == "the worker is shutting down"
    assert gone(pid)
