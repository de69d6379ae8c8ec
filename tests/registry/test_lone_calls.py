"""Calls that come one by one commit in the task of their caller; those that come together still share."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.core.errors import Unavailable
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.failpoint import arm
from holdfast.ports import JobRequest
from holdfast.registry.commit_queue import ALONE_COMMITS
from holdfast.registry.counters import JobCounters
from holdfast.registry.local import LocalRegistry
from holdfast.stores.sqlite import threads
from holdfast.stores.sqlite.threads import QUICK_COMMITS
from holdfast.testing.world import World, open_world
from tests.conftest import memory_store, sqlite_store


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A store on which every commit is quick, and a queue that has seen some calls, one by one."""
    monkeypatch.setattr(threads, "QUICK_SECONDS", 60.0)
    async with open_world(sqlite_store, tmp_path) as world:
        for _ in range(max(QUICK_COMMITS, ALONE_COMMITS)):
            await world.enqueue()
        yield world
        await world.check()


@contextmanager
def passed() -> Iterator[list[str]]:
    """The failpoints that are passed inside the block."""
    names: list[str] = []
    arm(names.append)
    try:
        yield names
    finally:
        arm(None)


def counters(world: World) -> JobCounters:
    assert isinstance(world.registry, LocalRegistry)
    return world.registry.counters


async def test_a_lone_call_commits_in_its_task(world: World) -> None:
    before = counters(world).commit_works.total
    with passed() as names:
        job = await world.enqueue("job")
    assert "commit_queue.joined" not in names
    assert names.count("sqlite.committed") == 1
    assert await world.registry.status("job") == job
    assert counters(world).commit_works.total == before + 1

    grant = await world.claim()
    with passed() as names:
        await world.registry.complete(grant, Success())
    assert "commit_queue.joined" not in names


async def test_calls_of_one_turn_share_a_commit(world: World) -> None:
    with passed() as names:
        await asyncio.gather(*(world.enqueue() for _ in range(64)))
    assert names.count("sqlite.committed") == 2

    with passed() as names:
        await asyncio.gather(*(world.enqueue() for _ in range(64)))
    assert names.count("sqlite.committed") == 1


async def test_a_loop_of_calls_lets_others_run(world: World) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(other())
    for _ in range(50):
        await world.enqueue()
    task.cancel()
    assert turns >= 49


@pytest.mark.parametrize("error", [Unavailable("planted"), RuntimeError("planted")])
async def test_a_failure_is_the_callers(world: World, error: Exception) -> None:
    def fail(name: str) -> None:
        if name == "sqlite.written":
            raise error

    arm(fail)
    try:
        with pytest.raises(Unavailable, match="planted") as caught:
            await world.enqueue("job")
    finally:
        arm(None)
    assert caught.value is error or caught.value.__cause__ is error
    assert counters(world).commit_failures == 1
    await world.enqueue("job")


async def test_a_caller_that_leaves_has_committed(world: World) -> None:
    leaves = asyncio.create_task(world.enqueue("job"))
    await asyncio.sleep(0)
    leaves.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaves
    assert (await world.registry.status("job")).job_id == "job"

    with passed() as names:
        await world.enqueue("next")
    assert "commit_queue.joined" not in names


async def test_slow_commits_go_to_the_queue(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "QUICK_SECONDS", 0.0)
    await world.enqueue()
    with passed() as names:
        await world.enqueue()
    assert "commit_queue.joined" in names


async def test_a_store_that_always_waits_has_a_queue(tmp_path: Path) -> None:
    async with open_world(memory_store, tmp_path) as world:
        for _ in range(ALONE_COMMITS):
            await world.enqueue()
        with passed() as names:
            await world.enqueue()
        assert "commit_queue.joined" in names


async def test_lone_calls_are_counted_only_on_request(world: World) -> None:
    registry = LocalRegistry(world.store, world.ids)
    for _ in range(ALONE_COMMITS + 1):
        await registry.enqueue(JobRequest(spec=Spec()), actor="user:ana")
    assert registry.counters.commit_works.total == 0
