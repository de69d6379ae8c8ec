"""The processes of this machine: by /proc, and on systems without it, such as macOS, as `ps` lists them.

The process supervisor runs this file by its path. It imports nothing of holdfast.
"""

import errno
import os
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

HAS_PROC = os.path.exists("/proc/self/stat")
MEMORY_SECONDS = 0.25 if HAS_PROC else 1.0
"""How often memory is measured. Without /proc, each time takes another process."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PS = ("ps", "-A", "-o", "pid=,rss=")
PS_SECONDS_MAX = 5.0


def ended_children(known: dict[int, int]) -> "Iterator[tuple[int, int | None]]":
    """Yield the known children that have ended: with None if they are not reaped yet, else with their status.
    Others, which were adopted, are reaped here. macOS can wait for a child without reaping it only since
    Python 3.13; there none are adopted."""
    if hasattr(os, "waitid"):
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid in known:
                yield found.si_pid, None
            else:
                os.waitpid(found.si_pid, 0)
        return
    for pid in list(known):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            yield pid, status


def orphans(known: dict[int, int]) -> list[int]:
    """Return the children of this process that it has not started. Without /proc, return all processes: one
    whose parent has ended has another, and only its session says whose it was."""
    with suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
        return [pid for pid in map(int, file.read().split()) if pid not in known]
    return [] if HAS_PROC else [pid for pid, _, _ in listed_processes()]


def memory_in_use(sessions: set[int]) -> dict[int, int]:
    """Return the bytes of memory that each session uses."""
    in_use = dict.fromkeys(sessions, 0)
    for name in os.listdir("/proc") if HAS_PROC else ():
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                fields = file.read(4096).rpartition(b")")[2].split()
                if (session := int(fields[3])) in in_use:
                    in_use[session] += int(fields[21]) * PAGE_BYTES
    for _, session, used in () if HAS_PROC else listed_processes():
        if session in in_use:
            in_use[session] += used
    return in_use


def listed_processes() -> list[tuple[int, int, int]]:
    """Return the id, the session and the bytes of memory of every process; none where there is no `ps`."""
    import subprocess  # a megabyte, which nobody needs where there is /proc

    try:
        listed = subprocess.run(  # noqa: S603  # no text of a job
            PS, stdin=subprocess.DEVNULL, capture_output=True, timeout=PS_SECONDS_MAX, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    found = []
    for line in listed.stdout.splitlines():
        pid, kibibytes = map(int, line.split())
        with suppress(OSError):  # it has ended meanwhile
            found.append((pid, os.getsid(pid), kibibytes * 1024))
    return found


def execute(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    """Find the program as a shell does. Raise the error that says most about why it could not be run."""
    program = argv[0]
    if b"/" in program:
        os.execve(program, argv, env)  # noqa: S606  # what it is for
    worst: OSError = FileNotFoundError(errno.ENOENT, "")
    for folder in env.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        try:
            os.execve(os.path.join(folder, program), argv, env)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            worst = error
    raise worst
