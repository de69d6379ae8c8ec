"""Functions: jobs whose handlers are Python functions of an app, run in processes apart from the worker.

A handler that has to stop is told; one that does not heed it is cancelled, or its process is killed.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from holdfast.core import retry
from holdfast.core.catalogue import WorkerEventType
from holdfast.core.errors import HoldfastError, Invalid
from holdfast.core.job import Progress
from holdfast.core.limits import NOT_STARTED_MAX
from holdfast.worker.attempts import Attempt, died, run_of
from holdfast.worker.executor import Ending, Host
from holdfast.worker.faults import machine_fault
from holdfast.worker.frames import (
    Advanced,
    Answer,
    Checkpoint,
    Compensate,
    Ended,
    Hello,
    Known,
    Renewed,
    Said,
    Told,
    ToWorker,
)
from holdfast.worker.hold import Hold
from holdfast.worker.link import Link
from holdfast.worker.outcomes import stopped, timed_out, to_compensate
from holdfast.worker.output import Output
from holdfast.worker.processes import Exit, Processes
from holdfast.worker.redaction import NOTHING_HIDDEN, Redactor
from holdfast.worker.runners import Runners
from holdfast.worker.stopping import stop_attempt
from holdfast.worker.tasks import Tasks

GOVERN_SECONDS = 0.25
SUSPECTS_MAX = 10_000


class Functions:
    """Runs the jobs of one app. `load` first: it says what there is. `stray` is given what the process that
    several jobs share writes past Python; without it, that goes where the worker's stderr goes."""

    kinds: tuple[str, ...] = ()

    def __init__(
        self,
        processes: Processes,
        app: str,
        *,
        slots: int,
        env: Mapping[str, str],
        url: str | None = None,
        outputs: str | None = None,
        stray: Callable[[bytes], None] | None = None,
        redactor: Redactor = NOTHING_HIDDEN,
    ) -> None:
        self._app = app
        self._stray = stray
        self._redactor = redactor
        self._runners = Runners(
            self,
            processes,
            app,
            slots=slots,
            env=env,
            stores=(url or "", outputs or ""),
            piped=stray is not None,
        )
        self._known: dict[str, Known] = {}
        self._where: dict[Hold, tuple[Link, Attempt]] = {}
        self._suspects: dict[str, None] = {}
        self._number = 0

    async def load(self) -> Hello:
        """Start the app; `Invalid` when it cannot be loaded."""
        try:
            hello = await self._runners.load()
        except Invalid as error:  # it has the app's own words
            error.message = self._redactor.text(error.message)
            raise
        if not hello.known:
            raise Invalid(f"{self._app} has no jobs.", advice="Decorate a function with @app.job.")
        self._known = {known.kind: known for known in hello.known}
        self.kinds = tuple(self._known)
        return hello

    async def open(self, host: Host) -> None:
        self._host = host
        self._tasks = Tasks(host.trouble)
        self._tasks.start(self._govern())

    async def close(self) -> None:
        for hold in list(self._where):
            hold.listener = None
            hold.lose("the worker has ended")
        await self._tasks.stop()
        await self._runners.close()

    def run(self, holds: Sequence[Hold]) -> None:
        for hold in holds:
            self._submit(Attempt(hold))

    def _submit(self, attempt: Attempt) -> None:
        known = self._known[attempt.hold.grant.job.spec.kind]
        if attempt.hold.job_id in self._suspects:
            known = replace(known, isolation="process")
        self._runners.submit(attempt, known)

    def begin(self, link: Link, attempt: Attempt) -> None:
        """Send it to a runner: it has begun."""
        hold = attempt.hold
        if attempt.failed is None:
            hold.timed_out = False  # its time counts from now, not from when it began to wait
        if hold.lost or (hold.stopping and attempt.failed is None):
            self._host.ended(hold, stopped(hold))
            return
        self._number += 1
        attempt.number = self._number
        link.attempts[attempt.number] = attempt
        self._where[hold] = link, attempt
        now = self._host.clock.monotonic()
        if hold.deadline < link.deadline:
            link.govern(hold.deadline, now)
        hold.listener = lambda: self._stir(link, attempt)
        run = run_of(attempt)
        if attempt.failed is None:
            self._host.begun(hold)
            link.send(run)
        else:
            link.send(Compensate(run))
            if (limit := hold.grant.job.spec.timeout) is not None:
                self._tasks.start(self._time_out(link, attempt, limit.total_seconds()))

    async def _time_out(self, link: Link, attempt: Attempt, seconds: float) -> None:
        """A compensation has as much time as its handler had."""
        await self._host.clock.sleep(seconds)
        if attempt.number in link.attempts:
            attempt.hold.timed_out = True
            await stop_attempt(self, self._host.clock, link, attempt)

    def put_off(self, attempt: Attempt, error: Exception) -> None:
        if attempt.failed is None:
            self._host.ended(attempt.hold, machine_fault(error, f"{self._app} cannot be run"))
        else:
            self._put_off_undoing(attempt, attempt.failed, str(error))

    def _put_off_undoing(self, attempt: Attempt, failed: Ending, why: str) -> None:
        """Given back, the job would be done once more, not undone: so it is kept, and tried again here. It is
        parked, for somebody to look at, when that has not helped so many times."""
        hold, tries = attempt.hold, attempt.tries + 1
        self._host.trouble(f"{self._app} cannot be run, to undo {hold.job_id}: {why}")
        if tries >= NOT_STARTED_MAX:
            self._host.ended(hold, replace(failed, compensated=False))
        else:
            self._tasks.start(self._submit_later(Attempt(hold, failed, tries)))

    async def _submit_later(self, attempt: Attempt) -> None:
        await self._host.clock.sleep(retry.put_off(attempt.tries).total_seconds())
        self._submit(attempt)

    def renewed(self, hold: Hold) -> None:
        if (place := self._where.get(hold)) is not None:
            link, attempt = place
            link.send(Renewed(attempt.number, hold.deadline))

    async def _govern(self) -> None:
        """Tell the warden how long each runner may live: as long as every job in it is surely ours."""
        while True:
            await self._host.clock.sleep(GOVERN_SECONDS)
            for link in self._runners.links:
                if link.ready:
                    self._limit(link)

    def _limit(self, link: Link) -> None:
        """What has been cancelled and does not heed it is nobody else's after its lease: it may stay
        as long as the others."""
        holds = [attempt.hold for attempt in link.attempts.values()]
        deadlines = [hold.deadline for hold in holds if not hold.silent]
        link.govern(min(deadlines, default=float("inf")), self._host.clock.monotonic())

    def _stir(self, link: Link, attempt: Attempt) -> None:
        if attempt.failed is not None and not attempt.hold.lost:
            return  # a compensation is stopped by nothing but the loss of the lease
        if attempt.stopping is None or attempt.stopping.done():
            attempt.stopping = self._tasks.start(
                stop_attempt(self, self._host.clock, link, attempt)
            )
        elif attempt.stirred is not None:
            attempt.stirred.set()

    # What runners say.

    def heard(self, link: Link, message: ToWorker) -> None:
        assert not isinstance(message, Hello)  # the link keeps that to itself
        attempt = link.attempts.get(message.number)
        if attempt is None:
            return  # a straggler: over for us already
        try:
            self._take(link, attempt, message)
        except Exception as error:
            self._host.trouble(f"the worker has a fault: {error!r}")
            attempt.hold.lose("the worker could not take what it said")

    def _take(self, link: Link, attempt: Attempt, message: ToWorker) -> None:
        match message:
            case Ended():
                if attempt.hold.timed_out and _in_time(attempt.hold, message.at):
                    attempt.hold.timed_out = False  # it was we who heard of it late
                self.finish(link, attempt, message.ending)
            case Said():
                self._said(link, attempt.hold, message)
            case Advanced():
                progress = Progress(message.done, message.total, message.message)
                self._host.progress(attempt.hold, progress)
            case Checkpoint():
                self._tasks.start(self._checkpoint(link, attempt.hold, message))
            case Told():
                if attempt.told is not None and not attempt.told.done():
                    attempt.told.set_result(message.thread)

    def _said(self, link: Link, hold: Hold, said: Said) -> None:
        output = self._host.output(hold)
        at = datetime.fromtimestamp(said.at, UTC)
        if said.data is not None:
            output.write(said.data, said.stream or "stdout", at)
        else:
            output.tell(WorkerEventType(said.event_type), at=at, **(said.attributes or {}))
        self._slow_down(link, output)

    def wrote(self, link: Link, stream: str, data: bytes) -> None:
        """What an exclusive runner has written past Python is its job's. One that writes without a job
        has something left over from the last, which must not pass for the next one's. What the shared one
        writes may be of any job in it, and what one writes as it loads its app is of none: that goes to the
        worker's own log."""
        if not (link.exclusive and link.ready):
            if self._stray is not None:
                self._stray(data)
            return
        if not link.attempts:
            self._runners.retire(link)
        for attempt in link.attempts.values():
            output = self._host.output(attempt.hold)
            output.write(data, stream)
            self._slow_down(link, output)

    def _slow_down(self, link: Link, output: Output) -> None:
        """Hear no more from a runner whose job says more than the store takes, until there is room. One
        that has something to stop is heard: else its answer would wait behind all that was said."""
        if output.full and not _stops(link) and link.deafen():
            self._tasks.start(self._hear_again(link, output))

    async def _hear_again(self, link: Link, output: Output) -> None:
        await output.room()
        link.listen()

    async def _checkpoint(self, link: Link, hold: Hold, message: Checkpoint) -> None:
        error: str | None = None
        try:
            await self._host.checkpoint(hold, msgspec.json.decode(message.value))
        except HoldfastError as refused:
            error = refused.message
        link.send(Answer(message.number, message.call, error))

    def finish(self, link: Link, attempt: Attempt, ending: Ending) -> None:
        """It is over. What failed for good is compensated, if the job can be; then the worker is told."""
        hold = attempt.hold
        if link.exclusive:
            for stream, data in link.rest():
                self.wrote(link, stream, data)
        del link.attempts[attempt.number]
        del self._where[hold]
        if attempt.over is not None and attempt.stirred is not None:
            attempt.over.set()
            attempt.stirred.set()
        if attempt.told is not None and not attempt.told.done():
            attempt.told.set_result(False)
        if hold.lost:
            self._limit(link)  # now: the others must not die for it
        self._runners.ended(link)
        if attempt.failed is not None and ending.machine and ending.failure is not None:
            self._put_off_undoing(attempt, attempt.failed, ending.failure.message)
            return
        if attempt.failed is not None:
            ending = replace(attempt.failed, compensated=ending.compensated is True)
        elif hold.timed_out:
            ending = Ending(failure=timed_out(hold))
        elif hold.cancelled and ending.snooze is not None:
            ending = stopped(hold)
        if attempt.failed is None and self._undoes(hold, ending):
            self._submit(Attempt(hold, ending))
        else:
            self._host.ended(hold, ending)

    def _undoes(self, hold: Hold, ending: Ending) -> bool:
        known = self._known[hold.grant.job.spec.kind]
        return known.compensates and to_compensate(hold, ending)

    def undoes(self, attempt: Attempt) -> bool:
        hold = attempt.hold
        ending = Ending(failure=timed_out(hold)) if hold.timed_out else stopped(hold)
        return attempt.failed is None and not hold.cancelled and self._undoes(hold, ending)

    def retire(self, link: Link) -> None:
        self._runners.retire(link)

    def died(self, link: Link, exit: Exit) -> None:  # noqa: A002
        """The process has ended: so have the attempts that were in it.

        When there were several, nobody knows whose fault it was: none pays for it, and each has a
        process of its own the next time it comes here.
        """
        attempts = list(link.attempts.values())
        if len(attempts) > 1:
            for attempt in attempts:
                self._suspect(attempt.hold)
        for attempt in attempts:
            self.finish(link, attempt, died(attempt.hold, exit, link.memory_bytes))

    def _suspect(self, hold: Hold) -> None:
        self._suspects[hold.job_id] = None
        while len(self._suspects) > SUSPECTS_MAX:
            del self._suspects[next(iter(self._suspects))]
        if not hold.stopping:
            hold.listener = None
            hold.give_back("the process that ran it died, with others in it")


def _stops(link: Link) -> bool:
    """Whether anything in this runner was told to stop, and has not ended yet."""
    attempts = link.attempts.values()
    return any(attempt.over is not None and not attempt.hold.silent for attempt in attempts)


def _in_time(hold: Hold, ended_at: float) -> bool:
    limit, begun_at = hold.grant.job.spec.timeout, hold.begun_at
    return not (limit is None or begun_at is None) and ended_at - begun_at < limit.total_seconds()
