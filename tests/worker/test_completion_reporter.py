"""How a worker reports the ends of attempts: late, refused, or broken off."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest

from holdfast.core.catalogue import ReasonCode
from holdfast.core.cost import last_attempt_duration
from holdfast.core.errors import Denied, Exhausted, HoldfastError, Unavailable
from holdfast.core.job import Job
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Completion, JobRequest, Registry
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_registry
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import CountingIds, ManualClock
from holdfast.worker.claims import WorkerSettings
from holdfast.worker.completion_reporter import CompletionReporter
from holdfast.worker.executor import Ending, Host
from holdfast.worker.failures import needs_compensation
from holdfast.worker.held_job import HeldJob
from holdfast.worker.spool import MemoryAttemptLog, MemorySpool
from holdfast.worker.tasks import stop
from holdfast.worker.worker import Worker
from tests.worker.command_workers import CommandWorkers, SilentObserver
from tests.worker.fake_runner import CLOCK, claim_job
from tests.worker.live_processes import PATIENCE_SECONDS

IDS = SystemIds()
STOPPED = Ending(cancelled=True, stopped=True)


async def cancelled(registry: Registry) -> HeldJob:
    """A job that is cancelled while its worker leaves."""
    hold = await claim_job(registry)
    await registry.cancel(hold.job_id, actor="user:ana")
    hold.cancelled = True
    hold.released = "the worker is leaving"
    return hold


async def test_a_cancelled_job_is_compensated_though_its_worker_leaves() -> None:
    registry = await open_registry("memory://")
    hold = await cancelled(registry)
    assert needs_compensation(hold, STOPPED)
    hold.cancelled = False
    assert not needs_compensation(hold, STOPPED)
    await registry.close()


@pytest.mark.parametrize("compensated", [False, True, None])
async def test_what_was_undone_or_could_not_be_is_told_though_the_worker_leaves(
    compensated: bool | None,
) -> None:
    registry = await open_registry("memory://")
    hold = await cancelled(registry)
    over = asyncio.Event()
    endings = CompletionReporter(registry, CLOCK, IDS, SilentObserver(), {}, lambda _: over.set())
    running = asyncio.create_task(endings.run())
    ending = msgspec.structs.replace(STOPPED, compensated=compensated)
    endings.add([(hold, ending)])
    await over.wait()
    await stop(running)

    job = await registry.status(hold.job_id)
    types = [str(event.event_type) for event in await registry.history(hold.job_id)]
    if compensated is False:
        assert job.dead_letter is not None
        assert job.dead_letter.reason_code is ReasonCode.COMPENSATION_FAILED
    else:
        assert job.state is State.CANCELLED
        assert ("job_compensated" in types) is bool(compensated)
    await registry.close()


class UnremovableSpool(MemorySpool):
    """A spool whose logs cannot be removed."""

    def log(self, hold: HeldJob) -> MemoryAttemptLog:
        return UnremovableLog()


class UnremovableLog(MemoryAttemptLog):
    def remove(self) -> None:
        raise OSError("it sticks")


class PrintingExecutor:
    """An executor whose jobs say a word and end."""

    kinds: tuple[str, ...] = ("work",)

    async def open(self, host: Host) -> None:
        self._host = host

    def run(self, holds: Sequence[HeldJob]) -> None:
        for hold in holds:
            self._host.output(hold).write(b"word", "stdout")
            self._host.ended([(hold, Ending())])

    def renewed(self, hold: HeldJob) -> None: ...

    async def close(self) -> None: ...


async def test_an_ending_that_breaks_does_not_keep_the_worker() -> None:
    registry, observer = await open_registry("memory://"), SilentObserver()
    hold = await claim_job(registry)
    await registry.release(hold.grant, reason="for the worker")
    worker = Worker(
        registry,
        WorkerSettings(owner="w-2", drain=True),
        observer,
        clock=CLOCK,
        ids=IDS,
        executors=[PrintingExecutor()],
        spool=UnremovableSpool(),
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        await worker.run()

    assert (await registry.status(hold.job_id)).state is State.SUCCEEDED
    assert any("it sticks" in trouble for trouble in observer.troubles)
    await registry.close()


class AbsentRegistry(LocalRegistry):
    """A registry that is away for 20 seconds when it is first told of an ending."""

    clock: ManualClock

    async def complete_many(self, completions: Sequence[Completion]) -> list[Job | HoldfastError]:
        self.clock.advance(20)
        return [Unavailable("The store is away.") for _ in completions]


class SlowExecutor(PrintingExecutor):
    """An executor whose jobs work for 20 seconds."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def run(self, holds: Sequence[HeldJob]) -> None:
        for hold in holds:
            self._clock.advance(20)
            self._host.ended([(hold, Ending())])


class TimingObserver(SilentObserver):
    """A observer that keeps how long attempts took."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def ended(self, job: Job, seconds: float) -> None:
        self.seconds.append(seconds)


async def test_an_attempt_takes_as_long_as_its_work_however_long_the_store_is_away() -> None:
    clock, ids, observer = ManualClock(), CountingIds(), TimingObserver()
    registry = AbsentRegistry(MemoryStore(clock, ids), ids)
    registry.clock = clock
    hold = await claim_job(registry)
    worker = Worker(
        registry,
        WorkerSettings(owner="w"),
        observer,
        clock=clock,
        ids=ids,
        executors=[SlowExecutor(clock)],
        spool=MemorySpool(),
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        ours = await worker.run_one(hold.grant, clock.monotonic() + 60)

    assert ours, observer.losses

    assert (await registry.status(hold.job_id)).state is State.SUCCEEDED
    assert observer.troubles == ["The store is away."]
    assert observer.seconds == [20]
    history = await registry.history(hold.job_id)
    assert history[-1].occurred_at - history[0].occurred_at == timedelta(seconds=40)
    assert last_attempt_duration(history, clock.now()) == timedelta(seconds=20)
    await registry.close()


class RefusingRegistry(LocalRegistry):
    """A registry that takes no follow-ups, as a server does whose key or queue is in the way."""

    error: HoldfastError

    async def complete_many(self, completions: Sequence[Completion]) -> list[Job | HoldfastError]:
        if any(one.follow_ups for one in completions):
            return [self.error for _ in completions]
        return await super().complete_many(completions)


class FollowUpExecutor(PrintingExecutor):
    """An executor whose jobs ask for another one."""

    def run(self, holds: Sequence[HeldJob]) -> None:
        asked = msgspec.json.encode([JobRequest(spec=Spec(queue="far"))])
        for hold in holds:
            self._host.ended([(hold, Ending(follow_ups=asked))])


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (Denied("It does not reach far."), State.DEAD_LETTERED),
        (Exhausted("far is full."), State.QUEUED),
    ],
)
async def test_a_job_whose_follow_ups_are_refused_fails_or_waits_and_says_why(
    error: HoldfastError, state: State
) -> None:
    """A full queue costs it nothing; a key that does not reach one is not mended by another try."""

    clock, ids = ManualClock(), CountingIds()
    registry = RefusingRegistry(MemoryStore(clock, ids), ids)
    registry.error = error
    hold = await claim_job(registry)
    worker = Worker(
        registry,
        WorkerSettings(owner="w"),
        SilentObserver(),
        clock=clock,
        ids=ids,
        executors=[FollowUpExecutor()],
        spool=MemorySpool(),
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        await worker.run_one(hold.grant, clock.monotonic() + 60)

    job = await registry.status(hold.job_id)
    assert (job.state, job.crashes) == (state, 0)
    assert error.message in (job.reason or "")
    await registry.close()


def test_a_job_that_the_worker_has_ended_itself_is_not_reported_as_lost(
    command_workers: CommandWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    telling = CompletionReporter._conclude

    def tell(self: CompletionReporter, hold: HeldJob, answer: Job | HoldfastError) -> None:
        hold.lose("the job is succeeded")  # as the keeper hears it, a moment before it is let go
        telling(self, hold, answer)

    monkeypatch.setattr(CompletionReporter, "_conclude", tell)
    command_workers.submit("true")

    command_workers.drain()

    assert command_workers.observer.losses == []
