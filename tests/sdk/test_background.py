"""The background: one thread and one loop that all callers share."""

import asyncio
import gc
import signal
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast import App, Invalid, State, Unavailable
from holdfast.sdk.async_client import AsyncClient
from holdfast.sdk.background import BackgroundClient
from tests.sdk.sample_jobs import add

SECONDS = 120.0


@pytest.fixture
def background() -> Iterator[BackgroundClient]:
    made = BackgroundClient(lambda: AsyncClient("memory://"))
    yield made
    made.close()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    made = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    yield made
    made.close()


async def where(_: AsyncClient) -> str:
    return threading.current_thread().name


@pytest.fixture(autouse=True)
def others() -> int:
    """How many backgrounds other tests have left."""
    return hosts()


def hosts() -> int:
    return [thread.name for thread in threading.enumerate()].count("holdfast-background")


def test_nothing_starts_before_it_is_needed(background: BackgroundClient, others: int) -> None:
    assert not background.open
    assert hosts() == others

    assert background.call(where) == "holdfast-background"
    assert background.open


def test_threads_and_loops_share_one_store(app: App, others: int) -> None:
    job = app.job(add)

    async def many() -> None:
        await asyncio.gather(*(job.enqueue_async(n) for n in range(50)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(job.enqueue, range(50)))
        list(pool.map(lambda _: asyncio.run(many()), range(3)))

    assert app.background.call(lambda client: client.counts()) == {State.QUEUED: 200}
    assert hosts() == others + 1


def test_what_is_closed_is_opened_again_when_it_is_needed(app: App, others: int) -> None:
    job = app.job(add)
    job.enqueue(1)
    app.close()
    assert hosts() == others
    app.close()

    job.enqueue(2)

    assert app.background.call(lambda client: client.counts()) == {State.QUEUED: 2}


def test_an_error_keeps_its_type_and_its_words(background: BackgroundClient) -> None:
    class Strange(Exception):
        pass

    async def work(_: AsyncClient) -> None:
        raise Strange("so it is")

    with pytest.raises(Strange, match="so it is"):
        background.call(work)
    with pytest.raises(Strange, match="so it is"):
        asyncio.run(background.call_async(work))
    assert background.call(where)


def test_the_loop_itself_must_not_block(background: BackgroundClient) -> None:
    async def work(_: AsyncClient) -> None:
        background.call(where)

    with pytest.raises(Invalid, match="This would wait for itself"):
        background.call(work)


def test_the_loop_cannot_close_itself(background: BackgroundClient, others: int) -> None:
    async def work(_: AsyncClient) -> None:
        background.close()

    with pytest.raises(Invalid, match="cannot close itself"):
        background.call(work)
    assert background.call(where)
    assert hosts() == others + 1


def interrupt_soon() -> threading.Timer:
    """Send this thread what Ctrl-C sends, when it has begun to wait."""
    timer = threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    timer.start()
    return timer


def test_an_interrupt_takes_the_question_back_and_breaks_nothing(
    background: BackgroundClient, others: int
) -> None:
    left = threading.Event()

    async def work(_: AsyncClient) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    timer = interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        background.call(work)

    timer.join()
    assert left.wait(SECONDS)
    assert background.call(where) == "holdfast-background"
    assert hosts() == others + 1


async def test_a_coroutine_that_is_cancelled_takes_its_question_back(
    background: BackgroundClient,
) -> None:
    begun, left = threading.Event(), threading.Event()

    async def work(_: AsyncClient) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    asking = asyncio.create_task(background.call_async(work))
    await asyncio.to_thread(begun.wait, SECONDS)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert left.wait(SECONDS)


def test_who_waits_when_it_is_closed_is_told(background: BackgroundClient) -> None:
    begun = threading.Semaphore(0)

    async def work(_: AsyncClient) -> None:
        begun.release()
        await asyncio.Event().wait()

    async def asking() -> None:
        await background.call_async(work)

    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(background.call, work), pool.submit(asyncio.run, asking())]
        assert begun.acquire(timeout=SECONDS)
        assert begun.acquire(timeout=SECONDS)
        background.close()

        for answer in answers:
            with pytest.raises(Unavailable, match="closed before it responded"):
                answer.result(SECONDS)


def test_many_who_call_while_it_is_closed_again_and_again_all_get_an_answer(
    background: BackgroundClient,
) -> None:
    async def quick(client: AsyncClient) -> bool:
        return await client.counts() == {}

    def ask(_: int) -> bool:
        try:
            return background.call(quick)
        except Unavailable:
            return False

    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(ask, n) for n in range(300)]
        for _ in range(20):
            background.close()
        told = [answer.result(SECONDS) for answer in answers]
    assert any(told)


class Numbers:
    """A stream that tells when it was closed, and to which another reference exists."""

    def __init__(self) -> None:
        self.left = threading.Event()
        self._known: list[object] = []

    def stream(self, _: AsyncClient) -> AsyncGenerator[int, None]:
        numbers = self._numbers()
        self._known.append(numbers)
        return numbers

    async def _numbers(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(3):
                yield number
            await asyncio.Event().wait()
        finally:
            self.left.set()


def test_a_stream_is_closed_when_its_reader_leaves(background: BackgroundClient) -> None:
    numbers = Numbers()
    stream = background.stream(numbers.stream)

    assert [next(stream), next(stream)] == [0, 1]
    stream.close()  # type: ignore[attr-defined]

    assert numbers.left.wait(SECONDS)


def test_a_stream_is_closed_when_its_reader_forgets_it(background: BackgroundClient) -> None:
    numbers = Numbers()
    assert next(background.stream(numbers.stream)) == 0
    gc.collect()

    assert numbers.left.wait(SECONDS)


def test_a_reader_that_is_interrupted_leaves_the_stream(background: BackgroundClient) -> None:
    numbers = Numbers()
    stream = background.stream(numbers.stream)
    assert [next(stream) for _ in range(3)] == [0, 1, 2]

    timer = interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        next(stream)

    timer.join()
    assert numbers.left.wait(SECONDS)
    assert background.call(where)


def test_a_stream_of_a_store_that_was_closed_ends_with_a_word(background: BackgroundClient) -> None:
    numbers = Numbers()
    stream = background.stream(numbers.stream)
    assert next(stream) == 0
    background.close()

    with pytest.raises(Unavailable, match="closed"):
        next(stream)
    assert numbers.left.is_set()
    assert not background.open
