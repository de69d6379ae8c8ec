"""A worker, the demo, the SDK and a server on a system that has nothing of Linux beside POSIX."""

import json
import os
import re
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.worker.held_job import MARGIN_SECONDS
from tests import ROOT
from tests.macos.hidden_system import HiddenSystem
from tests.macos.linux_only import LINUX_ONLY
from tests.worker.live_processes import alive, children_of, gone, wait_until
from tests.worker.test_process_supervisor import WORKER

WITH_A_WAY_BESIDE = {
    "/proc/sys/kernel/random/boot_id",  # system.boot_id: sysctl kern.bootsessionuuid
    "/proc/self/mountinfo",  # stores/sqlite/filesystem: unknown, and doctor says so
    "/proc/self/stat",  # worker/process_table: ps
    "/proc",  # worker/reaper: its list of groups
    "/proc/self/task/N/children",  # worker/process_table: sessions, by ps
    "/proc/self/fd/N",  # outputs/files: the name, compared with the open file
    "/proc/N/statm",  # system.resident_bytes: ps
    "inotify_init1",  # stores/sqlite/wakeup: asks every 4 ms
    "TIOCOUTQ",  # server/connection: SO_NWRITE
    "RLIMIT_NOFILE",  # server/listener: as many as macOS allows
    "F_FULLFSYNC",
}
"""What is asked for on such a system, and where its portable way is."""

PROBE = """
import ctypes, os, select, socket, sys, time
assert sys.platform == "darwin"
for module, name in {names!r}:
    assert not hasattr(sys.modules[module], name), name
for call in (os.listdir, os.stat, os.readlink, open):
    try:
        call("/proc/self")
    except FileNotFoundError:
        continue
    raise AssertionError(call)
for name in ("prctl", "inotify_init1", "pidfd_open"):
    assert not hasattr(ctypes.CDLL(None), name), name
try:
    socket.socket(socket.AF_UNIX).bind("/tmp/" + 100 * "x")
except OSError as error:
    assert "too long" in str(error)
"""


@pytest.fixture
def hidden(tmp_path: Path) -> Iterator[HiddenSystem]:
    system = HiddenSystem(tmp_path)
    yield system
    assert system.tried() <= WITH_A_WAY_BESIDE


def test_what_is_hidden_is_gone(tmp_path: Path) -> None:
    names = [("select", "epoll"), ("os", "pidfd_open"), ("time", "CLOCK_BOOTTIME"), ("os", "waitid")]

    HiddenSystem(tmp_path).run("-c", PROBE.format(names=[*names, ("socket", "MSG_CMSG_CLOEXEC")]))


def test_the_demo_kills_a_worker_and_proves_every_record(hidden: HiddenSystem) -> None:
    said = hidden.holdfast("demo", "--keep", str(hidden.folder / "demo"))

    assert "killed" in said or "kill -9" in said


def test_a_script_enqueues_and_a_worker_runs_functions_commands_and_outputs(hidden: HiddenSystem) -> None:
    add, later, apart, train, hungry, command = json.loads(hidden.run("-m", "tests.macos.shop"))

    assert [job["state"] for job in (add, later, apart, train, command)] == ["succeeded"] * 5
    assert (add["result"], later["result"]) == (5, 7)
    assert hungry["state"] != "succeeded"
    assert "memory" in hungry["error"]
    assert (add["output"][:9], command["output"]) == ("adding in", "from a command\n")
    assert list(hidden.folder.rglob("model.bin"))
    assert {"F_FULLFSYNC", "inotify_init1", "/proc/self/fd/N"} <= hidden.tried()


FROM_PYTHON = """
import holdfast
from tests.sdk import module_jobs
app = holdfast.App()

@app.job
def add(one: int, other: int) -> int:
    return one + other

if __name__ == "__main__":
    handle = add.enqueue(2, 3)
    app.work(drain=True)
    with module_jobs.app.worker():
        others = {module_jobs.where.enqueue().result(60), module_jobs.apart.enqueue().result(60)}
        print(handle.result(), len(others))
"""


def test_a_script_and_its_modules_are_run_by_a_worker_from_python(hidden: HiddenSystem) -> None:
    assert hidden.run("-c", FROM_PYTHON) == "5 2\n"


def test_the_clock_of_the_store_goes_on_through_sleep_and_steps(hidden: HiddenSystem) -> None:
    hidden.holdfast("submit", "--", "true")

    store = sqlite3.connect(hidden.folder / "jobs.db")
    [(anchor,)] = store.execute("SELECT value FROM meta WHERE name = 'clock_anchor'")
    store.close()

    assert str(anchor).startswith("5E551011-B007-")
    assert "setting that clock moves no lease" in " ".join(hidden.holdfast("doctor").split())


@pytest.mark.parametrize("dies", ["worker", "worker and supervisor"])
def test_what_a_killed_worker_had_started_dies_with_it(hidden: HiddenSystem, dies: str) -> None:
    """Where no process is given the orphans of another, and none is killed by the kernel with its parent."""
    script = "sleep 60 & echo $$ $!; wait"
    with hidden.start("-c", WORKER, "60", script, "12") as worker:
        assert worker.stdout is not None
        group = [int(word) for word in worker.stdout.readline().split()]
        [reaper] = children_of(worker.pid)
        wait_until(lambda: bool(children_of(reaper)))
        [supervisor] = children_of(reaper)
        assert all(map(alive, group))
        if dies != "worker":
            os.kill(supervisor, signal.SIGSTOP)  # so that it does not see the worker die
            os.kill(worker.pid, signal.SIGSTOP)
            os.kill(supervisor, signal.SIGKILL)
        worker.kill()

        assert all(map(gone, [*group, supervisor, reaper]))


def test_what_left_its_group_ends_with_its_session_and_a_frozen_worker_loses_all(
    hidden: HiddenSystem,
) -> None:
    script = "timeout 60 sleep 60 & echo $$ $!; wait"
    with hidden.start("-c", WORKER, str(MARGIN_SECONDS + 1.5), script, "12") as worker:
        assert worker.stdout is not None
        group = [int(word) for word in worker.stdout.readline().split()]
        worker.send_signal(signal.SIGSTOP)
        try:
            assert all(map(gone, group))
        finally:
            worker.send_signal(signal.SIGCONT)
            assert worker.communicate(timeout=120)[0] == f"{-signal.SIGKILL}\n"


def test_a_server_serves_a_worker_and_a_client(hidden: HiddenSystem) -> None:
    server = hidden.start("-m", "holdfast", "serve", "--listen", "127.0.0.1:0")
    with server:
        try:
            assert server.stderr is not None
            url = next(
                found[1] for line in server.stderr if (found := re.search(r"(http://\S+) serves ", line))
            )
            there = ("--store", url)
            job = hidden.holdfast("submit", *there, "--", "echo", "by a server").strip()

            hidden.holdfast("worker", *there, "--drain")

            assert hidden.holdfast("logs", *there, job) == "by a server\n"
        finally:
            server.terminate()
            server.communicate(timeout=60)


def test_every_name_that_only_linux_has_is_one_with_a_portable_way_beside_it() -> None:
    """A new one belongs beside a portable way, in the module named in docs/operations.md, and then here."""
    pattern = re.compile(LINUX_ONLY)
    found: dict[str, set[str]] = {}
    for file in sorted((ROOT / "src/holdfast").rglob("*.py")):
        for word in pattern.findall(file.read_text()):
            found.setdefault(str(file.relative_to(ROOT / "src/holdfast")), set()).add(word)

    assert found == {
        "outputs/files.py": {"/proc"},  # by name, compared with the open file
        "server/connection.py": {"TIOCOUTQ"},  # SO_NWRITE
        "stores/sqlite/filesystem.py": {"/proc"},  # unknown, and doctor says so
        "stores/sqlite/wakeup.py": {"inotify"},  # asks every 4 ms
        # sysctl, CLOCK_MONOTONIC_RAW, ps, all cores
        "system.py": {"/proc", "CLOCK_BOOTTIME", "sched_getaffinity"},
        "worker/process_supervisor.py": {"MSG_CMSG_CLOEXEC", "prctl"},  # by hand; the reaper's list of groups
        "worker/process_table.py": {"/proc", "waitid"},  # ps; waitpid for each child
        "worker/reaper.py": {"/proc", "POLLRDHUP", "prctl"},  # its list of groups; POLLHUP
    }
