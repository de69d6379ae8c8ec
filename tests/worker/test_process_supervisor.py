"""Processes that the supervisor ends, whatever becomes of the worker or of the supervisor."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest

from holdfast.worker import processes as processes_module
from holdfast.worker.held_job import MARGIN_SECONDS
from holdfast.worker.processes import Child, Processes, ProcessExit
from tests.worker.live_processes import (
    ENV,
    alive,
    childless,
    children_of,
    gone,
    number_in,
    open_processes,
    reaped,
    shell,
    supervisor_of,
    wait_until,
)


async def test_what_a_leader_leaves_running_is_killed_with_it(tmp_path: Path, processes: Processes) -> None:
    """Also what it left in the hands of another process of the group."""

    trace = tmp_path / "pid"
    nested = f"sh -c 'sleep 60 & echo $! > {trace}; wait' & while [ ! -s {trace} ]; do :; done"
    child = await shell(processes, nested)

    assert await child.wait() == ProcessExit(0)
    assert gone(number_in(trace))


SCATTERED = "timeout 60 sh -c 'timeout 60 sleep 60 & echo $! > {0}; wait' & "


@pytest.mark.parametrize("end", ["by itself", "in time", "by close"])
async def test_what_has_left_the_group_but_not_the_session_ends_with_it(
    tmp_path: Path, end: str, processes: Processes
) -> None:
    """`timeout` makes a group of its own; so does a shell with job control."""

    trace, go = tmp_path / "pid", tmp_path / "go"
    script = SCATTERED.format(trace) + f"while [ ! -e {go} ]; do sleep 0.02; done"
    child = await shell(processes, script)
    below = number_in(trace)
    assert os.getsid(below) == child.pid != os.getpgid(below)

    if end == "by itself":
        go.touch()
    elif end == "by close":
        await processes.close()
        assert not alive(below)
    elif end == "in time":
        child.set_lifetime(0)

    await child.wait()
    assert gone(below)
    if end != "by close":
        await (await shell(processes, ":")).wait()
        assert childless(supervisor_of(processes))


async def test_what_has_a_session_of_its_own_is_left_alone(tmp_path: Path, processes: Processes) -> None:
    trace = tmp_path / "pid"
    script = f"setsid sh -c 'echo $$ > {trace}; exec sleep 60' & "
    child = await shell(processes, script + f"while [ ! -s {trace} ]; do sleep 0.02; done")
    apart = number_in(trace)

    assert await child.wait() == ProcessExit(0)
    assert await (await shell(processes, "exit 8")).wait() == ProcessExit(8)
    await processes.close()
    assert alive(apart)
    os.kill(apart, signal.SIGKILL)


async def test_a_group_dies_when_its_time_is_over() -> None:
    async with open_processes() as processes:
        start = time.monotonic()
        child = await shell(processes, "sleep 60 & wait", seconds=MARGIN_SECONDS + 0.5)
        assert await child.wait() == ProcessExit(-signal.SIGKILL)
        assert 0.5 <= (time.monotonic() - start) < 30


async def test_a_group_dies_a_margin_before_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch, processes: Processes
) -> None:
    """In the margin no other worker may begin the same work, and the machine may be slow to kill."""
    monkeypatch.setattr(processes_module, "MARGIN_SECONDS", 39.7)

    start = time.monotonic()
    first, second = [await shell(processes, "sleep 60", seconds) for seconds in (40, 60)]
    assert await first.wait() == ProcessExit(-signal.SIGKILL)
    second.set_lifetime(40)
    assert await second.wait() == ProcessExit(-signal.SIGKILL)
    assert time.monotonic() - start < 30


async def test_a_group_that_is_held_lives_on_and_one_that_is_not_does_not(
    processes: Processes,
) -> None:
    held = await shell(processes, "sleep 60", seconds=MARGIN_SECONDS + 0.4)
    other = await shell(processes, "sleep 60", seconds=MARGIN_SECONDS + 0.4)
    held.set_lifetime(60)

    assert await other.wait() == ProcessExit(-signal.SIGKILL)
    await asyncio.sleep(0.3)
    assert alive(held.pid)
    held.set_lifetime(0)
    assert await held.wait() == ProcessExit(-signal.SIGKILL)


async def test_a_deadline_from_before_a_sleep_counts_only_after_a_moment(processes: Processes) -> None:
    """The worker may send it before it has noticed the sleep, and renewed its leases."""
    child = await shell(processes, "sleep 60", seconds=MARGIN_SECONDS + 0.2)
    supervisor = supervisor_of(processes)

    os.kill(supervisor, signal.SIGSTOP)
    await asyncio.sleep(2.0)
    child.set_lifetime(MARGIN_SECONDS - 1)
    os.kill(supervisor, signal.SIGCONT)
    assert await (await shell(processes, "exit 6")).wait() == ProcessExit(6)  # it has read the deadline
    child.set_lifetime(60)
    child.send(signal.SIGTERM)

    assert await child.wait() == ProcessExit(-signal.SIGTERM)


async def test_a_deadline_that_is_years_away_is_fine() -> None:
    async with open_processes() as processes:
        child = await shell(processes, "sleep 0.2; exit 4", seconds=10.0 * 365 * 24 * 3600)
        assert await child.wait() == ProcessExit(4)


async def test_a_signal_reaches_the_whole_group(tmp_path: Path, processes: Processes) -> None:
    trace, ready = tmp_path / "trace", tmp_path / "ready"
    inner = f"trap 'echo 1 > {trace}; exit' TERM; echo 1 > {ready}; while :; do sleep 0.05; done"
    child = await shell(processes, f"trap 'wait; exit 5' TERM; sh -c \"{inner}\" & wait; wait")
    number_in(ready)

    child.send(signal.SIGTERM)

    assert await child.wait() == ProcessExit(5)
    assert trace.exists()
    child.send(signal.SIGKILL)  # and one that is gone hears nothing


WORKER = """
import asyncio, os, sys
from holdfast.system import SystemClock
from holdfast.worker.processes import Processes

async def main():
    processes = Processes(SystemClock(), patience=float(sys.argv[3]))
    child = await processes.spawn(
        ["sh", "-c", sys.argv[2]], env={"PATH": os.environ["PATH"]}, fds={1: 1}, seconds=float(sys.argv[1])
    )
    print((await child.wait()).status, flush=True)
    await processes.close()

asyncio.run(main())
"""


def worker_like(
    seconds: float,
    script: str = "sleep 60 & echo $$ $!; wait",
    lines: int = 1,
    *,
    patience: float = 12.0,
) -> "tuple[subprocess.Popen[str], list[int]]":
    """A process that runs a script; returns it, and the processes that the script names."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(seconds), script, str(patience)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    said = sorted(worker.stdout.readline() for _ in range(lines))
    return worker, [int(word) for line in said for word in line.split()]


def test_a_killed_workers_processes_die_at_once() -> None:
    worker, group = worker_like(60)
    with worker:
        worker.kill()

        assert all(gone(pid) for pid in group)


def test_a_frozen_workers_processes_die_when_their_time_is_over() -> None:
    worker, group = worker_like(MARGIN_SECONDS + 1.5)
    with worker:
        try:
            worker.send_signal(signal.SIGSTOP)
            assert all(map(alive, group))

            assert all(gone(pid) for pid in group)
            worker.send_signal(signal.SIGCONT)
            assert worker.communicate(timeout=120)[0] == f"{-signal.SIGKILL}\n"
        finally:
            worker.kill()


async def test_a_killed_supervisor_takes_its_processes_along_and_is_replaced(
    tmp_path: Path, processes: Processes
) -> None:
    trace = tmp_path / "pid"
    child = await shell(processes, f"sleep 60 & echo $! > {trace}; wait")
    below = number_in(trace)
    first = supervisor_of(processes)

    os.kill(first, signal.SIGKILL)

    assert await child.wait() == ProcessExit(-signal.SIGKILL)
    assert gone(child.pid)
    assert gone(below)
    child.set_lifetime(60)
    child.send(signal.SIGTERM)
    assert await (await shell(processes, "exit 6")).wait() == ProcessExit(6)
    assert supervisor_of(processes) != first
    await asyncio.sleep(0.1)
    assert reaped(first)


def below(pid: int) -> list[int]:
    """The processes under this one by which a worker starts its own: its reaper, and the supervisor."""
    [reaper] = children_of(pid)
    wait_until(lambda: bool(children_of(reaper)))
    return [reaper, *children_of(reaper)]


def test_a_killed_supervisor_and_a_frozen_worker_leave_nothing_alive() -> None:
    worker, group = worker_like(60)
    with worker:
        try:
            worker.send_signal(signal.SIGSTOP)
            _, supervisor = below(worker.pid)

            os.kill(supervisor, signal.SIGKILL)

            assert all(map(gone, group))
        finally:
            worker.send_signal(signal.SIGCONT)
            worker.communicate(timeout=120)


SCATTER = """
(trap '' TERM HUP; sh -c 'sleep 60 & echo 1 $!; wait' & timeout 60 sh -c 'echo 2 $$; sleep 60; :' & wait) &
setsid sh -c 'echo 3 $$; sleep 60; :' & wait
"""


@pytest.mark.parametrize("dies", ["supervisor", "reaper", "neither, but the supervisor is frozen"])
def test_a_worker_and_one_of_its_guards_killed_at_once_leave_nothing_alive(dies: str) -> None:
    """Groups of their own, sessions of their own, and what ignores signals; a neighbour's live on."""
    neighbour, others = worker_like(60)
    frozen = dies.startswith("neither")
    worker, group = worker_like(60, SCATTER, lines=3, patience=0.2 if frozen else 12.0)
    with worker, neighbour:
        try:
            reaper, supervisor = below(worker.pid)
            if frozen:
                os.kill(supervisor, signal.SIGSTOP)
            for pid in {"supervisor": [supervisor], "reaper": [reaper]}.get(dies, []):
                os.kill(pid, signal.SIGSTOP)  # so that neither sees the other die
                os.kill(worker.pid, signal.SIGSTOP)
                os.kill(pid, signal.SIGKILL)
            worker.kill()

            _, in_group, _, in_session, _, apart = group
            assert gone(in_session)
            assert gone(in_group)
            assert gone(supervisor)
            assert gone(reaper)
            if dies == "reaper":  # the supervisor ends as ever: what has a session of its own is left
                os.kill(apart, signal.SIGKILL)
            assert gone(apart)
            assert all(map(alive, others))
        finally:
            neighbour.kill()


async def test_a_supervisor_that_dies_before_it_answers_is_an_error_of_its_own(
    processes: Processes,
) -> None:
    await processes.open()
    os.kill(supervisor_of(processes), signal.SIGSTOP)
    spawning = asyncio.create_task(shell(processes, "exit 0"))
    await asyncio.sleep(0.1)

    os.kill(supervisor_of(processes), signal.SIGKILL)

    with pytest.raises(ChildProcessError):
        await spawning
    assert await (await shell(processes, "exit 6")).wait() == ProcessExit(6)


HUNGRY = "held = b'x' * {} ; import time; time.sleep(60)"


async def test_a_group_that_takes_more_memory_than_it_may_is_killed() -> None:
    """Together they have more than either may have alone."""
    two = f"import os; os.fork() or os.setpgid(0, 0); {HUNGRY.format(60_000_000)}"

    async with open_processes() as processes:
        children = [
            await processes.spawn(
                [sys.executable, "-S", "-c", script],
                env=ENV,
                fds={},
                seconds=MARGIN_SECONDS + 3,
                memory_bytes=100_000_000,
            )
            for script in (HUNGRY.format(60_000_000), two)
        ]
        assert [await child.wait() for child in children] == [
            ProcessExit(-signal.SIGKILL),
            ProcessExit(-signal.SIGKILL, memory=True),
        ]


async def test_a_lock_stays_taken_until_the_processes_of_a_dead_worker_have_ended(
    tmp_path: Path,
) -> None:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    other = os.open(tmp_path / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)

    async with open_processes((lock,)) as processes:
        child = await shell(processes, "sleep 60")
        os.close(lock)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        await processes.close()
        assert not alive(child.pid)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)


async def test_a_worker_that_does_not_listen_does_not_hold_up_the_supervisor(
    processes: Processes,
) -> None:
    """Megabytes of responses that the worker does not read, and a deadline that counts all the same."""

    child = await shell(processes, "sleep 60", seconds=MARGIN_SECONDS + 20)
    assert processes._supervisor is not None
    line = processes._supervisor._socket
    asyncio.get_running_loop().remove_reader(line)
    spawning: list[Awaitable[Child]] = []
    for n in range(1000):
        argv = ["/no/such/program/" + "x" * 3000, str(n)]
        spawning.append(asyncio.ensure_future(processes.spawn(argv, env=ENV, fds={}, seconds=60)))
    child.set_lifetime(MARGIN_SECONDS + 0.5)
    await asyncio.sleep(0.1)  # and the supervisor hears of it
    assert gone(child.pid)
    asyncio.get_running_loop().add_reader(line, processes._supervisor._receive)
    answers = await asyncio.gather(*spawning, return_exceptions=True)
    assert {type(answer) for answer in answers} == {FileNotFoundError}


async def test_close_ends_what_is_left_and_the_supervisor(tmp_path: Path, processes: Processes) -> None:
    child = await shell(processes, "trap '' TERM; sleep 60 & wait; sleep 60")
    supervisor = supervisor_of(processes)

    await processes.close()

    assert await child.wait() == ProcessExit(-signal.SIGKILL)
    assert reaped(supervisor)
    assert reaped(child.pid)
