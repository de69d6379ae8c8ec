"""What a worker claims, and what it gives back untried when its machine is at fault."""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from holdfast.core.job import Job
from holdfast.core.spec import COMMAND_KIND
from holdfast.core.state import State
from holdfast.registry.local import LocalRegistry
from holdfast.system import SystemClock, SystemIds
from holdfast.testing.world import open_world
from holdfast.worker.claim_pause import RESERVE_MAX
from holdfast.worker.claims import Claims, WorkerSettings, choose_queues
from holdfast.worker.executor import Host
from holdfast.worker.failures import machine_fault
from holdfast.worker.held_job import HeldJob
from holdfast.worker.leaving import Leaving
from holdfast.worker.prefetch import Prefetch
from holdfast.worker.spool import MemorySpool
from holdfast.worker.worker import Worker
from tests.conftest import memory_store
from tests.worker.command_workers import CommandWorkers, SilentObserver


class FaultyExecutor:
    """An executor that can begin nothing, and tells its worker to leave after this many tries."""

    kinds: tuple[str, ...] = (COMMAND_KIND,)

    def __init__(self, tries: int) -> None:
        self.tries = tries
        self.tried: list[str] = []
        self.freed: list[int] = []
        self.leave: Callable[[], None] | None = None

    async def open(self, host: Host) -> None:
        self._host = host

    def run(self, holds: Sequence[HeldJob]) -> None:
        asyncio.get_running_loop().call_soon(self._fail, list(holds))

    def _fail(self, holds: list[HeldJob]) -> None:
        assert self.leave is not None
        self.tried += [hold.job_id for hold in holds]
        before = len(os.listdir("/proc/self/fd"))
        for hold in holds:
            self._host.ended([(hold, machine_fault(OSError(24, "Too many open files"), "sh"))])
        self.freed.append(before - len(os.listdir("/proc/self/fd")))
        if len(self.tried) >= self.tries:
            self.leave()

    def renewed(self, hold: HeldJob) -> None: ...

    async def close(self) -> None: ...


def run_faulty(command_workers: CommandWorkers, faulty: FaultyExecutor, jobs: list[str]) -> list[Job]:
    """The jobs, after a worker with one slot has tried to run them."""

    async def work(registry: LocalRegistry) -> list[Job]:
        worker = Worker(
            registry,
            WorkerSettings(owner="w-1", slots=1),
            command_workers.observer,
            clock=SystemClock(),
            ids=SystemIds(),
            executors=[faulty],
            spool=MemorySpool(),
        )
        faulty.leave = worker.leave
        await worker.run()
        return [await registry.status(job_id) for job_id in jobs]

    return command_workers.use(work)


def test_what_was_claimed_ahead_is_given_back_untried_when_the_machine_is_at_fault(
    command_workers: CommandWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Prefetch, "wanted", lambda _, waiting, held: 5 - held)
    jobs = [command_workers.submit("true") for _ in range(5)]
    faulty = FaultyExecutor(tries=1)

    given = run_faulty(command_workers, faulty, jobs)

    assert len(faulty.tried) == 1
    assert faulty.freed == [RESERVE_MAX]  # descriptors, with which the store can be told
    assert {(job.state, job.attempt, job.failures, job.crashes) for job in given} == {(State.QUEUED, 2, 0, 0)}
    assert [job.reason for job in given].count("the worker cannot run jobs now") == 4


def test_after_a_fault_of_the_machine_one_job_at_a_time_is_claimed(
    command_workers: CommandWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    claim = Claims.claim

    async def counted(
        self: Claims, op_id: str, wanted: int, leaving: Leaving, *, without: frozenset[str]
    ) -> list[HeldJob]:
        asked.append(wanted)
        return await claim(self, op_id, wanted, leaving, without=without)

    monkeypatch.setattr(Claims, "claim", counted)
    monkeypatch.setattr(Prefetch, "wanted", lambda _, waiting, held: 5 - held)
    monkeypatch.setattr("holdfast.worker.claim_pause.PAUSE_SECONDS", 0.01)
    jobs = [command_workers.submit("true") for _ in range(5)]

    given = run_faulty(command_workers, FaultyExecutor(tries=4), jobs)

    assert asked == [5, 1, 1, 1]
    assert {(job.state, job.failures, job.crashes) for job in given} == {(State.QUEUED, 0, 0)}


@pytest.mark.parametrize(
    ("given", "named", "chosen"),
    [
        ((), (), (("default",), ())),
        ((), ("mail", "images", "mail"), (("mail", "images", "default"), ())),
        ((), ("default", "mail"), (("default", "mail"), ())),
        (("mail",), ("default", "mail", "images"), (("mail",), ("default", "images"))),
        (("other", "mail"), ("mail",), (("other", "mail"), ())),
    ],
)
def test_a_worker_serves_the_queues_of_its_app_unless_some_are_given(
    given: tuple[str, ...], named: tuple[str, ...], chosen: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    assert choose_queues(given, named) == chosen


@pytest.mark.parametrize(
    ("in_turn", "order"), [(True, ["a", "b", "a", "b", "a", "a"]), (False, ["a", "a", "a", "a", "b", "b"])]
)
async def test_no_queue_has_to_wait_for_another_unless_their_order_was_given(
    in_turn: bool, order: list[str]
) -> None:
    async with open_world(memory_store, Path()) as world:
        for queue in "aaaabb":
            await world.enqueue(queue=queue)
        settings = WorkerSettings(owner="w1", queues=("a", "b"), in_turn=in_turn)
        claims = Claims(world.registry, settings, SilentObserver(), clock=world.clock, kinds=())

        claimed = [await claims.claim(f"claim-{n}", 1, Leaving()) for n in range(6)]

    assert [held.grant.job.spec.queue for [held] in claimed] == order
