"""Processes with a deadline: the worker's side of the process supervisor, which starts and ends them."""

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from holdfast.ports import Clock
from holdfast.worker.held_job import MARGIN_SECONDS
from holdfast.worker.process_supervisor import (
    DESCRIPTORS_MAX,
    FRAME_BYTES_MAX,
    READ_BYTES,
    encode,
    split_frames,
)
from holdfast.worker.reaper import PATIENCE_SECONDS

LEAVE_SECONDS = 25.0  # more than the supervisor, and then its reaper, take at most
POLL_SECONDS = 0.005


class ProcessExit(Struct, frozen=True):
    """How a process ended: its exit code, or minus the number of the signal that killed it.

    `memory`: it was killed because its group used more than its limit.
    """

    status: int
    memory: bool = False


class StartedProcess(Protocol):
    """A process, or what stands for one: see `Child`."""

    pid: int

    async def wait(self) -> ProcessExit: ...

    def set_lifetime(self, seconds: float) -> None: ...

    def send(self, number: signal.Signals) -> None: ...


class ProcessStarter(Protocol):
    """Starts processes, or what stands for them: see `Processes`."""

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        fds: Mapping[int, int],
        seconds: float,
        terminal: bool = False,
        memory_bytes: int | None = None,
    ) -> StartedProcess: ...


class Child:
    """A process that leads a group of its own, `pid`. The group ends with it."""

    def __init__(
        self,
        supervisor: "SupervisorConnection",
        number: int,
        pid: int,
        ended: "asyncio.Future[ProcessExit]",
    ) -> None:
        self._supervisor = supervisor
        self._number = number
        self._ended = ended
        self.pid = pid

    async def wait(self) -> ProcessExit:
        """Wait for its end and return how it ended; the rest of its group is killed by then."""
        return await asyncio.shield(self._ended)

    def set_lifetime(self, seconds: float) -> None:
        """Have the group killed this many seconds from now, less a margin for the next owner of the job."""
        self._supervisor.send("deadline", self._number, self._supervisor.deadline(seconds))

    def send(self, number: signal.Signals) -> None:
        """Signal the whole group, if it has not ended."""
        self._supervisor.send("signal", self._number, int(number))


class Processes:
    """Starts processes through a supervisor. `inherited` are descriptors that it keeps open for as long as
    anything it has started may live. A supervisor that dies is replaced by the next `spawn`; one that is
    frozen when this process has ended is killed after `patience` seconds.

    The clock must be the machine's: the supervisor uses the same one.
    """

    def __init__(
        self, clock: Clock, inherited: Sequence[int] = (), *, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._clock = clock
        self._inherited = inherited
        self._patience = patience
        self._numbers = count(1)
        self._supervisor: SupervisorConnection | None = None

    async def open(self) -> None:
        """Start the supervisor, while this process is still small."""
        self._ready()

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        fds: Mapping[int, int],
        seconds: float,
        terminal: bool = False,
        memory_bytes: int | None = None,
    ) -> Child:
        """Start a process in a session of its own, with the descriptors `fds` (its number: ours) and no
        others; those of the first three that are not given are /dev/null. It is killed after `seconds`.

        `terminal`: descriptor 0 becomes its controlling terminal. Raise what `subprocess` would raise, and
        `ChildProcessError` when the supervisor died, and with it all that it had started. A caller that is
        cancelled leaves no process behind.
        """
        supervisor = self._ready()
        body = (
            supervisor.deadline(seconds),
            int(terminal),
            memory_bytes or 0,
            os.fsencode(cwd or ""),
            " ".join(map(str, fds)),
            len(argv),
            *_texts(argv, env),
        )
        return await supervisor.spawn(next(self._numbers), body, list(fds.values()))

    async def close(self) -> None:
        """Kill what is left, and wait until it has ended."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            await supervisor.close()

    def _ready(self) -> "SupervisorConnection":
        if self._supervisor is None or self._supervisor.gone:
            self._supervisor = SupervisorConnection(self._clock, self._inherited, self._patience)
        return self._supervisor


def _texts(argv: Sequence[str], env: Mapping[str, str]) -> list[bytes]:
    """Return the arguments, then the environment, as a process gets them."""
    if not argv or any(not name or "=" in name for name in env):
        raise ValueError("nothing to run, or an environment variable without a proper name")
    texts = [os.fsencode(text) for text in argv]
    texts += [os.fsencode(f"{name}={value}") for name, value in env.items()]
    if any(b"\0" in text for text in texts):
        raise ValueError("embedded null byte")
    return texts


class _Frame:
    """A frame to the supervisor. `spawning` is the number of the process it starts, until it is sent."""

    __slots__ = ("data", "fds", "spawning")

    def __init__(self, data: bytes, fds: Sequence[int] = (), spawning: int | None = None) -> None:
        self.data = memoryview(data)
        self.fds = fds
        self.spawning = spawning


class SupervisorConnection:
    """The connection to one supervisor. It never blocks the loop."""

    def __init__(self, clock: Clock, inherited: Sequence[int], patience: float) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._outgoing: deque[_Frame] = deque()
        self._incoming = bytearray()
        self._spawning: dict[int, asyncio.Future[int]] = {}
        self._ended: dict[int, asyncio.Future[ProcessExit]] = {}
        self._pids: dict[int, int] = {}
        self._ending = asyncio.Event()
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = _start(theirs.fileno(), inherited, patience)
            except BaseException:
                self._socket.close()
                raise
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._receive)

    @property
    def gone(self) -> bool:
        return self._ending.is_set()

    def deadline(self, seconds: float) -> str:
        """Return this many seconds from now, less the margin, on the clock of the machine."""
        return f"{self._clock.monotonic() + seconds - MARGIN_SECONDS:.6f}"

    def send(self, *fields: object) -> None:
        self._enqueue(_Frame(encode(*fields)))

    async def spawn(self, number: int, fields: Sequence[object], fds: Sequence[int]) -> Child:
        data = encode("spawn", number, *fields)
        if len(data) > FRAME_BYTES_MAX or len(fds) > DESCRIPTORS_MAX:
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
        started = self._spawning[number] = self._loop.create_future()
        ended = self._ended[number] = self._loop.create_future()
        frame = _Frame(data, fds, number)
        self._enqueue(frame)
        try:
            return Child(self, number, await started, ended)
        except asyncio.CancelledError:
            if frame.spawning is None:
                self.send("signal", number, int(signal.SIGKILL))
            elif not self.gone:
                self._outgoing.remove(frame)
                del self._ended[number]
            raise
        except OSError:
            self._ended.pop(number, None)
            raise
        finally:
            self._spawning.pop(number, None)

    async def close(self) -> None:
        """Hang up, and wait for the end of the supervisor, which comes after that of all it started."""
        if not self.gone:
            self._socket.shutdown(socket.SHUT_WR)
            giving_up = self._loop.call_later(LEAVE_SECONDS, self._give_up)
            await self._ending.wait()
            giving_up.cancel()
        while self._process.poll() is None:
            await self._clock.sleep(POLL_SECONDS)

    def _give_up(self) -> None:
        """Neither the supervisor nor its reaper has ended: kill the groups from here."""
        self._process.kill()
        self._lost()

    def _enqueue(self, frame: _Frame) -> None:
        if not self.gone:
            self._outgoing.append(frame)
            if len(self._outgoing) == 1:
                self._write()

    def _write(self) -> None:
        """Send what the socket takes now; the rest when there is room."""
        while self._outgoing:
            frame = self._outgoing[0]
            try:
                if frame.fds:
                    sent = socket.send_fds(self._socket, [frame.data], list(frame.fds))
                else:
                    sent = self._socket.send(frame.data)
            except BlockingIOError:
                self._loop.add_writer(self._socket, self._write)
                return
            except (BrokenPipeError, ConnectionResetError):
                break  # the reader is about to notice the end
            except OSError as error:  # these descriptors cannot be sent
                if frame.spawning is None:
                    raise
                if not (started := self._spawning[frame.spawning]).done():
                    started.set_exception(error)
                sent = len(frame.data)
            frame.fds, frame.spawning = (), None
            frame.data = frame.data[sent:]
            if not frame.data:
                self._outgoing.popleft()
        self._loop.remove_writer(self._socket)

    def _receive(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        self._incoming += data
        for fields in split_frames(self._incoming):
            self._handle(fields[0], int(fields[1]), fields[2:])
        if not data:
            self._lost()

    def _handle(self, verb: bytes, number: int, fields: list[bytes]) -> None:
        started = self._spawning.get(number)
        if started is not None and started.done():  # its caller was cancelled
            started = None
        if verb == b"born":
            self._pids[number] = int(fields[0])
        elif verb == b"spawned" and started is not None:
            started.set_result(self._pids[number])
        elif verb == b"ended":
            del self._pids[number]
            self._ended.pop(number).set_result(ProcessExit(int(fields[0]), fields[1] == b"1"))
        elif verb == b"failed":
            self._pids.pop(number, None)
            del self._ended[number]
            if started is not None:
                problem = int(fields[0])
                error = OSError(problem, os.strerror(problem), os.fsdecode(fields[1]))
                started.set_exception(error)

    def _lost(self) -> None:
        """The supervisor is gone, and with it the leaders that it had started: kill the rest of their
        groups."""
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        for pid in self._pids.values():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        for started in self._spawning.values():
            if not started.done():
                words = "The process that starts all others was killed."
                started.set_exception(ChildProcessError(errno.ECHILD, words))
        for ended in self._ended.values():
            if not ended.done():
                ended.set_result(ProcessExit(-signal.SIGKILL))
        self._ended.clear()
        self._pids.clear()
        self._outgoing.clear()
        self._ending.set()
        self._reap()

    def _reap(self) -> None:
        if self._process.poll() is None:
            self._loop.call_later(POLL_SECONDS, self._reap)


def _start(socket_fd: int, inherited: Sequence[int], patience: float) -> subprocess.Popen[bytes]:
    """Start the reaper, which starts the supervisor; return the reaper. It lives until all processes that
    the supervisor had started have ended."""
    script = Path(__file__).with_name("reaper.py")
    return subprocess.Popen(  # noqa: S603  # our own file
        [sys.executable, "-I", "-S", str(script), *map(str, (patience, socket_fd, *inherited))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(socket_fd, *inherited),
    )
