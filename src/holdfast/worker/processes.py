"""Processes under guard: the worker's side of the warden, which starts and ends them."""

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

from msgspec import Struct

from holdfast.ports import Clock
from holdfast.worker.hold import MARGIN_SECONDS
from holdfast.worker.reaper import PATIENCE_SECONDS
from holdfast.worker.warden import DESCRIPTORS_MAX, FRAME_BYTES_MAX, READ_BYTES, cut, encode

LEAVE_SECONDS = 25.0  # more than the warden, and then its reaper, take at most
LOOK_SECONDS = 0.005


class Exit(Struct, frozen=True):
    """How a process ended: its exit code, or minus the number of the signal that killed it.

    `memory`: it was killed because its group used more than its limit.
    """

    status: int
    memory: bool = False


class Child:
    """A process that leads a group of its own, `pid`. The group ends with it."""

    def __init__(
        self, warden: "Warden", number: int, pid: int, ended: "asyncio.Future[Exit]"
    ) -> None:
        self._warden = warden
        self._number = number
        self._ended = ended
        self.pid = pid

    async def wait(self) -> Exit:
        """How it ended; what was left of its group is killed by then."""
        return await asyncio.shield(self._ended)

    def hold(self, seconds: float) -> None:
        """The group may live for so many seconds from now, less a margin for whoever comes next."""
        self._warden.say("hold", self._number, self._warden.deadline(seconds))

    def send(self, number: signal.Signals) -> None:
        """Signal the whole group; one that is gone already is fine."""
        self._warden.say("signal", self._number, int(number))


class Processes:
    """Starts processes through a warden. `inherited` are descriptors that it keeps open for as long as
    anything it has started may live. A warden that dies is replaced by the next `spawn`; one that is frozen
    when this process has ended is killed after `patience` seconds.

    The clock must be the machine's: the warden counts on the same one.
    """

    def __init__(
        self, clock: Clock, inherited: Sequence[int] = (), *, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._clock = clock
        self._inherited = inherited
        self._patience = patience
        self._numbers = count(1)
        self._warden: Warden | None = None

    async def open(self) -> None:
        """Start the warden, while this process is still small."""
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
        others; of the first three, what is not given is /dev/null. It may live for so many seconds.

        `terminal`: descriptor 0 becomes its controlling terminal. Raises what `subprocess` would, and
        `ChildProcessError` when the warden died, and whatever it had started with it. A caller that
        is cancelled leaves no process behind.
        """
        warden = self._ready()
        body = (
            warden.deadline(seconds),
            int(terminal),
            memory_bytes or 0,
            os.fsencode(cwd or ""),
            " ".join(map(str, fds)),
            len(argv),
            *_texts(argv, env),
        )
        return await warden.spawn(next(self._numbers), body, list(fds.values()))

    async def close(self) -> None:
        """Kill what is left, and return when it has ended."""
        warden, self._warden = self._warden, None
        if warden is not None:
            await warden.close()

    def _ready(self) -> "Warden":
        if self._warden is None or self._warden.gone:
            self._warden = Warden(self._clock, self._inherited, self._patience)
        return self._warden


def _texts(argv: Sequence[str], env: Mapping[str, str]) -> list[bytes]:
    """The arguments, then the environment, as a process gets them."""
    if not argv or any(not name or "=" in name for name in env):
        raise ValueError("nothing to run, or an environment variable without a proper name")
    texts = [os.fsencode(text) for text in argv]
    texts += [os.fsencode(f"{name}={value}") for name, value in env.items()]
    if any(b"\0" in text for text in texts):
        raise ValueError("embedded null byte")
    return texts


class _Word:
    """A frame on its way to the warden. `spawning` is what it starts, until it is on its way."""

    __slots__ = ("data", "fds", "spawning")

    def __init__(self, data: bytes, fds: Sequence[int] = (), spawning: int | None = None) -> None:
        self.data = memoryview(data)
        self.fds = fds
        self.spawning = spawning


class Warden:
    """One warden: what was said to it, and what it was heard to say. It never makes the loop wait."""

    def __init__(self, clock: Clock, inherited: Sequence[int], patience: float) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._outgoing: deque[_Word] = deque()
        self._incoming = bytearray()
        self._spawning: dict[int, asyncio.Future[int]] = {}
        self._ended: dict[int, asyncio.Future[Exit]] = {}
        self._pids: dict[int, int] = {}
        self._ending = asyncio.Event()
        self._line, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = _start(theirs.fileno(), inherited, patience)
            except BaseException:
                self._line.close()
                raise
        self._line.setblocking(False)
        self._loop.add_reader(self._line, self._listen)

    @property
    def gone(self) -> bool:
        return self._ending.is_set()

    def deadline(self, seconds: float) -> str:
        """So many seconds from now, less the margin, on the clock of the machine."""
        return f"{self._clock.monotonic() + seconds - MARGIN_SECONDS:.6f}"

    def say(self, *fields: object) -> None:
        self._send(_Word(encode(*fields)))

    async def spawn(self, number: int, fields: Sequence[object], fds: Sequence[int]) -> Child:
        frame = encode("spawn", number, *fields)
        if len(frame) > FRAME_BYTES_MAX or len(fds) > DESCRIPTORS_MAX:
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
        started = self._spawning[number] = self._loop.create_future()
        ended = self._ended[number] = self._loop.create_future()
        word = _Word(frame, fds, number)
        self._send(word)
        try:
            return Child(self, number, await started, ended)
        except asyncio.CancelledError:
            if word.spawning is None:
                self.say("signal", number, int(signal.SIGKILL))
            elif not self.gone:
                self._outgoing.remove(word)
                del self._ended[number]
            raise
        except OSError:
            self._ended.pop(number, None)
            raise
        finally:
            self._spawning.pop(number, None)

    async def close(self) -> None:
        """Say no more, and wait for the end: that of the warden, which is after that of all else."""
        if not self.gone:
            self._line.shutdown(socket.SHUT_WR)
            giving_up = self._loop.call_later(LEAVE_SECONDS, self._give_up)
            await self._ending.wait()
            giving_up.cancel()
        while self._process.poll() is None:
            await self._clock.sleep(LOOK_SECONDS)

    def _give_up(self) -> None:
        """Neither the warden nor its reaper has come to an end: leave, and end the groups from here."""
        self._process.kill()
        self._lost()

    def _send(self, word: _Word) -> None:
        if not self.gone:
            self._outgoing.append(word)
            if len(self._outgoing) == 1:
                self._write()

    def _write(self) -> None:
        """Send what the line takes now; the rest when there is room."""
        while self._outgoing:
            word = self._outgoing[0]
            try:
                if word.fds:
                    sent = socket.send_fds(self._line, [word.data], list(word.fds))
                else:
                    sent = self._line.send(word.data)
            except BlockingIOError:
                self._loop.add_writer(self._line, self._write)
                return
            except (BrokenPipeError, ConnectionResetError):
                break  # and the reader is about to hear of the end
            except OSError as error:  # such descriptors cannot be sent
                if word.spawning is None:
                    raise
                if not (started := self._spawning[word.spawning]).done():
                    started.set_exception(error)
                sent = len(word.data)
            word.fds, word.spawning = (), None
            word.data = word.data[sent:]
            if not word.data:
                self._outgoing.popleft()
        self._loop.remove_writer(self._line)

    def _listen(self) -> None:
        try:
            data = self._line.recv(READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        self._incoming += data
        for fields in cut(self._incoming):
            self._hear(fields[0], int(fields[1]), fields[2:])
        if not data:
            self._lost()

    def _hear(self, word: bytes, number: int, fields: list[bytes]) -> None:
        started = self._spawning.get(number)
        if started is not None and started.done():  # whoever wanted it is gone
            started = None
        if word == b"born":
            self._pids[number] = int(fields[0])
        elif word == b"spawned" and started is not None:
            started.set_result(self._pids[number])
        elif word == b"ended":
            del self._pids[number]
            self._ended.pop(number).set_result(Exit(int(fields[0]), fields[1] == b"1"))
        elif word == b"failed":
            self._pids.pop(number, None)
            del self._ended[number]
            if started is not None:
                problem = int(fields[0])
                error = OSError(problem, os.strerror(problem), os.fsdecode(fields[1]))
                started.set_exception(error)

    def _lost(self) -> None:
        """The warden is gone, and the leaders that it had started with it: end what they have left."""
        self._loop.remove_reader(self._line)
        self._loop.remove_writer(self._line)
        self._line.close()
        for pid in self._pids.values():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        for started in self._spawning.values():
            if not started.done():
                words = "The process that starts all others was killed."
                started.set_exception(ChildProcessError(errno.ECHILD, words))
        for ended in self._ended.values():
            if not ended.done():
                ended.set_result(Exit(-signal.SIGKILL))
        self._ended.clear()
        self._pids.clear()
        self._outgoing.clear()
        self._ending.set()
        self._bury()

    def _bury(self) -> None:
        if self._process.poll() is None:
            self._loop.call_later(LOOK_SECONDS, self._bury)


def _start(line: int, inherited: Sequence[int], patience: float) -> subprocess.Popen[bytes]:
    """Start the reaper, which starts the warden. The process is the reaper: it is there until all that the
    warden had started has ended."""
    script = Path(__file__).with_name("reaper.py")
    return subprocess.Popen(  # noqa: S603  # our own file
        [sys.executable, "-I", "-S", str(script), *map(str, (patience, line, *inherited))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(line, *inherited),
    )
