"""Which thread makes a commit, in which order, and whom it holds up."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Event, Thread, get_ident
from time import monotonic

import apsw
import pytest

from holdfast.core.errors import NotFound
from holdfast.core.job import Job, ResourceLock
from holdfast.core.lifecycle import Refusal, decide
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import ById, Decision, JobRequest, Store, Work
from holdfast.registry.job_requests import enqueue_command
from holdfast.stores.sqlite import threads
from holdfast.stores.sqlite.commit import SMALL_COMMIT
from holdfast.stores.sqlite.connection import BUSY_SECONDS_MAX
from holdfast.stores.sqlite.threads import QUICK_COMMITS, CommitPace, ConnectionThread
from holdfast.testing.world import open_world
from tests.conftest import sqlite_store

PATIENCE_SECONDS = 60.0


class Deciders:
    """Commits of works that note the thread in which they were decided, in that order."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.order: list[int] = []
        self.threads: list[int] = []

    async def commit(self, number: int, *, works: int = 1) -> None:
        def refuse(
            job: Job | None, now: datetime, resource: ResourceLock | None = None, floor: int = 0
        ) -> Decision:
            self.order.append(number)
            self.threads.append(get_ident())
            return Refusal(NotFound("There is no such job."))

        await self._store.transact([Work(ById(f"job-{n}"), refuse) for n in range(works)])

    async def become_quick(self) -> None:
        for _ in range(QUICK_COMMITS + 1):
            await self.commit(-1)
        assert self.threads[-1] == get_ident()
        self.order.clear()
        self.threads.clear()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """On any machine, every commit is quick."""
    monkeypatch.setattr(threads, "QUICK_SECONDS", PATIENCE_SECONDS)


@contextmanager
def write_lock(folder: Path) -> Iterator[apsw.Connection]:
    """Another connection in a write transaction, as another process would have it."""
    connection = apsw.Connection(str(folder / "jobs.db"))
    connection.execute("BEGIN IMMEDIATE").fetchall()
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def busy(thread: ConnectionThread) -> Iterator["asyncio.Task[None]"]:
    """The thread inside a call, until the end of the block."""
    begun, go = Event(), Event()

    def work() -> None:
        begun.set()
        assert go.wait(PATIENCE_SECONDS)

    async def call() -> None:
        await thread.call(work)

    try:
        yield asyncio.ensure_future(call())
    finally:
        go.set()


def test_the_pace_is_quick_after_so_many_quick_commits_and_no_more_after_a_slow_one() -> None:
    pace = CommitPace()

    for _ in range(QUICK_COMMITS):
        assert not pace.is_quick
        pace.note(threads.QUICK_SECONDS / 2)
    assert pace.is_quick

    pace.note(threads.QUICK_SECONDS)
    assert not pace.is_quick


async def test_an_idle_thread_leaves_a_call_to_the_caller() -> None:
    thread = ConnectionThread("idle")

    assert thread.call_here(get_ident) == get_ident()
    assert await thread.call(get_ident) != get_ident()
    assert thread.call_here(get_ident) == get_ident()

    await thread.close()
    assert thread.call_here(get_ident) is None


async def test_no_call_passes_one_that_waits() -> None:
    thread = ConnectionThread("busy")

    with busy(thread) as waiting:
        await asyncio.sleep(0)  # until it has made its call
        assert thread.call_here(get_ident) is None
    await waiting

    assert thread.call_here(get_ident) == get_ident()
    await thread.close()


async def test_the_thread_waits_for_a_call_in_the_callers_thread() -> None:
    thread, ran = ConnectionThread("waits"), Event()

    def work() -> bool:
        Thread(target=lambda: asyncio.run(thread.call(ran.set))).start()
        return ran.wait(0.1)

    assert thread.call_here(work) is False

    assert await asyncio.to_thread(ran.wait, PATIENCE_SECONDS)
    await thread.close()


@pytest.mark.usefixtures("quick")
async def test_a_small_commit_is_made_in_the_thread_of_the_loop_and_a_large_one_is_not(
    tmp_path: Path,
) -> None:
    async with open_world(sqlite_store, tmp_path) as world:
        deciders = Deciders(world.store)
        await deciders.become_quick()

        await deciders.commit(1, works=SMALL_COMMIT)
        await deciders.commit(2, works=SMALL_COMMIT + 1)

        assert set(deciders.threads[:SMALL_COMMIT]) == {get_ident()}
        assert get_ident() not in deciders.threads[SMALL_COMMIT:]


async def test_slow_commits_leave_the_loop_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "QUICK_SECONDS", 0.0)
    async with open_world(sqlite_store, tmp_path) as world:
        deciders = Deciders(world.store)

        for n in range(2 * QUICK_COMMITS):
            await deciders.commit(n)

        assert get_ident() not in deciders.threads


@pytest.mark.usefixtures("quick")
async def test_the_write_lock_of_another_process_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    async with open_world(sqlite_store, tmp_path) as world:
        deciders = Deciders(world.store)
        await deciders.become_quick()

        with write_lock(tmp_path):
            began = monotonic()
            commits = [asyncio.create_task(deciders.commit(n)) for n in range(3)]
            await asyncio.sleep(0)  # each has tried
            assert monotonic() - began < BUSY_SECONDS_MAX / 2
            assert not deciders.order
        await asyncio.gather(*commits)

        assert deciders.order == [0, 1, 2]
        assert get_ident() not in deciders.threads


@pytest.mark.usefixtures("quick")
async def test_a_caller_that_leaves_does_not_take_the_commit_of_others_with_it(tmp_path: Path) -> None:
    async with open_world(sqlite_store, tmp_path) as world:
        await Deciders(world.store).become_quick()
        stays, leaves = (asyncio.create_task(world.enqueue(name)) for name in ("stays", "leaves"))
        await asyncio.sleep(0)  # both are in the queue

        leaves.cancel()

        assert (await stays).job_id == "stays"
        assert (await world.registry.status("stays")).job_id == "stays"


async def test_own_commits_that_make_no_job_ready_wake_no_claim(tmp_path: Path) -> None:
    async with open_world(sqlite_store, tmp_path) as world:
        store = world.store
        await world.enqueue("job-1")
        mark, ready_mark = store.change_mark(), store.change_mark(ready=True)

        await world.claim()

        assert store.change_mark() != mark
        assert store.change_mark(ready=True) == ready_mark
        await world.enqueue("job-2")
        assert store.change_mark(ready=True) != ready_mark


async def test_a_commit_of_another_process_wakes_claims_although_own_commits_came_after_it(
    tmp_path: Path,
) -> None:
    async with open_world(sqlite_store, tmp_path) as world, open_world(sqlite_store, tmp_path) as other:
        await world.enqueue("job-1")
        ready_mark = world.store.change_mark(ready=True)

        await other.enqueue("other-1")
        await world.claim()

        assert world.store.change_mark(ready=True) != ready_mark


async def test_a_commit_whose_caller_has_left_wakes_claims(tmp_path: Path) -> None:
    async with open_world(sqlite_store, tmp_path) as world:
        await world.enqueue("job-1")
        world.store.change_mark()  # which looks at the file
        await world.claim()
        ready_mark = world.store.change_mark(ready=True)
        command = enqueue_command(JobRequest(spec=Spec()), world.ids, actor="user:ana")
        work = Work(ById(command.job_id, None, True), partial(decide, command))

        with write_lock(tmp_path):
            leaver = asyncio.create_task(world.store.transact([work]))
            await asyncio.sleep(0)  # its commit waits for the lock
            leaver.cancel()
            await asyncio.gather(leaver, return_exceptions=True)
            assert world.store.change_mark(ready=True) == ready_mark

        waiting = world.store.wait(ready_mark, 10 * PATIENCE_SECONDS, ready=True)
        await asyncio.wait_for(waiting, PATIENCE_SECONDS)
        assert (await world.registry.status(command.job_id)).state is State.QUEUED
