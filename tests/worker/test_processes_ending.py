"""Processes that the warden ends, whatever becomes of the worker or of the warden."""

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
from yard import (
    ENV,
    alive,
    childless,
    children_of,
    gone,
    number_in,
    reaped,
    shell,
    use,
    warden_of,
)

from holdfast.worker import processes as processes_module
from holdfast.worker.hold import MARGIN_SECONDS
from holdfast.worker.processes import Child, Exit, Processes


def test_what_a_leader_leaves_running_is_killed_with_it(tmp_path: Path) -> None:
    """Also what it left in the hands of another process of the group."""

    async def work(processes: Processes) -> None:
        trace = tmp_path / "pid"
        nested = f"sh -c 'sleep 60 & echo $! > {trace}; wait' & while [ ! -s {trace} ]; do :; done"
        child = await shell(processes, nested)

        assert await child.wait() == Exit(0)
        assert gone(number_in(trace), seconds=1)

    use(work)


SCATTERED = "timeout 60 sh -c 'timeout 60 sleep 60 & echo $! > {0}; wait' & "


@pytest.mark.parametrize("end", ["by itself", "in time", "by close"])
def test_what_has_left_the_group_but_not_the_session_ends_with_it(tmp_path: Path, end: str) -> None:
    """`timeout` makes a group of its own; so does a shell with job control."""

    async def work(processes: Processes) -> None:
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
            child.hold(0)

        await child.wait()
        assert gone(below, seconds=3)
        if end != "by close":
            await (await shell(processes, ":")).wait()
            assert childless(warden_of(processes))

    use(work)


def test_what_has_a_session_of_its_own_is_left_alone(tmp_path: Path) -> None:
    async def work(processes: Processes) -> None:
        trace = tmp_path / "pid"
        script = f"setsid sh -c 'echo $$ > {trace}; exec sleep 60' & "
        child = await shell(processes, script + f"while [ ! -s {trace} ]; do sleep 0.02; done")
        apart = number_in(trace)

        assert await child.wait() == Exit(0)
        assert await (await shell(processes, "exit 8")).wait() == Exit(8)
        await processes.close()
        assert alive(apart)
        os.kill(apart, signal.SIGKILL)

    use(work)


def test_a_group_dies_when_its_time_is_over() -> None:
    async def work(processes: Processes) -> float:
        start = time.monotonic()
        child = await shell(processes, "sleep 60 & wait", seconds=MARGIN_SECONDS + 0.5)
        assert await child.wait() == Exit(-signal.SIGKILL)
        return time.monotonic() - start

    assert 0.5 <= use(work) < 5


def test_a_group_dies_a_margin_before_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the margin nobody else may begin the same work, and the machine may be slow to kill."""
    monkeypatch.setattr(processes_module, "MARGIN_SECONDS", 39.7)

    async def work(processes: Processes) -> None:
        start = time.monotonic()
        first, second = [await shell(processes, "sleep 60", seconds) for seconds in (40, 60)]
        assert await first.wait() == Exit(-signal.SIGKILL)
        second.hold(40)
        assert await second.wait() == Exit(-signal.SIGKILL)
        assert time.monotonic() - start < 15

    use(work)


def test_a_group_that_is_held_lives_on_and_one_that_is_not_does_not() -> None:
    async def work(processes: Processes) -> None:
        held = await shell(processes, "sleep 60", seconds=MARGIN_SECONDS + 0.4)
        other = await shell(processes, "sleep 60", seconds=MARGIN_SECONDS + 0.4)
        held.hold(60)

        assert await other.wait() == Exit(-signal.SIGKILL)
        await asyncio.sleep(0.3)
        assert alive(held.pid)
        held.hold(0)
        assert await held.wait() == Exit(-signal.SIGKILL)

    use(work)


def test_a_deadline_that_is_years_away_is_fine() -> None:
    async def work(processes: Processes) -> Exit:
        child = await shell(processes, "sleep 0.2; exit 4", seconds=10.0 * 365 * 24 * 3600)
        return await child.wait()

    assert use(work) == Exit(4)


def test_a_signal_reaches_the_whole_group(tmp_path: Path) -> None:
    async def work(processes: Processes) -> None:
        trace, ready = tmp_path / "trace", tmp_path / "ready"
        inner = (
            f"trap 'echo 1 > {trace}; exit' TERM; echo 1 > {ready}; while :; do sleep 0.05; done"
        )
        child = await shell(processes, f"trap 'wait; exit 5' TERM; sh -c \"{inner}\" & wait; wait")
        number_in(ready)

        child.send(signal.SIGTERM)

        assert await child.wait() == Exit(5)
        assert trace.exists()
        child.send(signal.SIGKILL)  # and one that is gone hears nothing

    use(work)


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

        assert all(gone(pid, seconds=3) for pid in group)


def test_a_frozen_workers_processes_die_when_their_time_is_over() -> None:
    worker, group = worker_like(MARGIN_SECONDS + 1.5)
    with worker:
        try:
            worker.send_signal(signal.SIGSTOP)
            assert all(map(alive, group))

            assert all(gone(pid, seconds=5) for pid in group)
            worker.send_signal(signal.SIGCONT)
            assert worker.communicate(timeout=10)[0] == f"{-signal.SIGKILL}\n"
        finally:
            worker.kill()


def test_a_killed_warden_takes_its_processes_along_and_is_replaced(tmp_path: Path) -> None:
    async def work(processes: Processes) -> None:
        trace = tmp_path / "pid"
        child = await shell(processes, f"sleep 60 & echo $! > {trace}; wait")
        below = number_in(trace)
        first = warden_of(processes)

        os.kill(first, signal.SIGKILL)

        assert await child.wait() == Exit(-signal.SIGKILL)
        assert gone(child.pid, seconds=3)
        assert gone(below, seconds=3)
        child.hold(60)
        child.send(signal.SIGTERM)
        assert await (await shell(processes, "exit 6")).wait() == Exit(6)
        assert warden_of(processes) != first
        await asyncio.sleep(0.1)
        assert reaped(first)

    use(work)


def below(pid: int) -> list[int]:
    """The processes under this one by which a worker starts its own: its reaper, and the warden."""
    [reaper] = children_of(pid)
    deadline = time.monotonic() + 10
    while not (wardens := children_of(reaper)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return [reaper, *wardens]


def test_a_killed_warden_and_a_frozen_worker_leave_nothing_alive() -> None:
    worker, group = worker_like(60)
    with worker:
        try:
            worker.send_signal(signal.SIGSTOP)
            _, warden = below(worker.pid)

            os.kill(warden, signal.SIGKILL)

            assert all(map(gone, group))
        finally:
            worker.send_signal(signal.SIGCONT)
            worker.communicate(timeout=10)


SCATTER = """
(trap '' TERM HUP; sh -c 'sleep 60 & echo 1 $!; wait' & timeout 60 sh -c 'echo 2 $$; sleep 60; :' & wait) &
setsid sh -c 'echo 3 $$; sleep 60; :' & wait
"""


@pytest.mark.parametrize("dies", ["warden", "reaper", "neither, but the warden is frozen"])
def test_a_worker_and_one_of_its_guards_killed_at_once_leave_nothing_alive(dies: str) -> None:
    """Groups of their own, sessions of their own, and what ignores signals; a neighbour's live on."""
    neighbour, others = worker_like(60)
    frozen = dies.startswith("neither")
    worker, group = worker_like(60, SCATTER, lines=3, patience=0.2 if frozen else 12.0)
    with worker, neighbour:
        try:
            reaper, warden = below(worker.pid)
            if frozen:
                os.kill(warden, signal.SIGSTOP)
            for pid in {"warden": [warden], "reaper": [reaper]}.get(dies, []):
                os.kill(pid, signal.SIGSTOP)  # so that neither sees the other die
                os.kill(worker.pid, signal.SIGSTOP)
                os.kill(pid, signal.SIGKILL)
            worker.kill()

            _, in_group, _, in_session, _, apart = group
            assert gone(in_session, seconds=30)
            assert gone(in_group, seconds=30)
            assert gone(warden, seconds=30)
            assert gone(reaper, seconds=30)
            if dies == "reaper":  # the warden ends as ever: what has a session of its own is left
                os.kill(apart, signal.SIGKILL)
            assert gone(apart, seconds=30)
            assert all(map(alive, others))
        finally:
            neighbour.kill()


def test_a_warden_that_dies_before_it_answers_is_an_error_of_its_own() -> None:
    async def work(processes: Processes) -> None:
        await processes.open()
        os.kill(warden_of(processes), signal.SIGSTOP)
        spawning = asyncio.create_task(shell(processes, "exit 0"))
        await asyncio.sleep(0.1)

        os.kill(warden_of(processes), signal.SIGKILL)

        with pytest.raises(ChildProcessError):
            await spawning
        assert await (await shell(processes, "exit 6")).wait() == Exit(6)

    use(work)


HUNGRY = "held = b'x' * {} ; import time; time.sleep(60)"


def test_a_group_that_takes_more_memory_than_it_may_is_killed() -> None:
    """Together they have more than either may have alone."""
    two = f"import os; os.fork() or os.setpgid(0, 0); {HUNGRY.format(60_000_000)}"

    async def work(processes: Processes) -> list[Exit]:
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
        return [await child.wait() for child in children]

    assert use(work) == [Exit(-signal.SIGKILL), Exit(-signal.SIGKILL, memory=True)]


def test_a_lock_stays_taken_until_the_processes_of_a_dead_worker_have_ended(tmp_path: Path) -> None:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    other = os.open(tmp_path / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)

    async def work(processes: Processes) -> None:
        child = await shell(processes, "sleep 60")
        os.close(lock)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        await processes.close()
        assert not alive(child.pid)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    use(work, (lock,))
    os.close(other)


def test_a_worker_that_does_not_listen_does_not_hold_up_the_warden() -> None:
    """Megabytes of answers that nobody reads, and one deadline that counts all the same."""

    async def work(processes: Processes) -> None:
        child = await shell(processes, "sleep 60", seconds=MARGIN_SECONDS + 20)
        assert processes._warden is not None
        line = processes._warden._line
        asyncio.get_running_loop().remove_reader(line)
        spawning: list[Awaitable[Child]] = []
        for n in range(1000):
            argv = ["/no/such/program/" + "x" * 3000, str(n)]
            spawning.append(
                asyncio.ensure_future(processes.spawn(argv, env=ENV, fds={}, seconds=60))
            )
        child.hold(MARGIN_SECONDS + 0.5)
        await asyncio.sleep(0.1)  # and the warden is told
        assert gone(child.pid, seconds=10)
        asyncio.get_running_loop().add_reader(line, processes._warden._listen)
        answers = await asyncio.gather(*spawning, return_exceptions=True)
        assert {type(answer) for answer in answers} == {FileNotFoundError}

    use(work)


def test_close_ends_what_is_left_and_the_warden(tmp_path: Path) -> None:
    async def work(processes: Processes) -> None:
        child = await shell(processes, "trap '' TERM; sleep 60 & wait; sleep 60")
        warden = warden_of(processes)

        await processes.close()

        assert await child.wait() == Exit(-signal.SIGKILL)
        assert reaped(warden)
        assert reaped(child.pid)

    use(work)
