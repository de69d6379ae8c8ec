"""Running commands: a process group each, followed to its end, stopped when it must."""

import asyncio
import os
import signal
from asyncio import StreamReader
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from holdfast.core.catalogue import ReasonCode, Stage, WorkerEventType
from holdfast.core.command import CRASH_EXITS, Command, decode_command, exited
from holdfast.core.errors import Invalid
from holdfast.core.job import Failure
from holdfast.core.limits import OUTPUT_CHUNK_BYTES_MAX
from holdfast.core.outputs import Promise
from holdfast.core.spec import COMMAND_KIND
from holdfast.failpoint import failpoint
from holdfast.system import machine
from holdfast.worker.environment import environment, own_keys, promised, secrets
from holdfast.worker.executor import Ending, Host
from holdfast.worker.faults import machine_fault, not_started
from holdfast.worker.hold import MARGIN_SECONDS, Hold
from holdfast.worker.outcomes import timed_out, too_big
from holdfast.worker.pipes import Pipes, Streams, Terminal
from holdfast.worker.processes import Child, Exit, Processes
from holdfast.worker.tasks import stop

STOP_SECONDS = 10.0
PIPE_SECONDS = 1.0
EXIT_TIMEOUT = 124
STOPPED = Ending(cancelled=True, stopped=True)


class Commands:
    """Runs commands, with `own` as this worker's environment. Whoever made `processes` closes it."""

    kinds: tuple[str, ...] = (COMMAND_KIND,)

    def __init__(
        self,
        processes: Processes,
        *,
        own: Mapping[str, str],
        passed: Iterable[str] = (),
        outputs: str | None = None,
    ) -> None:
        self._processes = processes
        self._own = own
        self._passed = tuple(passed)
        self._outputs = outputs
        self._attempts: dict[Hold, Attempt] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def open(self, host: Host) -> None:
        self._host = host
        await self._processes.open()

    def run(self, holds: Sequence[Hold]) -> None:
        for hold in holds:
            attempt = Attempt(self._host, self._processes, hold)
            self._attempts[hold] = attempt
            task = asyncio.create_task(self._run(attempt, hold))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    def renewed(self, hold: Hold) -> None:
        if (attempt := self._attempts.get(hold)) is not None:
            attempt.renewed()

    async def close(self) -> None:
        for hold in list(self._attempts):
            hold.lose("the worker has ended")
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await asyncio.gather(*self._tasks)
        await stop(*self._tasks)

    async def _run(self, attempt: "Attempt", hold: Hold) -> None:
        ending = STOPPED
        try:
            ending = await attempt.run(self._own, self._passed, self._outputs)
        except (OSError, MemoryError) as error:  # ours, not the command's
            ending = machine_fault(error, "The worker could not run it")
        except Exception as error:
            words = f"The worker could not run it: {error!r}."
            ending = Ending(failure=Failure(message=words, code=type(error).__name__))
        finally:
            hold.listener = None
            del self._attempts[hold]
            self._host.ended(hold, ending)


class Attempt:
    """One attempt at one command."""

    def __init__(self, host: Host, processes: Processes, hold: Hold) -> None:
        self._host = host
        self._clock = host.clock
        self._processes = processes
        self._hold = hold
        self._child: Child | None = None
        self._stirred = asyncio.Event()
        self._stopped = False
        self._waiting = 0
        hold.listener = self._stirred.set

    def renewed(self) -> None:
        """The lease lasts longer, and so may the command."""
        if self._child is not None:
            self._child.hold(self._hold.deadline - self._clock.monotonic())

    async def run(
        self, own: Mapping[str, str], passed: Sequence[str], outputs: str | None
    ) -> Ending:
        """Run it to its end. What it says counts only while the hold is not lost."""
        try:
            command = decode_command(self._hold.grant.job.spec.payload)
            hidden = [*secrets(own, command).values()]
            hidden += own_keys(own)
            env = environment(own, self._hold.grant, command, passed, self._hold.traceparent)
            env |= promised(self._hold.grant.job.spec.outputs, outputs)
        except Invalid as error:
            return _invalid(error)
        self._look_at_lease("the lease was over before the command was started")
        if self._hold.stopping:
            return STOPPED
        program = command.argv[0]
        try:
            await self._processes.open()
            streams = Terminal(command.rows, command.columns) if command.pty else Pipes()
        except OSError as error:  # nothing of the job's own was needed yet
            return machine_fault(error, f"{program} could not be started")
        try:
            try:
                child = await self._start(command, env, streams)
            except ChildProcessError:  # the warden was killed, and it with it
                return Ending(failure=exited(CRASH_EXITS[0], _words(CRASH_EXITS[0])))
            except OSError as error:
                return not_started(error, program, command.cwd)
            return await self._follow(child, command, streams, hidden)
        finally:
            streams.close()

    def _look_at_lease(self, why: str) -> None:
        if self._clock.monotonic() >= self._hold.deadline - MARGIN_SECONDS:
            self._hold.lose(why)

    async def _start(self, command: Command, env: Mapping[str, str], streams: Streams) -> Child:
        child = await self._processes.spawn(
            command.argv,
            env=env,
            cwd=command.cwd,
            fds=streams.fds,
            seconds=self._hold.deadline - self._clock.monotonic(),
            terminal=command.pty,
            memory_bytes=command.memory_bytes,
        )
        failpoint("worker.process_started")
        self._child = child
        self.renewed()
        self._host.begun(self._hold)
        failpoint("worker.process_governed")
        return child

    async def _follow(
        self, child: Child, command: Command, streams: Streams, hidden: Sequence[str]
    ) -> Ending:
        """Pump the output and wait for the end."""
        guard = asyncio.ensure_future(self._guard(child))
        pumps: asyncio.Future[list[None]] | None = None
        try:
            output = self._host.output(self._hold)
            began_at = self._clock.monotonic()
            output.tell(WorkerEventType.PROCESS_START, pid=child.pid)
            if command.pty:
                output.tell(
                    WorkerEventType.TERMINAL_RESIZE, rows=command.rows, columns=command.columns
                )
            output.hide(hidden, terminal=command.pty)
            readers = await streams.open()
            pumps = asyncio.gather(*(self._pump(*one, child) for one in readers.items()))
            ended = await child.wait()
            failpoint("worker.process_ended")
            await stop(guard)
            await self._drain(pumps)
            output.finish()
            code = ended.status if ended.status >= 0 else 128 - ended.status
            seconds = round(self._clock.monotonic() - began_at, 3)
            output.tell(WorkerEventType.PROCESS_END, pid=child.pid, exit_code=code, seconds=seconds)
            return self._ending(code, ended, command)
        finally:
            await self._end(child, guard, *([] if pumps is None else [pumps]))

    async def _end(self, child: Child, *tasks: "asyncio.Future[Any]") -> None:
        """Nothing of the group outlives the attempt, however it ends."""
        child.send(signal.SIGKILL)
        await stop(*tasks)
        with suppress(TimeoutError):
            async with asyncio.timeout(PIPE_SECONDS):
                await child.wait()

    async def _pump(self, stream: str, reader: StreamReader, child: Child) -> None:
        """Read one stream to its end. A command whose output cannot be kept does not go on."""
        output = self._host.output(self._hold)
        try:
            while chunk := await reader.read(OUTPUT_CHUNK_BYTES_MAX):
                output.write(chunk, stream)
                self._waiting += 1
                await output.room()
                self._waiting -= 1
        except Exception:
            child.send(signal.SIGKILL)
            raise

    async def _drain(self, pumps: "asyncio.Future[list[None]]") -> None:
        """Read what is left. A store that is slow is waited for, a process that holds on is not."""
        while True:
            try:
                await asyncio.wait_for(asyncio.shield(pumps), PIPE_SECONDS)
            except TimeoutError:
                if self._waiting:
                    continue
                words = "Its output is held open by a process that left the group; the rest is not kept."
                output = self._host.output(self._hold)
                output.tell(WorkerEventType.PROCESS_ERROR, error_message=words)
            return

    async def _guard(self, child: Child) -> None:
        """Stop the command when the lease is lost, a cancel comes, the worker leaves or time is up."""
        while not self._hold.stopping:
            await self._stir()
        self._stopped = True
        if not self._hold.lost:
            child.send(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    while not (self._hold.lost or self._hold.urgent):
                        await self._stir()
        child.send(signal.SIGKILL)

    async def _stir(self) -> None:
        await self._stirred.wait()
        self._stirred.clear()

    def _ending(self, code: int, ended: Exit, command: Command) -> Ending:
        hold = self._hold
        if ended.status == -signal.SIGKILL:
            self._look_at_lease("the lease ended before the command did")
        if hold.lost:
            return STOPPED
        where = _where(command, hold.grant.job.spec.outputs)
        if self._stopped and hold.timed_out:
            failure = timed_out(hold, exit_code=EXIT_TIMEOUT)
        elif self._stopped and hold.cancelled:
            return Ending(cancelled=True, stopped=True, where=where)
        elif ended.memory and command.memory_bytes is not None:
            failure = too_big(command.memory_bytes)
        elif code == 0:
            return Ending(stopped=self._stopped, result=b'{"exit_code":0}', where=where)
        else:
            failure = exited(code, _words(code))
        return Ending(stopped=self._stopped, failure=failure, where=where)


def _where(command: Command, promise: Promise | None) -> str | None:
    """The machine and folder that its files are in, if it has promised any."""
    if promise is None or not promise.files:
        return None
    try:
        return f"{machine()}:{os.path.abspath(command.cwd or '.')}"
    except OSError:  # our own folder is gone: nobody can say where it was
        return None


def _words(code: int) -> str:
    crash = code in CRASH_EXITS
    return f"The command was killed ({code})." if crash else f"The command exited with {code}."


def _invalid(error: Invalid) -> Ending:
    failure = Failure(
        message=error.message,
        code="Invalid",
        retryable=False,
        stage=Stage.INPUT,
        reason_code=ReasonCode.PARSE_ERROR,
    )
    return Ending(failure=failure)
