"""How a worker ends attempts, by parts: endings that break or come late, and spools of the dead."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import msgspec
import pytest
from link_desk import CLOCK, held, run
from shop import Silent

from holdfast.core.catalogue import ReasonCode
from holdfast.core.errors import Denied, Exhausted, HoldfastError, Unavailable
from holdfast.core.job import Job
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Completion, Registry, Request
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_registry
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import CountingIds, ManualClock
from holdfast.worker.claims import Settings
from holdfast.worker.endings import Endings, Note
from holdfast.worker.executor import Ending, Host
from holdfast.worker.hold import Hold
from holdfast.worker.outcomes import to_compensate
from holdfast.worker.recovery import recover
from holdfast.worker.spool import FileSpool, MemoryLog, MemorySpool
from holdfast.worker.tasks import stop
from holdfast.worker.worker import Worker

IDS = SystemIds()
STOPPED = Ending(cancelled=True, stopped=True)


async def cancelled(registry: Registry) -> Hold:
    """A job that is cancelled while its worker leaves."""
    hold = await held(registry)
    await registry.cancel(hold.job_id, actor="user:ana")
    hold.cancelled = True
    hold.released = "the worker is leaving"
    return hold


def test_a_cancelled_job_is_compensated_though_its_worker_leaves() -> None:
    async def body() -> None:
        registry = await open_registry("memory://")
        hold = await cancelled(registry)
        assert to_compensate(hold, STOPPED)
        hold.cancelled = False
        assert not to_compensate(hold, STOPPED)
        await registry.close()

    run(body())


@pytest.mark.parametrize("compensated", [False, True, None])
def test_what_was_undone_or_could_not_be_is_told_though_the_worker_leaves(
    compensated: bool | None,
) -> None:
    async def body() -> None:
        registry = await open_registry("memory://")
        hold = await cancelled(registry)
        over = asyncio.Event()
        endings = Endings(registry, CLOCK, IDS, Silent(), lambda _: over.set())
        running = asyncio.create_task(endings.run())
        ending = msgspec.structs.replace(STOPPED, compensated=compensated)
        endings.add(hold, ending, None)
        await over.wait()
        await stop(running)

        job = await registry.get(hold.job_id)
        types = [str(event.event_type) for event in await registry.history(hold.job_id)]
        if compensated is False:
            assert job.dead_letter is not None
            assert job.dead_letter.reason_code is ReasonCode.COMPENSATION_FAILED
        else:
            assert job.state is State.CANCELLED
            assert ("job_compensated" in types) is bool(compensated)
        await registry.close()

    run(body())


class Sticky(MemorySpool):
    """A spool whose logs cannot be removed."""

    def log(self, hold: Hold) -> MemoryLog:
        return StickyLog()


class StickyLog(MemoryLog):
    def remove(self) -> None:
        raise OSError("it sticks")


class Talker:
    """An executor whose jobs say a word and end."""

    kinds: tuple[str, ...] = ("work",)

    async def open(self, host: Host) -> None:
        self._host = host

    def run(self, holds: Sequence[Hold]) -> None:
        for hold in holds:
            self._host.output(hold).write(b"word", "stdout")
            self._host.ended(hold, Ending())

    def renewed(self, hold: Hold) -> None: ...

    async def close(self) -> None: ...


def test_an_ending_that_breaks_does_not_keep_the_worker() -> None:
    async def body() -> None:
        registry, report = await open_registry("memory://"), Silent()
        hold = await held(registry)
        await registry.release(hold.grant, reason="for the worker")
        worker = Worker(
            registry,
            Settings(owner="w-2", drain=True),
            report,
            clock=CLOCK,
            ids=IDS,
            executors=[Talker()],
            spool=Sticky(),
        )
        async with asyncio.timeout(5):
            await worker.run()

        assert (await registry.get(hold.job_id)).state is State.SUCCEEDED
        assert any("it sticks" in trouble for trouble in report.troubles)
        await registry.close()

    run(body())


class Away(LocalRegistry):
    """A registry that is away for 20 seconds when it is first told of an ending."""

    clock: ManualClock

    async def complete_many(self, completions: Sequence[Completion]) -> list[Job | HoldfastError]:
        self.clock.advance(20)
        return [Unavailable("The store is away.") for _ in completions]


class Worked(Talker):
    """An executor whose jobs work for 20 seconds."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def run(self, holds: Sequence[Hold]) -> None:
        for hold in holds:
            self._clock.advance(20)
            self._host.ended(hold, Ending())


class Timed(Silent):
    """A report that keeps how long attempts took."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def ended(self, job: Job, seconds: float) -> None:
        self.seconds.append(seconds)


def test_an_attempt_takes_as_long_as_its_work_however_long_the_store_is_away() -> None:
    async def body() -> None:
        clock, ids, report = ManualClock(), CountingIds(), Timed()
        registry = Away(MemoryStore(clock, ids), ids)
        registry.clock = clock
        hold = await held(registry)
        worker = Worker(
            registry,
            Settings(owner="w"),
            report,
            clock=clock,
            ids=ids,
            executors=[Worked(clock)],
            spool=MemorySpool(),
        )
        async with asyncio.timeout(5):
            ours = await worker.run_one(hold.grant, clock.monotonic() + 60)

        assert ours, report.losses

        assert (await registry.get(hold.job_id)).state is State.SUCCEEDED
        assert report.troubles == ["The store is away."]
        assert report.seconds == [20]
        await registry.close()

    run(body())


async def left(registry: Registry, root: Path, name: str, store: str) -> Hold:
    """What a dead worker left: one attempt, sealed and not told."""
    hold = await held(registry)
    spool = FileSpool(root, name)
    spool.label(store)
    log = spool.log(hold)
    log.seal(msgspec.msgpack.encode(Note(IDS.new(), None, Ending(result=b'"done"'))))
    os.close(spool.lock)
    return hold


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\0" * 4096, b"version"])
def test_an_unreadable_spool_file_is_set_aside_and_the_others_are_told(
    tmp_path: Path, damage: bytes
) -> None:
    async def body() -> None:
        registry = await open_registry("memory://")
        hold = await left(registry, tmp_path, "dead", "here boot-1")
        bad = tmp_path / "dead" / "0-job.3"  # before the others
        bad.write_bytes(of_another_version() if damage == b"version" else damage)
        for count in (1, 0, 0):
            told = await recover(tmp_path, "here boot-1", registry, clock=CLOCK, ids=IDS)
            assert told == count

        assert (await registry.get(hold.job_id)).result == "done"
        kept = [path.name for path in (tmp_path / "dead").iterdir()]
        assert sorted(kept) == ["0-job.3.unreadable", "lock", "store"]
        await registry.close()

    run(body())


def of_another_version() -> bytes:
    """A whole record that this version does not know."""
    body = msgspec.msgpack.encode([99, "later"])
    return len(body).to_bytes(4, "big") + crc32(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("store", ["here boot-2", "elsewhere boot-1"])
def test_the_spool_of_another_boot_or_store_is_left_alone(tmp_path: Path, store: str) -> None:
    async def body() -> None:
        registry = await open_registry("memory://")
        hold = await left(registry, tmp_path, "dead", "here boot-1")
        before = {path: path.read_bytes() for path in (tmp_path / "dead").iterdir()}

        assert await recover(tmp_path, store, registry, clock=CLOCK, ids=IDS) == 0

        assert {path: path.read_bytes() for path in (tmp_path / "dead").iterdir()} == before
        assert (await registry.get(hold.job_id)).leased
        assert await recover(tmp_path, "here boot-1", registry, clock=CLOCK, ids=IDS) == 1
        assert not (tmp_path / "dead").exists()
        await registry.close()

    run(body())


class Refusing(LocalRegistry):
    """A registry that takes no follow-ups, as a server does whose key or queue is in the way."""

    error: HoldfastError

    async def complete_many(self, completions: Sequence[Completion]) -> list[Job | HoldfastError]:
        if any(one.follow_ups for one in completions):
            return [self.error for _ in completions]
        return await super().complete_many(completions)


class Asking(Talker):
    """An executor whose jobs ask for another one."""

    def run(self, holds: Sequence[Hold]) -> None:
        asked = msgspec.json.encode([Request(spec=Spec(queue="far"))])
        for hold in holds:
            self._host.ended(hold, Ending(follow_ups=asked))


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (Denied("It does not reach far."), State.DEAD_LETTERED),
        (Exhausted("far is full."), State.QUEUED),
    ],
)
def test_a_job_whose_follow_ups_are_refused_fails_or_waits_and_says_why(
    error: HoldfastError, state: State
) -> None:
    """A full queue costs it nothing; a key that does not reach one is not mended by another try."""

    async def body() -> None:
        clock, ids = ManualClock(), CountingIds()
        registry = Refusing(MemoryStore(clock, ids), ids)
        registry.error = error
        hold = await held(registry)
        worker = Worker(
            registry,
            Settings(owner="w"),
            Silent(),
            clock=clock,
            ids=ids,
            executors=[Asking()],
            spool=MemorySpool(),
        )
        async with asyncio.timeout(5):
            await worker.run_one(hold.grant, clock.monotonic() + 60)

        job = await registry.get(hold.job_id)
        assert (job.state, job.crashes) == (state, 0)
        assert error.message in (job.reason or "")
        await registry.close()

    run(body())
