"""Processes that the supervisor starts: with what they were given, and nothing else."""

import asyncio
import os
import signal
import statistics
import sys
import termios
import time
from pathlib import Path
from zlib import crc32

import pytest

from holdfast.worker.processes import Processes, ProcessExit
from tests.worker.live_processes import (
    ENV,
    childless,
    open_in,
    open_processes,
    output_of,
    shell,
    supervisor_of,
)


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9), ("kill -15 $$", -15)]
)
async def test_how_a_process_ended_is_known(script: str, status: int) -> None:
    async with open_processes() as processes:
        assert await (await shell(processes, script)).wait() == ProcessExit(status)


async def test_what_cannot_be_started_is_an_error_as_subprocess_raises_it(
    tmp_path: Path, processes: Processes
) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text("not a program")
    nowhere = str(tmp_path / "nowhere")

    for argv, cwd, kind, name in (
        (["no-such-program"], None, FileNotFoundError, "no-such-program"),
        ([nowhere], None, FileNotFoundError, nowhere),
        ([str(plain)], None, PermissionError, str(plain)),
        (["true"], nowhere, FileNotFoundError, nowhere),
        (["true"], str(plain), NotADirectoryError, str(plain)),
        (["true", "x" * 200_000], None, OSError, "true"),
    ):
        with pytest.raises(kind) as ours:
            await processes.spawn(argv, env=ENV, cwd=cwd, fds={}, seconds=60)
        with pytest.raises(kind) as theirs:
            await asyncio.create_subprocess_exec(*argv, env=ENV, cwd=cwd)
        assert (ours.value.errno, ours.value.strerror) == (
            theirs.value.errno,
            theirs.value.strerror,
        )
        assert ours.value.filename == theirs.value.filename == name


async def test_what_makes_no_sense_is_refused_before_it_is_sent(processes: Processes) -> None:
    for argv, env in (
        (["a\0b"], {}),
        (["true"], {"A": "\0"}),
        (["true"], {"A=": ""}),
        ([], {}),
    ):
        with pytest.raises(ValueError, match=r"null|proper"):
            await processes.spawn(argv, env=env, fds={}, seconds=60)
    with pytest.raises(OSError, match="Bad file descriptor"):
        await processes.spawn(["true"], env=ENV, fds={5: 987}, seconds=60)
    with pytest.raises(OSError, match="Argument list too long"):
        await processes.spawn(["true", "x" * 20_000_000], env=ENV, fds={}, seconds=60)
    assert await (await shell(processes, "exit 7")).wait() == ProcessExit(7)


async def test_a_thousand_processes_one_after_the_other_leave_nothing_behind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times: list[float] = []

    async with open_processes() as processes:
        await (await shell(processes, ":")).wait()
        supervisor = supervisor_of(processes)
        before = open_in(supervisor), open_in(os.getpid())
        for _ in range(1000):
            start = time.perf_counter()
            child = await processes.spawn(["true"], env=ENV, fds={1: 1}, seconds=60)
            times.append(time.perf_counter() - start)
            assert await child.wait() == ProcessExit(0)
        with pytest.raises(FileNotFoundError):
            await processes.spawn(["no-such-program"], env=ENV, fds={}, seconds=60)
        await (await shell(processes, ":")).wait()

        assert (open_in(supervisor), open_in(os.getpid())) == before
        assert childless(supervisor)
        assert processes._supervisor is not None
        assert not processes._supervisor._ended
        assert not processes._supervisor._spawning
        assert not processes._supervisor._pids

    with capsys.disabled():
        median, least = statistics.median(times) * 1e3, min(times) * 1e3
        sys.stdout.write(f" [a spawn takes {median:.1f} ms, at best {least:.1f} ms] ")


async def test_many_processes_at_once_are_told_apart() -> None:
    async with open_processes() as processes:
        children = await asyncio.gather(*(shell(processes, f"exit {n}") for n in range(100)))
        assert [(await child.wait()).status for child in children] == list(range(100))


async def test_a_spawn_that_is_cancelled_leaves_no_process(tmp_path: Path, processes: Processes) -> None:
    """The first is on its way by then, the second waits behind a third that fills the line."""

    await processes.open()
    first, second = tmp_path / "first", tmp_path / "second"
    os.kill(supervisor_of(processes), signal.SIGSTOP)
    sent = asyncio.create_task(shell(processes, f"sleep 1; echo 1 > {first}"))
    await asyncio.sleep(0.05)
    large = ["echo", *["x" * 100_000] * 15]
    filling = asyncio.create_task(processes.spawn(large, env=ENV, fds={}, seconds=60))
    await asyncio.sleep(0.05)
    read_end, write_end = os.pipe()
    waiting = asyncio.create_task(shell(processes, f"echo 1 > {second}", fds={1: write_end}, seconds=60))
    await asyncio.sleep(0.05)
    for task in (sent, waiting):
        task.cancel()
    await asyncio.gather(sent, waiting, return_exceptions=True)
    os.close(read_end)
    os.close(write_end)

    os.kill(supervisor_of(processes), signal.SIGCONT)

    assert await (await filling).wait() == ProcessExit(0)
    await asyncio.sleep(1.2)
    assert not first.exists()
    assert not second.exists()
    assert processes._supervisor is not None
    assert not processes._supervisor._ended


LOOK_AT_TERMINAL = """
import os, sys
assert all(os.isatty(n) for n in range(3))
with open("/dev/tty", "wb", buffering=0) as terminal:
    terminal.write(b"mine %d %d" % os.get_terminal_size(terminal.fileno())[::-1])
assert os.tcgetpgrp(0) == os.getpgrp() == os.getsid(0) == os.getpid()
"""


async def test_a_process_may_have_a_controlling_terminal() -> None:
    async with open_processes() as processes:
        own, given = os.openpty()
        termios.tcsetwinsize(given, (33, 99))
        try:
            child = await processes.spawn(
                [sys.executable, "-c", LOOK_AT_TERMINAL],
                env=ENV,
                fds=dict.fromkeys(range(3), given),
                seconds=60,
                terminal=True,
            )
            assert await child.wait() == ProcessExit(0)
            seen = os.read(own, 1000)
        finally:
            os.close(own)
            os.close(given)

    assert seen == b"mine 33 99"


async def test_a_large_environment_and_long_arguments_arrive_whole() -> None:
    env = {**ENV, **{f"N{n}": chr(97 + n) * 100_000 for n in range(10)}, "ODD": "\udcff=é"}
    script = "import os, sys, zlib;print(len(sys.argv[1]), zlib.crc32(os.environb[sys.argv[2].encode()]))"
    argvs = [[sys.executable, "-S", "-c", script, "x" * 130_000, name] for name in env]

    sums = [crc32(os.fsencode(value)) for value in env.values()]
    async with open_processes() as processes:
        assert [await output_of(processes, argv, env=env) for argv in argvs] == [
            b"130000 %d\n" % one for one in sums
        ]


LOOK_AT_SELF = """
import os, signal
fds = [n for n in range(256) if os.path.exists(f"/proc/self/fd/{n}")]
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(fds, os.readlink("/proc/self/fd/0"), os.read(7, 10), os.getcwd())
print(*(int(status[name], 16) for name in ("SigBlk", "SigPnd")), signal.getsignal(signal.SIGHUP))
print(os.getsid(0) == os.getpgrp() == os.getpid())
"""


async def test_a_process_has_the_descriptors_it_was_given_and_nothing_else_of_ours(
    tmp_path: Path,
) -> None:
    """Not the lock either, which the supervisor keeps."""
    read_end, write_end = os.pipe()
    os.write(write_end, b"hello")
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(lock, True)

    argv = [sys.executable, "-I", "-S", "-c", LOOK_AT_SELF]

    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        async with open_processes((lock,)) as processes:
            output = await output_of(processes, argv, cwd=str(tmp_path), fds={7: read_end})
        seen = output.decode().splitlines()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
        for descriptor in (read_end, write_end, lock):
            os.close(descriptor)

    assert seen[0] == f"[0, 1, 2, 7] /dev/null b'hello' {tmp_path}"
    assert seen[1:] == ["0 0 0", "True"]


async def test_descriptors_may_change_places() -> None:
    """Whatever number the supervisor happens to have them under."""
    ends = [os.pipe() for _ in range(8)]
    fds = {9 - n: write_end for n, (_, write_end) in enumerate(ends[:7])}
    script = "".join(f"echo {n} >&{9 - n};" for n in range(7))

    async with open_processes() as processes:
        assert await (await shell(processes, script, fds=fds)).wait() == ProcessExit(0)

    assert [os.read(read_end, 10) for read_end, _ in ends[:7]] == [b"%d\n" % n for n in range(7)]
    for pair in ends:
        for end in pair:
            os.close(end)
