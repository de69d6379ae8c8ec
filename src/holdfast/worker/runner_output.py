"""What handlers write and emit in runners, on its way to the output of their attempts."""

from datetime import UTC, datetime

from holdfast.core.catalogue import WorkerEventType
from holdfast.worker.executor import Host
from holdfast.worker.frames import EmittedEvent
from holdfast.worker.held_job import HeldJob
from holdfast.worker.output import AttemptOutput
from holdfast.worker.runner_connection import RunnerConnection
from holdfast.worker.tasks import Tasks


class RunnerOutput:
    """Adds to the outputs of attempts, and slows down a runner that writes more than the store takes."""

    def __init__(self, host: Host, tasks: Tasks) -> None:
        self._host = host
        self._tasks = tasks

    def emit(self, runner: RunnerConnection, held: HeldJob, event: EmittedEvent) -> None:
        """Add what the handler has written, or an event that it has emitted."""
        output = self._host.output(held)
        at = datetime.fromtimestamp(event.at, UTC)
        if event.data is not None:
            output.write(event.data, event.stream or "stdout", at)
        else:
            output.add_event(WorkerEventType(event.event_type), at=at, **(event.attributes or {}))
        self._slow_down(runner, output)

    def write(self, runner: RunnerConnection, held: HeldJob, stream: str, data: bytes) -> None:
        """Add what the process of the runner has written directly."""
        output = self._host.output(held)
        output.write(data, stream)
        self._slow_down(runner, output)

    def _slow_down(self, runner: RunnerConnection, output: AttemptOutput) -> None:
        """Read no more from a runner whose job writes more than the store takes, until there is room. A
        runner with an attempt to stop is read: else its reply would wait behind all that was written."""
        if output.full and not _is_stopping(runner) and runner.pause_reading():
            self._tasks.start(self._resume_reading(runner, output))

    async def _resume_reading(self, runner: RunnerConnection, output: AttemptOutput) -> None:
        await output.wait_for_room()
        runner.resume_reading()


def _is_stopping(runner: RunnerConnection) -> bool:
    """Whether an attempt in this runner was told to stop and has not ended yet."""
    attempts = runner.attempts.values()
    return any(attempt.ended is not None and not attempt.held.abandoned for attempt in attempts)
