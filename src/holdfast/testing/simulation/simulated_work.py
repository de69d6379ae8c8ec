"""The work of a simulated worker: some steps, some output, some side effects, then an end."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random  # noqa: TID251  # seeded: the same chance every time

from holdfast.core.catalogue import ReasonCode, WorkerEventType
from holdfast.core.job import Failure
from holdfast.testing.simulation.downstream import Downstream
from holdfast.testing.simulation.invariant_checker import InvariantChecker
from holdfast.testing.simulation.loop import Node
from holdfast.testing.simulation.output_store import FakeOutputStore
from holdfast.testing.simulation.planned_follow_ups import with_follow_ups
from holdfast.worker.executor import Ending, Host
from holdfast.worker.failures import timed_out
from holdfast.worker.held_job import HeldJob
from holdfast.worker.tasks import stop

DRIFT_MAX = 0.05
QUIET = 0.3


class SimulatedExecutor:
    """An executor for the real worker that runs jobs without a process."""

    kinds: tuple[str, ...] = ("command",)

    def __init__(
        self,
        node: Node,
        chance: Random,
        checker: InvariantChecker,
        downstream: Downstream,
        *,
        one_clock: bool,
        output_store: FakeOutputStore | None = None,
    ) -> None:
        self.node = node
        self.chance = chance
        self.checker = checker
        self.downstream = downstream
        self.one_clock = one_clock
        self.output_store = output_store
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def open(self, host: Host) -> None:
        self._host = host

    def run(self, holds: Sequence[HeldJob]) -> None:
        for hold in holds:
            task = asyncio.create_task(self._run(hold))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    async def _run(self, hold: HeldJob) -> None:
        ending = await SimulatedAttempt(self, hold, self._host).run()
        self._host.ended([(hold, ending)])

    def renewed(self, hold: HeldJob) -> None: ...

    async def close(self) -> None:
        await stop(*self._tasks)


class SimulatedAttempt:
    """One attempt."""

    def __init__(self, executor: SimulatedExecutor, hold: HeldJob, host: Host) -> None:
        self._executor = executor
        self._hold = hold
        self._host = host
        self._quiet = executor.chance.random() < QUIET
        self._published = 0
        self._changed = asyncio.Event()
        hold.listener = self._changed.set

    async def run(self) -> Ending:
        chance, hold = self._executor.chance, self._hold
        for _ in range(chance.randint(1, 4)):
            if await self._interrupted(chance.choice((0.05, 0.2, 0.9, 2.5))):
                if hold.timed_out and not (hold.lost or hold.cancelled or hold.released):
                    return Ending(failure=timed_out(hold))
                return Ending(cancelled=True, stopped=True)
            self._check_deadline()
            self._publish()
            if not self._executor.downstream.write(hold.grant):
                hold.lose("the resource knows a newer owner")
        self._executor.checker.published[hold.job_id, hold.grant.fencing_token] = self._published
        if self._executor.output_store is not None:
            self._executor.output_store.write_outputs(hold.grant, chance)
        return with_follow_ups(hold.grant, ending(chance))

    def _publish(self) -> None:
        if not self._hold.lost and not self._quiet:
            self._published += 1
            self._host.output(self._hold).add_event(WorkerEventType.CUSTOM, step=self._published)

    async def _interrupted(self, seconds: float) -> bool:
        """Work for this many seconds; return whether the attempt must stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._hold.must_stop:
                    await self._changed.wait()
                    self._changed.clear()
        return self._hold.must_stop

    def _check_deadline(self) -> None:
        """I16 as the worker sees it: its lease does not end later for it than for the store."""
        track = self._executor.checker.jobs.get(self._hold.job_id)
        if not self._executor.one_clock or track is None:
            return
        job = track.job
        if job is None or job.lease is None:
            return
        if job.fencing_token != self._hold.grant.fencing_token:
            return
        believed, given = self._hold.deadline / self._executor.node.rate, track.leased_until
        allowed = job.lease.ttl.total_seconds() * DRIFT_MAX * 2 + 0.001
        words = f"{job.job_id}: believed until second {believed:.3f}, given until {given:.3f}"
        self._executor.checker.expect("I16", believed <= given + allowed, words)


def ending(chance: Random) -> Ending:
    """Return an ending: mostly a success."""
    draw = chance.random()
    if draw < 0.55:
        return Ending(result=b'{"loss":%.3f}' % draw)
    return Ending(failure=failure(draw))


def failure(draw: float) -> Failure:
    if draw < 0.8:
        return Failure(message="the network hiccuped", code="TransientError")
    if draw < 0.9:
        return Failure(message="killed", code="Exit137", exit_code=137, crash=True)
    if draw < 0.93:
        return Failure(message="no argument gift", retryable=False, not_understood=True)
    if draw < 0.94:
        return Failure(message="no such folder", retryable=False, not_started=True)
    if draw < 0.95:
        return Failure(message="bad input", retryable=False, reason_code=ReasonCode.PARSE_ERROR)
    return Failure(message="no such model", retryable=False)
