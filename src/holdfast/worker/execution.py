"""Running one command: a process group of its own, followed to its end, stopped when it must."""

import asyncio
import errno
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta

from holdfast.core.catalogue import ReasonCode, Stage, WorkerEventType
from holdfast.core.command import COMMAND_KIND, Command, decode_command
from holdfast.core.errors import Invalid
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Outcome, Stopped, Success
from holdfast.failpoint import failpoint
from holdfast.ports import Clock
from holdfast.worker.environment import environment, secrets
from holdfast.worker.groups import Groups, send
from holdfast.worker.hold import Hold
from holdfast.worker.keeper import MARGIN_SECONDS, Keeper
from holdfast.worker.output import Output
from holdfast.worker.pipes import Pipe
from holdfast.worker.redaction import Redactor
from holdfast.worker.tasks import stop

STOP_SECONDS = 10.0
PIPE_SECONDS = 1.0
CRASH_EXITS = (137, 139)
EXIT_NOT_FOUND = 127
EXIT_NOT_EXECUTABLE = 126
EXIT_TIMEOUT = 124


class Commands:
    """Runs commands, each as a process group of its own, with `own` as this worker's environment."""

    kinds: tuple[str, ...] = (COMMAND_KIND,)

    def __init__(self, clock: Clock, *, own: Mapping[str, str], passed: Iterable[str] = ()) -> None:
        self._clock = clock
        self._own = own
        self._passed = passed

    def open(self) -> Groups:
        return Groups(self._clock)

    def attempt(self, hold: Hold, output: Output, keeper: Keeper) -> "Execution":
        return Execution(hold, output, keeper, self._clock, own=self._own, passed=self._passed)


class Execution:
    """One attempt at one command. `stopped` says that it did not end by itself."""

    def __init__(
        self,
        hold: Hold,
        output: Output,
        keeper: Keeper,
        clock: Clock,
        *,
        own: Mapping[str, str],
        passed: Iterable[str],
    ) -> None:
        self._hold = hold
        self._output = output
        self._keeper = keeper
        assert isinstance(keeper.guard, Groups)  # as opened by Commands
        self._groups = keeper.guard
        self._clock = clock
        self._own = own
        self._passed = passed
        self._timed_out = False
        self.stopped = False

    async def run(self) -> Outcome:
        """Run it to its end. What it says counts only while the hold is not lost."""
        try:
            command = decode_command(self._hold.grant.job.spec.payload)
            redactor = Redactor(secrets(self._own, command).values())
        except Invalid as error:
            return Failure(
                message=error.message,
                code="Invalid",
                retryable=False,
                stage=Stage.INPUT,
                reason_code=ReasonCode.PARSE_ERROR,
            )
        if self._hold.lost or self._clock.monotonic() >= self._hold.deadline - MARGIN_SECONDS:
            self._hold.lose("the lease was over before the command was started")
            return Stopped()
        out, err = Pipe(), Pipe()
        try:
            try:
                process = await self._start(command, out, err)
            except OSError as error:
                return _not_started(error, command.argv[0])
            failpoint("worker.process_started")
            try:
                return await self._follow(process, out, err, redactor)
            finally:
                await self._end_group(process)
        finally:
            out.close()
            err.close()

    async def _end_group(self, process: Process) -> None:
        """Nothing of the group outlives the attempt, however it ends; then its number is free."""
        if self._hold.group is not None or process.returncode is None:
            send(process.pid, signal.SIGKILL)
            await process.wait()
            self._keeper.release(self._hold)

    async def _start(self, command: Command, out: Pipe, err: Pipe) -> Process:
        birth = self._groups.birth(self._hold.deadline - self._clock.monotonic())
        try:
            return await asyncio.create_subprocess_exec(
                *command.argv,
                stdin=DEVNULL,
                stdout=out.write_end,
                stderr=err.write_end,
                cwd=command.cwd,
                env=environment(self._own, self._hold.grant, command, self._passed),
                start_new_session=True,
                preexec_fn=birth.tell,
            )
        except OSError:
            if (group := birth.miscarried()) is not None:
                self._groups.drop(group)
            raise
        finally:
            birth.close()

    async def _follow(self, process: Process, out: Pipe, err: Pipe, redactor: Redactor) -> Outcome:
        """Pump the output and wait for the end; whatever of the group is left then is killed."""
        timeout = self._hold.grant.job.spec.timeout
        self._keeper.govern(self._hold, process.pid)
        failpoint("worker.process_governed")
        self._output.tell(WorkerEventType.PROCESS_START, pid=process.pid)
        started_at = self._clock.monotonic()
        pumps = asyncio.gather(
            self._output.pump(await out.open(), "stdout", redactor),
            self._output.pump(await err.open(), "stderr", redactor.again()),
        )
        guard = asyncio.ensure_future(self._guard(process.pid, timeout))
        try:
            status = await process.wait()
        finally:
            await stop(guard)
            failpoint("worker.process_ended")
            await self._end_group(process)
        try:
            await asyncio.wait_for(pumps, PIPE_SECONDS)
        except TimeoutError:
            words = (
                "Its output is held open by a process that left the group; the rest is not kept."
            )
            self._output.tell(WorkerEventType.PROCESS_ERROR, error_message=words)
        code = status if status >= 0 else 128 - status
        seconds = round(self._clock.monotonic() - started_at, 3)
        self._output.tell(
            WorkerEventType.PROCESS_END, pid=process.pid, exit_code=code, seconds=seconds
        )
        return self._outcome(code, timeout)

    async def _guard(self, group: int, timeout: timedelta | None) -> None:  # noqa: ASYNC109
        """Stop the process when the lease is lost, a cancel comes, the worker leaves or time is up."""
        try:
            async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
                while not (self._hold.lost or self._hold.cancelled or self._hold.released):
                    await self._hold.stirred.wait()
                    self._hold.stirred.clear()
        except TimeoutError:
            self._timed_out = True
        self.stopped = True
        if not self._hold.lost:
            send(group, signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    while not self._hold.lost:
                        await self._hold.stirred.wait()
                        self._hold.stirred.clear()
        send(group, signal.SIGKILL)

    def _outcome(self, code: int, timeout: timedelta | None) -> Outcome:
        if self._timed_out and timeout is not None:
            return Failure(
                message=f"It ran longer than its timeout of {timeout.total_seconds():g} s.",
                code="Timeout",
                exit_code=EXIT_TIMEOUT,
                reason_code=ReasonCode.TIMEOUT,
            )
        if self.stopped and self._hold.cancelled:
            return Stopped()
        if code == 0:
            return Success(result={"exit_code": 0})
        crash = code in CRASH_EXITS
        words = f"The command was killed ({code})." if crash else f"The command exited with {code}."
        return Failure(message=words, code=f"Exit{code}", exit_code=code, crash=crash)


_PASSING = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def _not_started(error: OSError, program: str) -> Failure:
    missing = isinstance(error, FileNotFoundError)
    return Failure(
        message=f"{program} could not be started: {error.strerror}"
        + (f" ({error.filename})" if error.filename and error.filename != program else "")
        + ".",
        code=type(error).__name__,
        retryable=error.errno in _PASSING,
        stage=Stage.INPUT,
        exit_code=EXIT_NOT_FOUND if missing else EXIT_NOT_EXECUTABLE,
    )
