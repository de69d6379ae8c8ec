"""The announcer: what a worker tells of itself, how often, and what it makes of the answers."""

import asyncio
import os
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Denied, HoldfastError, Unavailable
from holdfast.core.workers import WorkerInfo
from holdfast.ports import Announced
from holdfast.registry.local import LocalRegistry
from holdfast.stores.memory import MemoryStore
from holdfast.testing.fakes import CountingIds, ManualClock
from holdfast.worker.announcer import Announcer, WorkerProcess, is_running
from holdfast.worker.claims import ThreadSlots, WorkerSettings
from holdfast.worker.tasks import stop

PROCESS = WorkerProcess(
    host="host-1", pid=4711, version="0.1.0", app="shop:app", kinds=("send:2",), executors=("function",)
)
SETTINGS = WorkerSettings(owner="w1", queues=("mail",), slots=4, region="eu")


class HeardRegistry(LocalRegistry):
    """A registry that notes what was announced, and refuses it while `error` is set."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(MemoryStore(clock, CountingIds()), CountingIds())
        self.error: HoldfastError | None = None
        self.calls = 0
        self._changed = asyncio.Condition()

    async def called(self, times: int) -> None:
        """Wait until it was called so often."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.calls >= times)

    async def announce(self, name: str, **more: Any) -> Announced:  # noqa: ANN401
        async with self._changed:
            self.calls += 1
            self._changed.notify_all()
        if self.error is not None:
            raise self.error
        return await super().announce(name, **more)


class Side:
    """A worker that announces itself to a registry in memory, on a clock that a test moves."""

    def __init__(
        self,
        process: WorkerProcess = PROCESS,
        registry: HeardRegistry | None = None,
        settings: WorkerSettings = SETTINGS,
    ) -> None:
        self.clock = ManualClock()
        self.registry = registry or HeardRegistry(self.clock)
        self.leaving = asyncio.Event()
        self.running, self.paused = 0, False
        self.troubles: list[str] = []
        self.announcer = Announcer(
            self.registry,
            settings,
            process,
            clock=self.clock,
            ids=CountingIds(seed=id(self)),
            leaving=self.leaving,
            running=lambda: self.running,
            threads_running=lambda: 1,
            paused=lambda: self.paused,
            trouble=self.troubles.append,
        )
        self.task = asyncio.create_task(self.announcer.run())

    async def heard(self, calls: int) -> None:
        """Wait until it has announced itself so often, and waits again."""
        await self.registry.called(calls)
        for _ in range(10):
            await asyncio.sleep(0)

    async def listed(self) -> WorkerInfo:
        [worker] = await self.registry.workers()
        return worker


async def test_a_worker_announces_itself_at_its_start_and_then_now_and_again() -> None:
    side = Side()
    await side.heard(1)
    first = await side.listed()
    side.running, side.paused = 3, True
    for _ in range(10):
        side.clock.advance(1)
        await side.heard(1)
    calls = side.registry.calls
    side.clock.advance(9)
    await side.heard(2)
    later = await side.listed()
    await stop(side.task)

    assert first == WorkerInfo(
        name="w1",
        instance=first.instance,
        queues=("mail",),
        kinds=("send:2",),
        executors=("function",),
        slots=4,
        region="eu",
        host="host-1",
        pid=4711,
        app="shop:app",
        version="0.1.0",
        started_at=first.seen_at,
        seen_at=first.seen_at,
    )
    assert calls == 1
    assert later == replace(first, busy=3, paused=True, seen_at=side.clock.now())


@pytest.mark.parametrize(("alone", "told"), [(False, (("resize", "send"), 2, 1)), (True, ((), 0, 0))])
async def test_a_worker_with_fewer_slots_for_some_kinds_says_so(
    alone: bool, told: tuple[tuple[str, ...], int, int]
) -> None:
    threads = ThreadSlots(kinds=frozenset({"send", "resize"}), slots=2, slots_max=32, alone=alone)
    side = Side(settings=replace(SETTINGS, threads=threads))
    await side.heard(1)
    worker = await side.listed()
    await stop(side.task)

    assert (worker.thread_kinds, worker.thread_slots, worker.thread_busy) == told


async def test_a_worker_that_begins_to_leave_says_so_at_once_and_when_it_has_left() -> None:
    side = Side()
    await side.heard(1)
    side.leaving.set()
    await side.heard(2)
    leaving = await side.listed()
    await stop(side.task)
    await side.announcer.left()

    assert (leaving.leaving, leaving.stopped) == (True, False)
    assert (await side.listed()).stopped
    assert side.registry.calls == 3


async def test_a_registry_that_is_away_is_told_later_and_nobody_is_troubled() -> None:
    side = Side()
    side.registry.error = Unavailable("away", applied="no")
    await side.heard(1)
    await side.announcer.left()
    assert side.registry.calls == 1  # who was never announced has not left
    side.clock.advance(20)
    await side.heard(2)
    side.registry.error = None
    side.clock.advance(20)
    await side.heard(3)
    await side.listed()
    side.registry.error = Unavailable("away", applied="no")
    await stop(side.task)
    await side.announcer.left()

    assert side.troubles == []


async def test_a_registry_that_refuses_is_named_once() -> None:
    side = Side()
    side.registry.error = Denied("This key does not reach queue mail.")
    await side.heard(1)
    side.clock.advance(20)
    await side.heard(2)
    await stop(side.task)

    assert side.troubles == ["this worker is not in the list of workers: This key does not reach queue mail."]


async def troubles_beside(first: WorkerProcess) -> list[str]:
    """What a worker of this machine says when another of its name has announced itself before."""
    one = Side(first)
    await one.heard(1)
    two = Side(replace(PROCESS, pid=1), one.registry)
    two.announcer._instance = "another"
    await two.heard(2)
    await stop(one.task, two.task)
    return two.troubles


async def test_the_second_worker_of_a_name_says_where_the_first_one_is() -> None:
    [elsewhere] = await troubles_beside(replace(PROCESS, host="host-2"))
    [here] = await troubles_beside(replace(PROCESS, pid=os.getpid()))

    assert elsewhere == (
        "another worker is named w1, or was a moment ago: host-2, process 4711."
        " Give each worker a name of its own: --name"
    )
    assert f"host-1, process {os.getpid()}." in here


async def test_a_worker_that_was_killed_and_started_again_does_not_warn_of_itself() -> None:
    ended = await asyncio.create_subprocess_exec("true")
    await ended.wait()

    assert await troubles_beside(replace(PROCESS, pid=1)) == []
    assert await troubles_beside(replace(PROCESS, pid=ended.pid)) == []


def test_a_process_of_another_user_runs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", kill)

    assert is_running(1)


class UnansweredRegistry(HeardRegistry):
    """A registry whose first answer is lost: what was announced is kept."""

    async def announce(self, name: str, **more: Any) -> Announced:  # noqa: ANN401
        announced = await super().announce(name, **more)
        if self.calls == 1:
            await asyncio.Event().wait()
        return announced


async def test_a_worker_that_leaves_before_its_first_answer_is_announced_as_left() -> None:
    """As one that found nothing to drain: otherwise it would be listed as idle for a minute."""
    side = Side(registry=UnansweredRegistry(ManualClock()))
    await side.heard(1)

    await stop(side.task)
    await side.announcer.left()

    [worker] = await side.registry.workers()
    assert worker.stopped
