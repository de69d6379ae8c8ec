"""The work of a simulated worker: some steps, some output, some side effects, then an end."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random  # noqa: TID251  # seeded: the same chance every time

from holdfast.core.catalogue import ReasonCode, WorkerEventType
from holdfast.core.job import Failure
from holdfast.testing.simulation.downstream import Downstream
from holdfast.testing.simulation.loop import Node
from holdfast.testing.simulation.shelf import Shelf
from holdfast.testing.simulation.wishes import wishing
from holdfast.testing.simulation.witness import Witness
from holdfast.worker.executor import Ending, Host
from holdfast.worker.hold import Hold
from holdfast.worker.outcomes import timed_out
from holdfast.worker.tasks import stop

DRIFT_MAX = 0.05
QUIET = 0.3


class Chores:
    """Runs jobs without a process: an executor for the real worker."""

    kinds: tuple[str, ...] = ("command",)

    def __init__(
        self,
        node: Node,
        chance: Random,
        witness: Witness,
        downstream: Downstream,
        *,
        one_clock: bool,
        shelf: Shelf | None = None,
    ) -> None:
        self.node = node
        self.chance = chance
        self.witness = witness
        self.downstream = downstream
        self.one_clock = one_clock
        self.shelf = shelf
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def open(self, host: Host) -> None:
        self._host = host

    def run(self, holds: Sequence[Hold]) -> None:
        for hold in holds:
            task = asyncio.create_task(self._run(hold))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    async def _run(self, hold: Hold) -> None:
        self._host.ended(hold, await Chore(self, hold, self._host).run())

    def renewed(self, hold: Hold) -> None: ...

    async def close(self) -> None:
        await stop(*self._tasks)


class Chore:
    """One attempt."""

    def __init__(self, chores: Chores, hold: Hold, host: Host) -> None:
        self._chores = chores
        self._hold = hold
        self._host = host
        self._quiet = chores.chance.random() < QUIET
        self._told = 0
        self._stirred = asyncio.Event()
        hold.listener = self._stirred.set

    async def run(self) -> Ending:
        chance, hold = self._chores.chance, self._hold
        for _ in range(chance.randint(1, 4)):
            if await self._interrupted(chance.choice((0.05, 0.2, 0.9, 2.5))):
                if hold.timed_out and not (hold.lost or hold.cancelled or hold.released):
                    return Ending(failure=timed_out(hold))
                return Ending(cancelled=True, stopped=True)
            self._check_belief()
            self._tell()
            if not self._chores.downstream.write(hold.grant):
                hold.lose("the resource knows a newer owner")
        self._chores.witness.told[hold.job_id, hold.grant.fencing_token] = self._told
        if self._chores.shelf is not None:
            self._chores.shelf.work(hold.grant, chance)
        return wishing(hold.grant, ending(chance))

    def _tell(self) -> None:
        if not self._hold.lost and not self._quiet:
            self._told += 1
            self._host.output(self._hold).tell(WorkerEventType.CUSTOM, step=self._told)

    async def _interrupted(self, seconds: float) -> bool:
        """Work for so long; whether something came up meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._hold.stopping:
                    await self._stirred.wait()
                    self._stirred.clear()
        return self._hold.stopping

    def _check_belief(self) -> None:
        """I16 as the worker sees it: never surer of its lease than the store is."""
        track = self._chores.witness.jobs.get(self._hold.job_id)
        if not self._chores.one_clock or track is None:
            return
        job = track.job
        if job is None or job.lease is None:
            return
        if job.fencing_token != self._hold.grant.fencing_token:
            return
        believed, given = self._hold.deadline / self._chores.node.rate, track.leased_until
        allowed = job.lease.ttl.total_seconds() * DRIFT_MAX * 2 + 0.001
        words = f"{job.job_id}: believed until second {believed:.3f}, given until {given:.3f}"
        self._chores.witness.expect("I16", believed <= given + allowed, words)


def ending(chance: Random) -> Ending:
    """How it ends: well, mostly."""
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
