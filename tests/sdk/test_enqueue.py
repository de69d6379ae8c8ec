"""Jobs are enqueued and their results read, from plain functions and coroutines, on every store."""

import asyncio
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Client, Context, Invalid, JobFailed, NotFound, Retry, State
from holdfast.core.lifecycle import Success
from tests.sdk.sample_jobs import STORES, add, end, fail, finish, resize, url_of


@pytest.fixture
def memory() -> Iterator[App]:
    app = App("memory://")
    yield app
    app.close()


@pytest.fixture(params=STORES)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    app = App(url_of(request.param, tmp_path))
    yield app
    app.close()


def test_a_job_is_made_worked_on_and_its_result_fetched(stored: App) -> None:
    job = stored.job(resize)

    handle = job.enqueue("a.png", width=3)
    assert handle.job.state is State.QUEUED
    assert bytes(handle.job.spec.payload) == b'{"path":"a.png","width":3}'
    finish(stored, {"a.png": 3})

    assert handle.result(timeout=120) == {"a.png": 3}
    assert handle.refresh().state is State.SUCCEEDED


async def test_the_same_from_a_coroutine(stored: App) -> None:
    job = stored.job(resize)

    handle = await job.enqueue_async("a.png")
    assert (await handle.refresh_async()).state is State.QUEUED
    await asyncio.to_thread(finish, stored, {"a.png": 100})
    assert await handle.result_async(timeout=120) == {"a.png": 100}


@pytest.mark.parametrize("id_name", ["request_id", "job_id"])
def test_a_handle_says_whether_its_job_was_made_by_this_call(stored: App, id_name: str) -> None:
    job = stored.job(add)
    once = job.configure(**dict[str, Any]({id_name: "nightly"}))

    first, again = once.enqueue(1), once.enqueue(1)
    batch = job.enqueue_many([once.call(1), job.call(1)])
    by_coroutine = asyncio.run(once.enqueue_async(1))

    assert (first.created, again.created, by_coroutine.created) == (True, False, False)
    assert [one.created for one in batch] == [False, True]
    assert {first.job_id, again.job_id, batch[0].job_id} == {first.job_id}


def test_a_client_says_so_too(stored: App) -> None:
    with Client(stored.url) as client:
        made = [client.enqueue("add", {"first": 1}, job_id="nightly").created for _ in range(2)]
        ran = [client.submit(["true"], request_id="nightly").created for _ in range(2)]

    assert (made, ran) == ([True, False], [True, False])


def test_many_are_made_at_once(stored: App) -> None:
    job = stored.job(add)

    handles = job.enqueue_many(job.call(n) for n in range(1200))
    more = asyncio.run(job.enqueue_many_async([job.call(1), job.call(2)]))

    assert len({handle.job_id for handle in handles + more}) == 1202
    assert stored.background.call(lambda client: client.counts()) == {State.QUEUED: 1202}


def test_a_call_is_a_value_and_makes_nothing(memory: App) -> None:
    job = memory.job(add)
    call = job.configure(request_id="r-1").call(1)

    assert (call.kind, call.request_id, bytes(call.payload)) == ("add", "r-1", b'{"first":1}')
    assert memory.background.call(lambda client: client.counts()) == {}


def test_arguments_are_checked_before_anything_is_made(memory: App) -> None:
    job = memory.job(add)

    with pytest.raises(Invalid, match="add: first: Expected `int`, got `str`"):
        job.enqueue("one")  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="add: first: Expected `int`, got `str`"):
        job.enqueue_many([job.call(1), job.call("one")])  # type: ignore[arg-type]
    assert memory.background.call(lambda client: client.counts()) == {}


def test_a_call_of_another_function_is_refused(memory: App) -> None:
    first, second = memory.job(add), memory.job(kind="other")(add)

    with pytest.raises(Invalid, match="add: this is a call of other"):
        first.enqueue_many([second.call(1)])


def test_a_request_that_is_repeated_is_one_job(stored: App) -> None:
    job = stored.job(add).configure(request_id="order-7")

    assert job.enqueue(1).job_id == job.enqueue(1).job_id


def test_configure_changes_a_copy(memory: App) -> None:
    job = memory.job(queue="images", timeout=9, retry=Retry(max_failures=2))(add)

    other = job.configure(
        queue="slow",
        priority=1,
        delay=60,
        timeout=None,
        lease=timedelta(seconds=5),
        labels={"a": "b"},
        name="a sum",
        retry=Retry(max_failures=7),
        job_id="job-7",
        correlation_id="order-7",
        trace_id="t-7",
    )
    request, untouched = other.call(1).request, job.call(1).request

    assert (request.spec.queue, request.spec.priority, request.spec.timeout) == ("slow", 1, None)
    assert (request.spec.delay, request.spec.lease) == (timedelta(minutes=1), timedelta(seconds=5))
    assert (request.spec.labels, request.spec.name) == ({"a": "b"}, "a sum")
    assert request.spec.retry.max_failures == 7
    assert (request.job_id, request.correlation_id, request.trace_id) == ("job-7", "order-7", "t-7")
    assert (untouched.spec.queue, untouched.spec.timeout) == ("images", timedelta(seconds=9))
    assert untouched.spec.retry.max_failures == 2
    assert other(1) == 3


def test_a_later_time_to_run_replaces_a_delay(memory: App) -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    spec = memory.job(add).configure(delay=60).configure(run_at=at).call(1).spec

    assert (spec.delay, spec.run_at) == (None, at)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delay": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)}, "add: Give a delay or a time"),
        ({"run_at": datetime(2030, 1, 1)}, "add: The time to run at needs a time zone"),
        ({"request_id": "a", "job_id": "b"}, "add: give a request_id or a job_id, not both"),
        ({"job_id": "a/b"}, "add: job_id 'a/b' may only contain"),
        ({"job_id": 7}, r"add: job_id: Expected `str \| null`, got `int`"),
        ({"delay": "soon"}, "add: delay: 'soon' is not a duration; write 90"),
        ({"delay": True}, "add: delay: True is not a duration"),
        ({"retry": 3}, "add: retry: Expected `object`, got `int`"),
        ({"isolation": "process"}, "add: there is no option isolation"),
    ],
)
def test_a_wrong_option_is_refused_when_it_is_given(
    memory: App, options: dict[str, object], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        memory.job(add).configure(**options)  # type: ignore[arg-type]


def test_a_job_that_ends_otherwise_raises(stored: App) -> None:
    handle = stored.job(add).enqueue(1)
    fail(stored, "no such model")

    with pytest.raises(JobFailed) as caught:
        handle.result()

    assert caught.value.job.state is State.FAILED
    assert pickle.loads(pickle.dumps(caught.value)).job == caught.value.job
    assert caught.value.message == (
        f"Job {handle.job_id} (add) ended failed: no such model. What to do: holdfast why {handle.job_id}"
    )


def test_a_result_that_takes_too_long_times_out_and_leaves_the_job(stored: App) -> None:
    handle = stored.job(add).enqueue(1)

    with pytest.raises(TimeoutError, match=f"{handle.job_id} is still queued after 0.05 s"):
        handle.result(timeout=0.05)
    finish(stored, 3)

    assert handle.result(timeout=timedelta()) == 3


async def test_a_result_arrives_while_somebody_waits(stored: App) -> None:
    job = stored.job(add)

    handle = await job.enqueue_async(1)
    waiting = asyncio.create_task(handle.result_async(timeout=120))
    await asyncio.to_thread(finish, stored, 3)
    assert await waiting == 3


def test_a_result_of_other_code_is_refused(memory: App) -> None:
    handle = memory.job(add).enqueue(1)
    finish(memory, "three")

    with pytest.raises(Invalid, match="not what add is declared to return here: Expected `int`"):
        handle.result()


def test_a_job_is_cancelled(stored: App) -> None:
    job = stored.job(add)
    handle = job.enqueue(1)

    assert handle.cancel(reason="not needed").state is State.CANCELLED
    with pytest.raises(JobFailed, match="ended cancelled"):
        handle.result()
    other = job.enqueue(1)
    assert asyncio.run(other.cancel_async(hard=True)).state is State.CANCELLED


def test_a_job_of_a_store_that_is_gone_is_not_found(memory: App) -> None:
    handle = memory.job(add).enqueue(1)
    memory.close()

    with pytest.raises(NotFound):
        handle.refresh()


def test_the_plain_function_is_called_with_what_it_takes(memory: App) -> None:
    def note(ctx: Context, path: str) -> str:
        return path

    job = memory.job(kind="note")(note)
    context = object.__new__(Context)

    assert job(context, "a") == "a"


def test_a_handler_that_returns_nothing_gives_nothing(memory: App) -> None:
    def quiet() -> None: ...

    handle = memory.job(kind="quiet")(quiet).enqueue()
    end(memory, Success())

    handle.result(timeout=120)
