"""Who waits is told within milliseconds by whoever commits, in another process, or looks by itself."""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores.postgres.notifications import NO_NOTICE, NOTHING_READY, Notifier
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemClock, SystemIds
from tests.stores.postgres.open_stores import (
    connected,
    fact,
    fresh_store_url,
    opened,
    schema_of,
    wanted,
)

WINDOW_SECONDS = 0.005
_SPAWN = multiprocessing.get_context("spawn")


async def listening_store(store: PostgresStore) -> None:
    """Wait until the store has somebody who listens."""
    await store.wait(store.change_mark(), 0.01)
    for _ in range(500):
        if store._listener._connection is not None:
            await asyncio.sleep(0.05)  # what it missed before makes it look once
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody listens")


def submit(url: str, count: int, told: "multiprocessing.SimpleQueue[float]") -> None:
    """Another process: enqueue now and then, and say when each commit had landed."""

    async def enqueue() -> None:
        async with opened(url) as store:
            await store.transact([wanted()])
            told.put(0.0)
            for _ in range(count):
                await asyncio.sleep(0.1)
                await store.transact([wanted()])
                told.put(time.monotonic())

    asyncio.run(enqueue())


@contextmanager
def another_process(url: str, count: int) -> Iterator["multiprocessing.SimpleQueue[float]"]:
    told = _SPAWN.SimpleQueue()
    process = _SPAWN.Process(target=submit, args=(url, count, told))
    process.start()
    try:
        yield told
    finally:
        process.join(30)
        assert process.exitcode == 0


async def test_an_enqueue_in_another_process_wakes_who_waits_within_100_ms() -> None:
    url = fresh_store_url()
    count = 8

    async with opened(url) as store:
        await listening_store(store)
        with another_process(url, count) as told:
            late = []
            assert await asyncio.to_thread(told.get) == 0
            await asyncio.sleep(0.05)
            for _ in range(count):
                await store.wait(store.change_mark(), 30)
                woken = time.monotonic()
                late.append(woken - await asyncio.to_thread(told.get))
        assert sorted(late)[count // 2] < 0.1, late


async def test_a_listener_that_is_cut_off_looks_and_listens_again() -> None:
    url = fresh_store_url()

    async with opened(url) as waiter, opened(url) as other, connected() as person:
        await listening_store(waiter)
        connection = waiter._listener._connection
        assert connection is not None
        mark, began = waiter.change_mark(), time.monotonic()
        await person.execute("SELECT pg_terminate_backend($1)", connection.get_server_pid())
        await other.transact([wanted()])
        await waiter.wait(mark, 30)
        assert time.monotonic() - began < 1.5
        await listening_store(waiter)
        mark, began = waiter.change_mark(), time.monotonic()
        await other.transact([wanted()])
        await waiter.wait(mark, 30)
        assert time.monotonic() - began < 0.5


async def test_a_thousand_quick_commits_are_told_in_few_notifications() -> None:
    url = fresh_store_url()
    heard = []

    async with opened(url) as store, connected() as person:
        channel = f"{schema_of(url)}_commit"
        await person.add_listener(channel, lambda *_: heard.append(1))
        began = time.monotonic()
        for n in range(1000):
            await store.record([fact(f"{n}", None)])
        windows = (time.monotonic() - began) / WINDOW_SECONDS
        await asyncio.sleep(0.1)
        assert 1 <= len(heard) <= 1.1 * windows + 5, (len(heard), windows)


async def test_the_last_of_many_quick_commits_is_told_whatever_its_moment() -> None:
    """A commit that lands while the news of those before is on its way needs news of its own."""
    url = fresh_store_url()
    heard = []

    async with opened(url) as store, connected() as person:
        await person.add_listener(f"{schema_of(url)}_commit", lambda *_: heard.append(1))
        notifier, use = store._notifier, store._sessions.use

        async def slow(*given: object, **named: object) -> object:
            answer: object = await use(*given, **named)  # type: ignore[arg-type]
            if not named.get("patient", True):
                await asyncio.sleep(0.05)
                heard.clear()
                notifier.committed(NO_NOTICE, ready=True)  # it landed after the news, and before its answer
            return answer

        store._sessions.use = slow  # type: ignore[method-assign,assignment]
        notifier.committed(NO_NOTICE, ready=True)
        await asyncio.sleep(0.03)
        store._sessions.use = use  # type: ignore[method-assign]
        await asyncio.sleep(0.2)
        assert heard


async def test_a_store_is_not_woken_by_the_news_of_its_own_commits() -> None:
    url = fresh_store_url()

    async with opened(url) as store:
        await listening_store(store)
        mark = store.change_mark()
        await store.transact([wanted()])
        assert store.change_mark() == mark + 1
        await asyncio.sleep(0.2)
        assert store.change_mark() == mark + 1


async def test_a_number_that_a_listener_had_may_become_another_stores() -> None:
    url = fresh_store_url()

    async with opened(url) as store, connected() as person:
        await listening_store(store)
        connection = store._listener._connection
        assert connection is not None
        number = connection.get_server_pid()
        await person.execute("SELECT pg_terminate_backend($1)", number)
        await asyncio.sleep(0.3)
        assert number not in store._sessions.pids


@pytest.mark.parametrize("seconds", [0.05, 0.3])
async def test_a_wait_is_never_longer_than_asked(seconds: float) -> None:
    url = fresh_store_url()

    async with opened(url) as store:
        await listening_store(store)
        began = time.monotonic()
        await store.wait(store.change_mark(), seconds)
        assert seconds * 0.9 < time.monotonic() - began < seconds + 0.5


async def test_who_waits_for_ready_jobs_sleeps_through_what_makes_none() -> None:
    url = fresh_store_url()

    async with opened(url) as waiter, opened(url) as other:
        ours, theirs = (LocalRegistry(store, SystemIds()) for store in (waiter, other))
        await listening_store(waiter)
        await theirs.enqueue_many([JobRequest(spec=Spec())] * 2, actor="user:ana")
        [mine] = await ours.claim(["default"], owner="w-1")
        [yours] = await theirs.claim(["default"], owner="w-2")
        await asyncio.sleep(0.1)  # what was owed is told
        ready, anything = waiter.change_mark(ready=True), waiter.change_mark()

        await ours.heartbeat(mine)
        await ours.complete(mine, Success())
        await theirs.complete(yours, Success())
        await waiter.wait(waiter.change_mark(), 0.1)
        assert waiter.change_mark(ready=True) == ready
        assert waiter.change_mark() > anything

        await theirs.enqueue(JobRequest(spec=Spec()), actor="user:ana")
        await asyncio.wait_for(waiter.wait(ready, 1e6, ready=True), 20)
        assert waiter.change_mark(ready=True) > ready


@pytest.mark.parametrize(
    ("owed", "told"),
    [([False, False], NOTHING_READY), ([False, True], ""), ([True, False], "")],
)
async def test_commits_that_are_told_together_tell_of_a_ready_job_if_one_of_them_made_one(
    owed: list[bool], told: str
) -> None:
    url = fresh_store_url()

    async with opened(url) as store, connected() as person:
        heard: list[object] = []
        channel = f"{schema_of(url)}_commit"
        await person.add_listener(channel, lambda *words: heard.append(words[-1]))
        for ready in owed:
            store._notifier.committed(NO_NOTICE, ready=ready)
        for _ in range(500):
            if heard:
                break
            await asyncio.sleep(0.01)
        assert heard == [told]


async def test_a_commit_tells_of_those_before_it_that_told_nothing() -> None:
    url = fresh_store_url()

    async with opened(url) as store, connected() as person:
        heard: list[object] = []
        channel = f"{schema_of(url)}_commit"
        await person.add_listener(channel, lambda *words: heard.append(words[-1]))
        notifier = Notifier(store._sessions, channel, SystemClock())
        notifier.committed(NO_NOTICE, ready=True)
        notice = notifier.begin()
        assert (notice.channel, notice.payload(ready=False)) == (channel, "")
        notifier.committed(NO_NOTICE, ready=False)  # too late for that one
        notifier.committed(notice, ready=False)
        notifier.end(notice)
        assert notifier.begin().channel == ""
        for _ in range(500):
            if heard:
                break
            await asyncio.sleep(0.01)
        await notifier.close()
        assert heard == [NOTHING_READY]


async def test_while_a_notifying_commit_is_under_way_the_others_carry_no_notification() -> None:
    url = fresh_store_url()

    async with opened(url) as store:
        notifier = Notifier(store._sessions, "nobody", SystemClock())
        notice = notifier.begin()
        assert notice.channel
        assert not notifier.begin().channel
        notifier.end(notice)  # it failed
        again = notifier.begin()
        assert again.channel
        notifier.committed(NO_NOTICE, ready=True)
        notifier.end(again)
        retried = notifier.begin()
        assert retried.payload(ready=False) == ""  # what the failed one would have told is still to be told
        await notifier.close()


async def test_a_commit_that_hangs_does_not_keep_the_news_of_others() -> None:
    url = fresh_store_url()

    async with opened(url) as store, connected() as person:
        heard = asyncio.Event()
        channel = f"{schema_of(url)}_commit"
        await person.add_listener(channel, lambda *_: heard.set())
        notifier = Notifier(store._sessions, channel, SystemClock())
        notifier.begin()
        notifier.committed(NO_NOTICE, ready=True)
        await asyncio.wait_for(heard.wait(), 10)
        await notifier.close()
