"""The executor of commands: runs each in a process group of its own, and stops it when it must."""

import asyncio
import os
import signal
from asyncio import StreamReader
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from holdfast.core.catalogue import ReasonCode, Stage, WorkerEventType
from holdfast.core.errors import Invalid
from holdfast.core.job import Failure
from holdfast.core.limits import OUTPUT_CHUNK_BYTES_MAX
from holdfast.core.outputs import OutputPromise
from holdfast.core.process_spec import CRASH_EXITS, ProcessSpec, decode_process_spec, exit_failure
from holdfast.core.spec import COMMAND_KIND
from holdfast.failpoint import failpoint
from holdfast.system import machine_name
from holdfast.worker.environment import environment, output_variables, own_keys, secret_values
from holdfast.worker.executor import Ending, Host
from holdfast.worker.failures import machine_fault, memory_exceeded, start_failed, timed_out
from holdfast.worker.held_job import MARGIN_SECONDS, HeldJob
from holdfast.worker.pipes import Pipes, Streams, Terminal
from holdfast.worker.processes import Child, Processes, ProcessExit
from holdfast.worker.tasks import stop

STOP_SECONDS = 10.0
PIPE_SECONDS = 1.0
EXIT_TIMEOUT = 124
STOPPED = Ending(cancelled=True, stopped=True)


class CommandExecutor:
    """Runs commands, with `own` as this worker's environment. The caller closes `processes`."""

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
        self._attempts: dict[HeldJob, CommandAttempt] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def open(self, host: Host) -> None:
        self._host = host
        await self._processes.open()

    def run(self, held_jobs: Sequence[HeldJob]) -> None:
        for held in held_jobs:
            attempt = CommandAttempt(self._host, self._processes, held)
            self._attempts[held] = attempt
            task = asyncio.create_task(self._run(attempt, held))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    def renewed(self, held: HeldJob) -> None:
        if (attempt := self._attempts.get(held)) is not None:
            attempt.renewed()

    async def close(self) -> None:
        for held in list(self._attempts):
            held.lose("the worker has ended")
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await asyncio.gather(*self._tasks)
        await stop(*self._tasks)

    async def _run(self, attempt: "CommandAttempt", held: HeldJob) -> None:
        ending = STOPPED
        try:
            ending = await attempt.run(self._own, self._passed, self._outputs)
        except (OSError, MemoryError) as error:  # of the worker, not of the command
            ending = machine_fault(error, "The worker could not run it")
        except Exception as error:
            words = f"The worker could not run it: {error!r}."
            ending = Ending(failure=Failure(message=words, code=type(error).__name__))
        finally:
            held.listener = None
            del self._attempts[held]
            self._host.ended([(held, ending)])


class CommandAttempt:
    """One attempt at one command."""

    def __init__(self, host: Host, processes: Processes, held: HeldJob) -> None:
        self._host = host
        self._clock = host.clock
        self._processes = processes
        self._held = held
        self._child: Child | None = None
        self._start_at = 0.0
        self._changed = asyncio.Event()
        self._stopped = False
        self._blocked = 0
        held.listener = self._changed.set

    def renewed(self) -> None:
        """The lease was renewed: let the process live as long."""
        if self._child is not None:
            self._child.set_lifetime(self._held.deadline - self._clock.monotonic())

    async def run(self, own: Mapping[str, str], passed: Sequence[str], outputs: str | None) -> Ending:
        """Run the command to its end. Its output counts only while the lease is held."""
        try:
            command = decode_process_spec(self._held.grant.job.spec.payload)
            hidden = [*secret_values(own, command).values()]
            hidden += own_keys(own)
            env = environment(own, self._held.grant, command, passed, self._held.traceparent)
            env |= output_variables(self._held.grant.job.spec.outputs, outputs)
        except Invalid as error:
            return _invalid(error)
        self._check_lease("the lease was over before the command was started")
        if self._held.must_stop:
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
            except ChildProcessError:  # the supervisor was killed, and the command with it
                return Ending(failure=exit_failure(CRASH_EXITS[0], _exit_message(CRASH_EXITS[0])))
            except OSError as error:
                return start_failed(error, program, command.cwd)
            return await self._follow(child, command, streams, hidden)
        finally:
            streams.close()

    def _check_lease(self, why: str) -> None:
        if self._clock.monotonic() >= self._held.deadline - MARGIN_SECONDS:
            self._held.lose(why)

    async def _start(self, command: ProcessSpec, env: Mapping[str, str], streams: Streams) -> Child:
        self._start_at = self._clock.monotonic()  # the command may have run for a while when it is answered
        child = await self._processes.spawn(
            command.argv,
            env=env,
            cwd=command.cwd,
            fds=streams.fds,
            seconds=self._held.deadline - self._clock.monotonic(),
            terminal=command.pty,
            memory_bytes=command.memory_bytes,
        )
        failpoint("worker.process_started")
        self._child = child
        self.renewed()
        self._host.begun([self._held])
        self._held.begun_at = self._start_at
        failpoint("worker.process_supervised")
        return child

    async def _follow(
        self, child: Child, command: ProcessSpec, streams: Streams, hidden: Sequence[str]
    ) -> Ending:
        """Read the output and wait for the end."""
        stopper = asyncio.ensure_future(self._stop_when_due(child))
        reads: asyncio.Future[list[None]] | None = None
        try:
            output = self._host.output(self._held)
            output.add_event(WorkerEventType.PROCESS_START, pid=child.pid)
            if command.pty:
                output.add_event(WorkerEventType.TERMINAL_RESIZE, rows=command.rows, columns=command.columns)
            output.hide(hidden, terminal=command.pty)
            readers = await streams.open()
            reads = asyncio.gather(*(self._read(*one, child) for one in readers.items()))
            ended = await child.wait()
            failpoint("worker.process_ended")
            await stop(stopper)
            await self._drain(reads)
            output.finish()
            code = ended.status if ended.status >= 0 else 128 - ended.status
            seconds = round(self._clock.monotonic() - self._start_at, 3)
            output.add_event(WorkerEventType.PROCESS_END, pid=child.pid, exit_code=code, seconds=seconds)
            return self._ending(code, ended, command)
        finally:
            await self._end(child, stopper, *([] if reads is None else [reads]))

    async def _end(self, child: Child, *tasks: "asyncio.Future[Any]") -> None:
        """Kill the group: no process of it outlives the attempt."""
        child.send(signal.SIGKILL)
        await stop(*tasks)
        with suppress(TimeoutError):
            async with asyncio.timeout(PIPE_SECONDS):
                await child.wait()

    async def _read(self, stream: str, reader: StreamReader, child: Child) -> None:
        """Read one stream to its end. A command whose output cannot be stored is killed."""
        output = self._host.output(self._held)
        try:
            while chunk := await reader.read(OUTPUT_CHUNK_BYTES_MAX):
                output.write(chunk, stream)
                self._blocked += 1
                await output.wait_for_room()
                self._blocked -= 1
        except Exception:
            child.send(signal.SIGKILL)
            raise

    async def _drain(self, reads: "asyncio.Future[list[None]]") -> None:
        """Read the rest. A slow store is waited for, a process that keeps a stream open is not."""
        while True:
            try:
                await asyncio.wait_for(asyncio.shield(reads), PIPE_SECONDS)
            except TimeoutError:
                if self._blocked:
                    continue
                words = "Its output is held open by a process that left the group; the rest is not kept."
                output = self._host.output(self._held)
                output.add_event(WorkerEventType.PROCESS_ERROR, error_message=words)
            return

    async def _stop_when_due(self, child: Child) -> None:
        """Stop the command when it is lost, cancelled, given back or out of time."""
        while not self._held.must_stop:
            await self._wait_for_change()
        self._stopped = True
        if not self._held.lost:
            child.send(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    while not (self._held.lost or self._held.urgent):
                        await self._wait_for_change()
        child.send(signal.SIGKILL)

    async def _wait_for_change(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    def _ending(self, code: int, ended: ProcessExit, command: ProcessSpec) -> Ending:
        held = self._held
        if ended.status == -signal.SIGKILL:
            self._check_lease("the lease ended before the command did")
        if held.lost:
            return STOPPED
        where = _where(command, held.grant.job.spec.outputs)
        if self._stopped and held.timed_out:
            failure = timed_out(held, exit_code=EXIT_TIMEOUT)
        elif self._stopped and held.cancelled:
            return Ending(cancelled=True, stopped=True, where=where)
        elif ended.memory and command.memory_bytes is not None:
            failure = memory_exceeded(command.memory_bytes)
        elif code == 0:
            return Ending(stopped=self._stopped, result=b'{"exit_code":0}', where=where)
        else:
            failure = exit_failure(code, _exit_message(code))
        return Ending(stopped=self._stopped, failure=failure, where=where)


def _where(command: ProcessSpec, promise: OutputPromise | None) -> str | None:
    """Return the machine and folder that its files are in, if it has promised any."""
    if promise is None or not promise.files:
        return None
    try:
        return f"{machine_name()}:{os.path.abspath(command.cwd or '.')}"
    except OSError:  # the worker's own folder was removed
        return None


def _exit_message(code: int) -> str:
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
