"""The process supervisor: a small process beside the worker that starts and ends all processes for it.

It outlives a worker that is killed, and its deadlines count while a worker is frozen: a group whose
deadline was not moved in time is killed, and all groups are killed when the worker is gone. It is started
by its path, without site-packages, so that it is small and starts at once; it imports nothing of holdfast
and has one thread.

A frame is a length and fields separated by NUL, which no field can contain. The worker sends

    spawn NUMBER DEADLINE TERMINAL MEMORY CWD TARGETS COUNT ARGUMENT... NAME=VALUE...
    deadline NUMBER DEADLINE
    signal NUMBER SIGNAL

and the descriptors of a spawn, one for each target, with the first byte of its frame. Deadlines are on the
monotonic clock of the machine. The supervisor sends

    born NUMBER PID
    spawned NUMBER
    failed NUMBER ERRNO FILENAME
    ended NUMBER STATUS MEMORY
"""

import array
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
import types
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` alone would be a megabyte
    from collections.abc import Iterator
    from typing import NoReturn

    from holdfast.worker import process_table
else:  # as it is run by its path, it finds its neighbour by that
    _file = os.path.join(os.path.dirname(os.path.abspath(__file__)), "process_table.py")
    with open(_file, "rb") as _code:
        exec(compile(_code.read(), _file, "exec"), vars(process_table := types.ModuleType("process_table")))  # noqa: S102

FRAME_BYTES_MAX = 16 * 1024 * 1024
DESCRIPTORS_MAX = 253  # of one message: a limit of Linux
READ_BYTES = 64 * 1024
POLL_SECONDS = 0.005
POLL_SECONDS_MAX = 3600.0  # the system counts milliseconds in 31 bits
LINGER_SECONDS = 10.0
ASLEEP_SECONDS = 0.5
RENEW_SECONDS = 3.0
SET_DEATH_SIGNAL = 1
SET_CHILD_SUBREAPER = 36
NOT_INHERITED = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_LENGTH = struct.Struct(">I")
_changed: list[int] = []  # signals that a child must have with their default action again
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def encode(*fields: object) -> bytes:
    """One frame."""
    body = b"\0".join(f if isinstance(f, bytes) else str(f).encode() for f in fields)
    return _LENGTH.pack(len(body)) + body


def split_frames(pending: bytearray) -> "Iterator[list[bytes]]":
    """Take each whole frame off the front; yield its fields."""
    while len(pending) >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(pending)
        if length > FRAME_BYTES_MAX:
            raise ValueError(f"a frame of {length} bytes")
        end = _LENGTH.size + length
        if len(pending) < end:
            return
        fields = bytes(pending[_LENGTH.size : end]).split(b"\0")
        del pending[:end]
        yield fields


class SupervisedProcess:
    """A process that the supervisor has started, and the group that it leads."""

    __slots__ = ("deadline", "errors", "failed", "memory", "memory_max", "names", "number", "pid")

    def __init__(self, number: int, pid: int, errors: int, names: tuple[bytes, bytes]) -> None:
        self.number = number
        self.pid = pid
        self.errors: int | None = errors
        self.names = names
        self.failed = False
        self.memory = False
        self.memory_max = 0
        self.deadline = 0.0

    def send(self, number: int) -> None:
        """Signal the whole group. It is not reaped yet, so the number is still its own."""
        with suppress(ProcessLookupError, PermissionError):
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:  # it leads no group yet
                os.kill(self.pid, number)

    def end_group(self) -> None:
        """Kill what is left of the group of a leader that has ended. A group that has processes keeps its
        number, even when its leader is reaped."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


class ProcessSupervisor:
    """Starts processes, and kills each group when its leader has ended or its deadline has passed."""

    def __init__(self, worker: socket.socket, wakeup: int, groups: int | None = None) -> None:
        self._socket = worker
        self._wakeup = wakeup
        self._groups = groups
        self._children: dict[int, SupervisedProcess] = {}
        self._numbers: dict[int, int] = {}
        self._starting: dict[int, SupervisedProcess] = {}
        self._ended: set[int] = set()
        self._incoming = bytearray()
        self._descriptors: list[list[int]] = []
        self._outgoing = bytearray()
        self._measure_at = 0.0
        self._awake_at = time.monotonic()
        self._forgiven_until = 0.0
        self._poll = select.poll()
        self._poll.register(worker, select.POLLIN)
        self._poll.register(wakeup, select.POLLIN)

    def run(self) -> None:
        """Serve until the worker is gone; then kill all processes, and wait for their end."""
        while True:
            wait = self._poll_milliseconds()
            found = self._poll.poll(wait)
            self._forgive_sleep(wait)
            for descriptor, _ in found:
                if descriptor == self._wakeup:
                    os.read(self._wakeup, READ_BYTES)
                elif child := self._starting.get(descriptor):
                    self._started(child)
                elif descriptor == self._socket.fileno() and not self._receive():
                    self._shut_down()
                    return
            self._reap()
            self._enforce_limits()
            self._send()

    def _poll_milliseconds(self) -> float | None:
        """Return the milliseconds until the next deadline or memory check."""
        children = self._children.values()
        due = min((child.deadline for child in children), default=None)
        if due is None:
            return None
        if any(child.memory_max for child in children):
            due = min(due, self._measure_at)
        return min(max(0.0, due - time.monotonic()), POLL_SECONDS_MAX) * 1000

    def _forgive_sleep(self, meant_milliseconds: float | None) -> None:
        """After a sleep of the machine the worker has a moment to renew its leases before deadlines count:
        those that are known, and those that it sends before it has noticed the sleep itself."""
        now = time.monotonic()
        awake, self._awake_at = now - self._awake_at, now
        if meant_milliseconds is None:
            return
        late = awake - meant_milliseconds / 1000
        if late >= ASLEEP_SECONDS:
            self._forgiven_until = now + min(late, RENEW_SECONDS)
            for child in self._children.values():
                child.deadline = max(child.deadline, self._forgiven_until)

    def _receive(self) -> bool:
        """Read what the worker sends and execute it. False: the worker is gone."""
        space = socket.CMSG_SPACE(DESCRIPTORS_MAX * array.array("i").itemsize)
        try:
            data, attached, flags, _ = self._socket.recvmsg(READ_BYTES, space, NOT_INHERITED)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        if attached or flags & socket.MSG_CTRUNC:  # the kernel had no room for all, or for any
            numbers = array.array("i", b"".join(part for _, _, part in attached))
            for number in () if NOT_INHERITED else numbers:
                os.set_inheritable(number, False)
            self._descriptors.append(list(numbers))
        self._incoming += data
        for fields in split_frames(self._incoming):
            self._execute(fields)
        return bool(data)

    def _execute(self, fields: list[bytes]) -> None:
        word, number = fields[0], int(fields[1])
        if word == b"spawn":
            self._spawn(number, fields[2:])
        elif child := self._children.get(number):
            if word == b"deadline":
                child.deadline = max(float(fields[2]), self._forgiven_until)
            elif word == b"signal":
                child.send(int(fields[2]))

    def _spawn(self, number: int, fields: list[bytes]) -> None:
        deadline, pty, memory, cwd, wanted, count, *rest = fields
        targets = [int(target) for target in wanted.split()]
        given = self._descriptors.pop(0) if targets else []
        me = os.getpid()
        argv = rest[: int(count)]
        env = dict(entry.split(b"=", 1) for entry in rest[int(count) :])
        try:
            if len(given) < len(targets):  # the kernel could not hand over all of them
                raise OSError(errno.EMFILE, "")
            read_end, write_end = os.pipe()
            os.set_blocking(read_end, False)
            try:
                pid = os.fork()
                if not pid:
                    placed = dict(zip(targets, given, strict=True))
                    record_group(self._groups, "+", me=os.getpid())
                    exec_child(argv, env, cwd, placed, write_end, parent=me, terminal=pty == b"1")
            except OSError:
                os.close(read_end)
                raise
            finally:
                os.close(write_end)
        except OSError as error:
            self._outgoing += encode("failed", number, error.errno, argv[0])
            return
        finally:
            for descriptor in given:
                os.close(descriptor)
        child = SupervisedProcess(number, pid, read_end, (argv[0], cwd))
        child.deadline = float(deadline)
        child.memory_max = int(memory)
        self._children[number] = self._starting[read_end] = child
        self._numbers[pid] = number
        self._poll.register(read_end, select.POLLIN)
        self._outgoing += encode("born", number, pid)
        self._send()  # at once: if the supervisor is killed, the worker has to kill the group

    def _started(self, child: SupervisedProcess) -> None:
        """The child has executed its program, or says why it could not."""
        assert child.errors is not None  # it is starting
        try:
            words = os.read(child.errors, 64).split()
        except BlockingIOError:
            return
        self._poll.unregister(child.errors)
        del self._starting[child.errors]
        os.close(child.errors)
        child.errors = None
        if words:
            child.failed = True
            name = child.names[int(words[1])]
            self._outgoing += encode("failed", child.number, int(words[0]), name)
        else:
            self._outgoing += encode("spawned", child.number)

    def _reap(self) -> None:
        """Kill the group of every leader that has ended, while its process id cannot be reused."""
        with suppress(ChildProcessError):
            for pid, status in process_table.ended_children(self._numbers):
                child = self._children.pop(self._numbers.pop(pid))
                child.end_group()
                self._reap_child(child, status)
        if self._ended:
            self._kill_strays()

    def _kill_strays(self) -> None:
        """Kill processes that left their group, as `timeout` does, but not their session: when their
        parents are gone they are children of this process. A process with a session of its own is left
        alone."""
        sessions = set()
        for pid in process_table.orphans(self._numbers):
            with suppress(ProcessLookupError, PermissionError):
                if (session := os.getsid(pid)) in self._ended:
                    sessions.add(session)
                    os.kill(pid, signal.SIGKILL)
        self._ended = sessions

    def _reap_child(self, child: SupervisedProcess, status: int | None = None) -> None:
        status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1] if status is None else status)
        record_group(self._groups, "-", me=child.pid)
        self._ended.add(child.pid)
        if child.errors is not None:
            self._started(child)
        if not child.failed:
            by_us = child.memory and status == -signal.SIGKILL
            self._outgoing += encode("ended", child.number, status, int(by_us))

    def _enforce_limits(self) -> None:
        """Kill groups whose deadline has passed, or that use too much memory."""
        now = time.monotonic()
        for child in self._children.values():
            if child.deadline <= now:
                child.send(signal.SIGKILL)
                child.deadline = now + LINGER_SECONDS
        limited = [child for child in self._children.values() if child.memory_max]
        if limited and self._measure_at <= now:
            in_use = process_table.memory_in_use({child.pid for child in limited})
            for child in limited:
                if in_use[child.pid] > child.memory_max:
                    child.memory = True
                    child.send(signal.SIGKILL)
            self._measure_at = time.monotonic() + process_table.MEMORY_SECONDS

    def _send(self) -> None:
        """Send what the socket takes now: a worker that does not read must not block this process."""
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._outgoing:
                del self._outgoing[: self._socket.send(self._outgoing)]
        interest = select.POLLIN | (select.POLLOUT if self._outgoing else 0)
        self._poll.modify(self._socket, interest)

    def _shut_down(self) -> None:
        """Kill all processes, and wait until they have ended."""
        for child in self._children.values():
            child.send(signal.SIGKILL)
        for child in self._children.values():
            self._reap_child(child)
        self._send()
        self._numbers.clear()
        until = time.monotonic() + LINGER_SECONDS
        while self._ended and time.monotonic() < until:
            self._reap()
            time.sleep(POLL_SECONDS)


def record_group(groups: int | None, change: str, *, me: int) -> None:
    """Tell the reaper that there is a group, or no more, where it adopts no orphans."""
    if groups is not None:
        with suppress(OSError):
            os.write(groups, f"{change}{me}\n".encode())


def exec_child(
    argv: list[bytes],
    env: dict[bytes, bytes],
    cwd: bytes,
    descriptors: dict[int, int],
    errors: int,
    *,
    parent: int,
    terminal: bool,
) -> "NoReturn":
    """Execute the program, in the forked child; on failure write why to `errors` and exit."""
    step = 0
    try:
        os.setsid()
        if _libc is not None:
            _libc.prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        top = max((2, *descriptors)) + 1
        errors = fcntl.fcntl(errors, fcntl.F_DUPFD_CLOEXEC, top)
        place_descriptors(descriptors, top)
        if terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for number in _changed:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        if cwd:
            step = 1
            os.chdir(cwd)
            step = 0
        process_table.execute(argv, env)
    except OSError as error:
        os.write(errors, b"%d %d" % (error.errno or 0, step))
    finally:
        os._exit(1)


def place_descriptors(descriptors: dict[int, int], top: int) -> None:
    """Give each descriptor its number; those of the first three that are not given are /dev/null."""
    nothing = os.open(os.devnull, os.O_RDWR)
    wanted = {0: nothing, 1: nothing, 2: nothing} | descriptors
    safe = {t: fcntl.fcntl(d, fcntl.F_DUPFD_CLOEXEC, top) for t, d in wanted.items()}
    for target, descriptor in safe.items():
        os.dup2(descriptor, target)


def main(worker: int, *inherited: int, groups: int | None = None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for descriptor in (worker, *inherited):
        os.set_inheritable(descriptor, False)
    if _libc is not None:
        _libc.prctl(SET_CHILD_SUBREAPER, 1)
    wakeup, wakeup_end = os.pipe()
    os.set_blocking(wakeup_end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
    _changed.extend(n for n in signal.valid_signals() if signal.getsignal(n) is not signal.SIG_DFL)
    connection = socket.socket(fileno=worker)
    connection.setblocking(False)
    ProcessSupervisor(connection, wakeup, groups).run()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
