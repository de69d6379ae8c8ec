"""The executor of Python functions: the handlers of an app run in runner processes, not in the worker.

A handler that has to stop is told to; one that does not is cancelled, or its process is killed.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from holdfast.core import retry
from holdfast.core.errors import HoldfastError, Invalid
from holdfast.core.job import Progress
from holdfast.core.limits import NOT_STARTED_MAX
from holdfast.worker.attempt_stop import kill_runner, stop_attempt
from holdfast.worker.executor import RETURNED, EndedJob, Ending, Host
from holdfast.worker.failures import ended_in_time, machine_fault, needs_compensation, stopped, timed_out
from holdfast.worker.frames import (
    Checkpoint,
    CheckpointReply,
    Compensate,
    EmittedEvent,
    Ended,
    Hello,
    KnownJob,
    OfOneAttempt,
    ProgressUpdate,
    Renewed,
    Returned,
    StopReceived,
    ToRunner,
    ToWorker,
)
from holdfast.worker.held_job import HeldJob
from holdfast.worker.processes import ProcessExit, ProcessStarter
from holdfast.worker.redaction import NOTHING_HIDDEN, Redactor
from holdfast.worker.runner_attempt import RunnerAttempt, crash_ending, run_message
from holdfast.worker.runner_connection import RunnerConnection
from holdfast.worker.runner_output import RunnerOutput
from holdfast.worker.runner_pool import RunnerPool
from holdfast.worker.tasks import Tasks

DEADLINE_SECONDS = 0.25
IDLE_SECONDS = 20.0
"""How long a runner without attempts lives if its worker is frozen; a default lease is longer."""
SUSPECTS_MAX = 10_000


class FunctionExecutor:
    """Runs the jobs of one app; call `load` first. `runner_argv` is the command line of the runner program.

    `stray` receives what the shared runner writes directly to its standard streams, which may be of any
    job; without it, that goes where the worker's stderr goes.
    """

    kinds: tuple[str, ...] = ()

    def __init__(
        self,
        processes: ProcessStarter,
        app: str,
        *,
        runner_argv: Sequence[str],
        slots: int,
        processes_max: int | None = None,
        env: Mapping[str, str],
        url: str | None = None,
        outputs: str | None = None,
        stray: Callable[[bytes], None] | None = None,
        redactor: Redactor = NOTHING_HIDDEN,
    ) -> None:
        self._app = app
        self._stray = stray
        self._redactor = redactor
        stores, piped, limits = (url or "", outputs or ""), stray is not None, (slots, processes_max or slots)
        self._pool = RunnerPool(
            self, processes, app, runner_argv=runner_argv, limits=limits, env=env, stores=stores, piped=piped
        )
        self._known: dict[str, KnownJob] = {}
        self._running: dict[HeldJob, tuple[RunnerConnection, RunnerAttempt]] = {}
        self._suspects: dict[str, None] = {}
        self._number = 0

    async def load(self) -> Hello:
        """Load the app in a runner. Raise `Invalid` when it cannot be loaded."""
        try:
            hello = await self._pool.load()
        except Invalid as error:  # its message has text of the app
            error.message = self._redactor.text(error.message)
            raise
        if not hello.known:
            raise Invalid(f"{self._app} has no jobs.", advice="Decorate a function with @app.job.")
        self._known = {known.kind: known for known in hello.known}
        self.kinds = tuple(self._known)
        return hello

    @property
    def thread_kinds(self) -> frozenset[str]:
        """The kinds whose jobs take a thread or a process each: all but coroutines in the shared runner."""
        known = self._known.items()
        return frozenset(kind for kind, job in known if not job.only_async or job.isolation == "process")

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that the functions of the app name, each once."""
        return tuple(dict.fromkeys(job.queue for job in self._known.values()))

    async def open(self, host: Host) -> None:
        self._host = host
        self._tasks = Tasks(host.trouble)
        self._output = RunnerOutput(host, self._tasks)
        self._tasks.start(self._set_deadlines())

    async def close(self) -> None:
        for held in list(self._running):
            held.listener = None
            held.lose("the worker has ended")
        await self._tasks.stop()
        await self.close_runners()

    async def close_runners(self) -> None:
        """End the runners, also of an executor that was never opened."""
        await self._pool.close()

    def run(self, held_jobs: Sequence[HeldJob]) -> None:
        self._submit([RunnerAttempt(held) for held in held_jobs])

    def _submit(self, attempts: Sequence[RunnerAttempt]) -> None:
        shared: list[RunnerAttempt] = []
        for attempt in attempts:
            held = attempt.held
            known = self._known[held.grant.job.spec.kind]
            if known.isolation == "process" or held.job_id in self._suspects:
                self._pool.submit_exclusive(attempt, known.memory_bytes)
            else:
                shared.append(attempt)
        if shared:
            self._pool.submit_shared(shared)

    def begin(self, runner: RunnerConnection, attempts: Sequence[RunnerAttempt]) -> None:
        """Send the attempts to a runner, in one frame: they have begun."""
        begun: list[HeldJob] = []
        messages: list[ToRunner] = []
        deadline = runner.deadline
        for attempt in attempts:
            held = attempt.held
            if attempt.failed is None:
                held.timed_out = False  # its timeout counts from now, not from when it began to wait
            if held.lost or (attempt.failed is None and held.must_stop):
                self._host.ended([(held, stopped(held))])
                continue
            self._number += 1
            attempt.number = self._number
            runner.attempts[self._number] = attempt
            self._running[held] = runner, attempt
            deadline = min(deadline, held.deadline)
            held.listener = partial(self._changed, runner, attempt)
            if attempt.failed is None:
                begun.append(held)
                messages.append(run_message(attempt))
            else:
                messages.append(Compensate(run_message(attempt)))
                if (limit := held.grant.job.spec.timeout) is not None:
                    self._tasks.start(self._time_out(runner, attempt, limit.total_seconds()))
        if deadline < runner.deadline:
            runner.set_deadline(deadline, self._host.clock.monotonic())
        if begun:
            self._host.begun(begun)
        runner.send_many(messages)

    async def _time_out(self, runner: RunnerConnection, attempt: RunnerAttempt, seconds: float) -> None:
        """Stop a compensation that takes longer than the timeout of its handler."""
        await self._host.clock.sleep(seconds)
        if attempt.number in runner.attempts:
            attempt.held.timed_out = True
            await self._stop(runner, attempt)

    def no_runner(self, attempt: RunnerAttempt, error: Exception) -> None:
        if attempt.failed is None:
            self._host.ended([(attempt.held, machine_fault(error, f"{self._app} cannot be run"))])
        else:
            self._retry_compensation(attempt, attempt.failed, str(error))

    def _retry_compensation(self, attempt: RunnerAttempt, failed: Ending, why: str) -> None:
        """Try the compensation again here: a released job would be run again, not compensated. After
        `NOT_STARTED_MAX` tries it is reported as not compensated."""
        held, tries = attempt.held, attempt.tries + 1
        self._host.trouble(f"{self._app} cannot be run, to compensate {held.job_id}: {why}")
        if tries >= NOT_STARTED_MAX:
            self._host.ended([(held, replace(failed, compensated=False))])
        else:
            self._tasks.start(self._submit_later(RunnerAttempt(held, failed, tries)))

    async def _submit_later(self, attempt: RunnerAttempt) -> None:
        await self._host.clock.sleep(retry.give_back_wait(attempt.tries).total_seconds())
        self._submit([attempt])

    def renewed(self, held: HeldJob) -> None:
        if (place := self._running.get(held)) is not None:
            runner, attempt = place
            runner.send(Renewed(attempt.number, held.deadline))

    async def _set_deadlines(self) -> None:
        """Tell the process supervisor how long each runner may live: until the first lease in it ends."""
        while True:
            await self._host.clock.sleep(DEADLINE_SECONDS)
            for runner in self._pool.runners:
                if runner.ready:
                    self._set_deadline(runner)

    def _set_deadline(self, runner: RunnerConnection) -> None:
        """Set the deadline of a runner from the leases in it. An attempt that ignores a cancel does not
        count: its job ends with its lease, so no other worker gets it.

        A runner without attempts has a deadline too, before that of most jobs to come: so a job in an idle
        worker begins without a word to the process supervisor."""
        now = self._host.clock.monotonic()
        held_jobs = [attempt.held for attempt in runner.attempts.values()]
        deadlines = [held.ends_at for held in held_jobs if not held.abandoned]
        if deadlines:
            runner.set_deadline(min(deadlines), now)
        elif not now + IDLE_SECONDS / 2 < runner.deadline < now + 2 * IDLE_SECONDS:
            runner.set_deadline(now + IDLE_SECONDS, now)

    def _changed(self, runner: RunnerConnection, attempt: RunnerAttempt) -> None:
        if attempt.failed is not None and not attempt.held.lost:
            return  # only the loss of its lease stops a compensation
        if attempt.stopping is None or attempt.stopping.done():
            attempt.stopping = self._tasks.start(self._stop(runner, attempt))
        elif attempt.changed is not None:
            attempt.changed.set()

    async def _stop(self, runner: RunnerConnection, attempt: RunnerAttempt) -> None:
        """Stop an attempt. Where the work goes on all the same, the runner gets no more work: a cancelled
        job ends with its lease, any other ends here."""
        if await stop_attempt(self._host.clock, runner, attempt):
            return
        held = attempt.held
        self._pool.retire(runner)
        if self._compensates_stopped(attempt):  # not beside the work that it is to undo
            kill_runner(runner, "another job in its process could not be stopped otherwise")
        elif held.cancelled and not (held.lost or held.timed_out or held.released):
            held.abandon()
        else:
            self._finish(runner, attempt, stopped(held))
            if not runner.attempts:
                runner.kill()

    # What runners send.

    def received(self, runner: RunnerConnection, messages: Sequence[ToWorker]) -> None:
        endings: list[EndedJob] = []
        for message in messages:
            assert not isinstance(message, Hello)  # the connection keeps that to itself
            numbers = message.numbers if isinstance(message, Returned) else [message.number]
            try:
                self._receive(runner, message, endings)
            except Exception as error:
                self._fault(error, [runner.attempts[n].held for n in numbers if n in runner.attempts])
        if not endings:
            return
        self._pool.attempts_ended(runner, len(endings))
        try:
            self._host.ended(endings)
        except Exception as error:
            self._fault(error, [held for held, _ in endings])

    def _fault(self, error: Exception, held_jobs: Sequence[HeldJob]) -> None:
        self._host.trouble(f"the worker has a fault: {error!r}")
        for held in held_jobs:
            held.lose("the worker could not handle a message of its runner")

    def _receive(
        self, runner: RunnerConnection, message: Returned | OfOneAttempt, endings: list[EndedJob]
    ) -> None:
        """Handle the message, as far as it is about attempts that are not over here already."""
        if isinstance(message, Returned):
            for number, at in zip(message.numbers, message.at, strict=True):
                if (attempt := runner.attempts.get(number)) is not None:
                    self._end(runner, attempt, RETURNED, at, endings)
        elif (attempt := runner.attempts.get(message.number)) is not None:
            self._handle(runner, attempt, message, endings)

    def _end(
        self,
        runner: RunnerConnection,
        attempt: RunnerAttempt,
        ending: Ending,
        at: float,
        endings: list[EndedJob],
    ) -> None:
        """The attempt is over since `at`. Nothing more is to be done for one that ended well by itself in
        the shared runner: it is added to `endings`."""
        held = attempt.held
        special = attempt.stopping or attempt.failed or runner.exclusive
        if special or ending.failure is not None or ending.cancelled:
            if held.timed_out and ended_in_time(held, at):
                held.timed_out = False  # it ended in time, and the message came late
            self._finish(runner, attempt, ending)
        else:
            del runner.attempts[attempt.number]
            del self._running[held]
            endings.append((held, ending))

    def _handle(
        self,
        runner: RunnerConnection,
        attempt: RunnerAttempt,
        message: OfOneAttempt,
        endings: list[EndedJob],
    ) -> None:
        match message:
            case Ended():
                self._end(runner, attempt, message.ending, message.at, endings)
            case EmittedEvent():
                self._output.emit(runner, attempt.held, message)
            case ProgressUpdate():
                progress = Progress(message.done, message.total, message.message)
                self._host.progress(attempt.held, progress)
            case Checkpoint():
                self._tasks.start(self._checkpoint(runner, attempt.held, message))
            case StopReceived():
                if attempt.stop_reply is not None and not attempt.stop_reply.done():
                    attempt.stop_reply.set_result(message.thread)

    def wrote(self, runner: RunnerConnection, stream: str, data: bytes) -> None:
        """Direct output of an exclusive runner belongs to its job. A runner that writes while it has no job
        still runs something of the last one, whose output must not pass for the next one's: it is retired.
        Output of the shared runner may be of any job in it, and output while an app loads is of none: that
        goes to `stray`."""
        if not (runner.exclusive and runner.ready):
            if self._stray is not None:
                self._stray(data)
            return
        if not runner.attempts:
            self._pool.retire(runner)
        for attempt in runner.attempts.values():
            self._output.write(runner, attempt.held, stream, data)

    async def _checkpoint(self, runner: RunnerConnection, held: HeldJob, message: Checkpoint) -> None:
        error: str | None = None
        try:
            await self._host.checkpoint(held, msgspec.json.decode(message.value))
        except HoldfastError as refused:
            error = refused.message
        runner.send(CheckpointReply(message.number, message.call, error))

    def _finish(self, runner: RunnerConnection, attempt: RunnerAttempt, ending: Ending) -> None:
        """The attempt is over. If it failed for good it is compensated, if the job can be; then
        reported."""
        held = attempt.held
        if runner.exclusive:
            for stream, data in runner.unread_output():
                self.wrote(runner, stream, data)
        del runner.attempts[attempt.number]
        del self._running[held]
        if attempt.ended is not None and attempt.changed is not None:
            attempt.ended.set()
            attempt.changed.set()
        if attempt.stop_reply is not None and not attempt.stop_reply.done():
            attempt.stop_reply.set_result(False)
        if held.lost:
            self._set_deadline(runner)  # now: the supervisor must not kill the others for it
        self._pool.attempts_ended(runner, 1)
        if attempt.failed is not None and ending.machine and ending.failure is not None:
            self._retry_compensation(attempt, attempt.failed, ending.failure.message)
            return
        if attempt.failed is not None:
            ending = replace(attempt.failed, compensated=ending.compensated is True)
        elif held.timed_out:
            ending = Ending(failure=timed_out(held))
        elif held.cancelled and ending.snooze is not None:
            ending = stopped(held)
        if attempt.failed is None and self._compensates(held, ending):
            self._submit([RunnerAttempt(held, ending)])
        else:
            self._host.ended([(held, ending)])

    def _compensates(self, held: HeldJob, ending: Ending) -> bool:
        known = self._known[held.grant.job.spec.kind]
        return known.compensates and needs_compensation(held, ending)

    def _compensates_stopped(self, attempt: RunnerAttempt) -> bool:
        """Whether a compensation follows when this attempt is ended as it is."""
        held = attempt.held
        ending = Ending(failure=timed_out(held)) if held.timed_out else stopped(held)
        return attempt.failed is None and not held.cancelled and self._compensates(held, ending)

    def runner_ended(self, runner: RunnerConnection, exit: ProcessExit) -> None:  # noqa: A002
        """The process has ended, and the attempts in it.

        When there were several, it is unknown which one was at fault: all are released at no cost, and each
        gets a process of its own the next time it is run here.
        """
        attempts = list(runner.attempts.values())
        if len(attempts) > 1:
            for attempt in attempts:
                self._suspect(attempt.held)
        for attempt in attempts:
            self._finish(runner, attempt, crash_ending(attempt.held, exit, runner.memory_bytes))

    def _suspect(self, held: HeldJob) -> None:
        self._suspects[held.job_id] = None
        while len(self._suspects) > SUSPECTS_MAX:
            del self._suspects[next(iter(self._suspects))]
        if not held.must_stop:
            held.listener = None
            held.give_back("the process that ran it died, with others in it")
