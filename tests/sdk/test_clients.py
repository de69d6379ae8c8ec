"""The clients, in both forms, on every store: submit, watch, list, cancel."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from math import nan
from pathlib import Path

import numpy as np
import pytest

from holdfast import App, AsyncClient, Client, Invalid, JobFailed, NotFound, State
from holdfast.core.lifecycle import Success
from holdfast.core.process_spec import decode_process_spec
from holdfast.core.retry import COMMAND_RETRY
from holdfast.sdk.async_client import OutputChunk
from holdfast.sdk.open import DEFAULT_STORE
from tests.sdk.sample_jobs import STORES, add, fail, finish, reach_of, url_of, worked

LINES = (("stdout", b"one\n"), ("stderr", b"oh\xff\n"), ("stdout", b"two\n"))


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as made:
        yield made


def test_a_kind_and_its_arguments_make_a_job(client: Client) -> None:
    handle = client.enqueue("resize", {"path": "a"}, queue="default", priority=2, timeout=9)

    assert (handle.job.spec.kind, bytes(handle.job.spec.payload)) == ("resize", b'{"path":"a"}')
    assert (handle.job.spec.priority, handle.job.spec.timeout) == (2, timedelta(seconds=9))
    finish(client, {"a": 1})
    assert client.wait(handle.job_id, timeout=120).state is State.SUCCEEDED
    assert client.result(handle.job_id) == handle.result() == {"a": 1}


def test_a_kind_without_arguments_has_none(client: Client) -> None:
    assert bytes(client.enqueue("tidy").job.spec.payload) == b"{}"


def test_a_checked_call_makes_a_job_with_a_typed_result(client: Client) -> None:
    job = App("memory://").job(add)

    one = client.enqueue(job.call(1), queue="other")
    two, three = client.enqueue_many([job.call(2), job.call(3)])

    assert one.job.spec.queue == "other"
    assert client.counts() == {State.QUEUED: 3}
    assert client.counts("other") == {State.QUEUED: 1}
    finish(client, 4)
    total: int = two.result(timeout=120)
    assert total == 4
    assert client.status(three.job_id).state is State.QUEUED


def test_a_command_makes_a_job(client: Client) -> None:
    handle = client.submit(
        ["echo", "hello"], cwd="/tmp", env={"A": "1"}, secrets=["TOKEN"], labels={"a": "b"}
    )

    spec = client.status(handle.job_id).spec
    command = decode_process_spec(spec.payload)
    assert (command.argv, command.cwd) == (("echo", "hello"), "/tmp")
    assert (command.env, command.secrets) == ({"A": "1"}, ("TOKEN",))
    assert (spec.kind, spec.labels, spec.retry) == ("command", {"a": "b"}, COMMAND_RETRY)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("resize", {"a": print}), "resize: its arguments cannot be written as JSON"),
        (("re size", {}), "re size: kind 're size' may only contain"),
    ],
)
def test_what_cannot_be_a_job_is_refused(arguments: tuple[str, dict[str, object]], words: str) -> None:
    with Client("memory://") as client, pytest.raises(Invalid, match=words):
        client.enqueue(*arguments)


def test_a_command_is_a_list_and_a_call_has_its_arguments() -> None:
    with Client("memory://") as client:
        with pytest.raises(Invalid, match="A command is a list of words"):
            client.submit("echo hello")
        with pytest.raises(Invalid, match="A call has its arguments already"):
            client.enqueue(App("memory://").job(add).call(1), {})  # type: ignore[call-overload]
        assert client.counts() == {}


def test_a_job_is_asked_about_and_cancelled(client: Client) -> None:
    handle = client.enqueue("resize")

    assert "No known worker serves queue default" in client.why(handle.job_id)
    assert client.cancel(handle.job_id, reason="a typo").state is State.CANCELLED
    assert client.status(handle.job_id).reason == "a typo"
    with pytest.raises(JobFailed, match="a typo"):
        client.result(handle.job_id)
    with pytest.raises(NotFound):
        client.status("nobody")
    with pytest.raises(NotFound):
        client.wait("nobody", timeout=120)


def test_waiting_too_long_is_a_timeout(client: Client) -> None:
    handle = client.enqueue("resize")

    with pytest.raises(TimeoutError, match="is still queued"):
        client.wait(handle.job_id, timeout=0.02)


def test_a_list_goes_over_all_pages(client: Client) -> None:
    job = App("memory://").job(add)
    made = client.enqueue_many(job.call(n) for n in range(1003))
    fail(client)
    other = client.enqueue("resize", queue="other", labels={"a": "b"})

    ids = [handle.job_id for handle in made]
    assert [found.job_id for found in client.list()] == [*ids, other.job_id]
    assert [found.job_id for found in client.list(newest=True, limit=2)] == [other.job_id, ids[-1]]
    assert len(list(client.list(limit=1001))) == 1001
    assert list(client.list(limit=0)) == []
    assert [found.job_id for found in client.list(states=["failed"])] == [ids[0]]
    assert [found.job_id for found in client.list(labels={"a": "b"})] == [other.job_id]
    assert [found.job_id for found in client.list(kind="resize", queue="other")] == [other.job_id]


def test_a_state_that_does_not_exist_is_refused() -> None:
    with Client("memory://") as client, pytest.raises(Invalid, match="a state is one of pending"):
        list(client.list(states=["done"]))


def test_the_events_of_a_job_end_with_it(client: Client) -> None:
    handle = client.enqueue("resize")
    finish(client)

    types = [str(event.event_type) for event in client.events(handle.job_id)]

    assert types == ["job_queued", "job_claimed", "job_started", "job_succeeded"]


def test_the_events_of_all_jobs_are_left_when_the_caller_leaves(client: Client) -> None:
    first, second = client.enqueue("resize"), client.enqueue("resize")

    seen = []
    for event in client.events():
        seen.append(event.job_id)
        if len(seen) == 2:
            break

    assert seen == [first.job_id, second.job_id]


def test_the_output_of_a_job_is_streamed_until_it_ends(client: Client) -> None:
    handle = client.enqueue("resize")
    reach = reach_of(client)
    reach.call(lambda asynchronous: worked(asynchronous.registry, Success(), *LINES))

    pieces = list(client.logs(handle.job_id))

    assert [(piece.stream, piece.data) for piece in pieces] == list(LINES)
    assert pieces[1].text == "oh�\n"
    assert pieces[0] == OutputChunk("stdout", b"one\n", 1)
    assert list(client.logs(handle.job_id, follow=False)) == pieces


def test_output_without_following_is_what_is_there(client: Client) -> None:
    handle = client.enqueue("resize")

    assert list(client.logs(handle.job_id, follow=False)) == []


async def test_output_is_followed_while_it_comes(url: str) -> None:
    async with AsyncClient(url) as client:
        handle = await client.enqueue("resize")

        async def read() -> list[bytes]:
            return [piece.data async for piece in client.logs(handle.job_id)]

        reading = asyncio.create_task(read())
        await asyncio.sleep(0.05)
        await worked(client.registry, Success(), *LINES)
        async with asyncio.timeout(20):
            assert await reading == [data for _, data in LINES]


async def test_the_client_for_coroutines_says_the_same(url: str) -> None:
    async with AsyncClient(url) as client:
        job = App("memory://").job(add)
        handle = await client.enqueue(job.call(1))
        [other] = await client.enqueue_many([job.configure(queue="other").call(2)])
        command = await client.submit(["true"], queue="other")
        await worked(client.registry, Success(result=3))

        total: int = await handle.result_async(timeout=120)
        assert total == await client.result(handle.job_id) == 3
        assert (await client.wait(handle.job_id)).state is State.SUCCEEDED
        assert await client.counts("other") == {State.QUEUED: 2}
        assert "No known worker serves" in await client.why(command.job_id)
        await client.cancel(other.job_id)
        assert (await other.refresh_async()).state is State.CANCELLED
        found = [found.job_id async for found in client.list()]
        assert found == [handle.job_id, other.job_id, command.job_id]
        async with aclosing(client.events()) as events:
            assert (await anext(events)).job_id == handle.job_id


async def test_a_handle_of_the_client_for_coroutines_does_not_block() -> None:
    async with AsyncClient("memory://") as client:
        handle = await client.enqueue("resize")
        with pytest.raises(Invalid, match="use the form for coroutines"):
            handle.result()


async def test_a_client_that_is_not_open_says_so() -> None:
    client = AsyncClient("memory://")
    with pytest.raises(Invalid, match="The client is not open"):
        await client.status("a")
    async with client:
        pass
    with pytest.raises(Invalid, match="The client is not open"):
        await client.status("a")


def test_a_client_finds_its_store_as_an_app_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    assert Client().url == AsyncClient().url == DEFAULT_STORE
    monkeypatch.setenv("HOLDFAST_STORE", "memory://")
    assert Client().url == AsyncClient().url == "memory://"


def test_a_store_that_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    with Client(f"sqlite:///{tmp_path}/later/jobs.db") as client:
        with pytest.raises(Exception, match="later"):
            client.submit(["true"])
        (tmp_path / "later").mkdir()
        client.submit(["true"])
        assert client.counts() == {State.QUEUED: 1}


READS: list[Callable[[Client], object]] = [
    lambda client: client.status("a"),
    lambda client: client.wait("a", timeout=1),
    lambda client: client.result("a", timeout=1),
    lambda client: client.cancel("a"),
    lambda client: client.why("a"),
    lambda client: client.counts(),
    lambda client: list(client.list()),
    lambda client: list(client.logs("a")),
    lambda client: next(iter(client.events())),
]


@pytest.mark.parametrize("read", READS)
def test_a_client_that_only_reads_makes_no_file(
    read: Callable[[Client], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)

    with Client() as client, pytest.raises(NotFound, match=r"There is no store at .*the first job"):
        read(client)

    assert list(tmp_path.iterdir()) == []


def test_a_client_reads_a_store_that_was_made_since(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with Client(url) as reader, Client(url) as writer:
        with pytest.raises(NotFound):
            reader.counts()
        writer.submit(["true"])
        assert reader.counts() == {State.QUEUED: 1}


@pytest.mark.parametrize("kind", [App, Client])
def test_a_variable_that_the_code_overrides_is_told_of_once(
    kind: type[App | Client],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", "postgresql://ana:sesame@db/jobs")
    url = f"sqlite:///{tmp_path / 'jobs.db'}"

    for _ in range(2):
        used = kind(url)
        (used.job(add).enqueue(1) if isinstance(used, App) else used.submit(["true"]))
        used.close()

    assert [record.getMessage() for record in caplog.records if record.name == "holdfast"] == [
        f"The store is {url}, as the code says; HOLDFAST_STORE=postgresql://ana:***@db/jobs is not used."
        " Leave the URL out of the code to use it."
    ]


@pytest.mark.parametrize("named", [None, "sqlite:///jobs.db", "sqlite:///./jobs.db"])
def test_nothing_is_told_where_the_code_and_the_variable_name_one_store(
    named: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    if named is None:
        monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    else:
        monkeypatch.setenv("HOLDFAST_STORE", named)

    with Client(f"sqlite:///{tmp_path / 'jobs.db'}") as client:
        client.submit(["true"])

    assert not [record for record in caplog.records if record.name == "holdfast"]


def test_jobs_are_found_by_numbers_of_numpy_nan_and_times(client: Client) -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    fit = App("memory://").job(untyped)
    made = client.enqueue_many([fit.call(np.float64(0.5)), fit.call(nan), fit.call(at)])

    for value, handle in zip((np.float64(0.5), nan, at), made, strict=True):
        assert [job.job_id for job in client.list(arguments={"value": value})] == [handle.job_id]
    with pytest.raises(
        Invalid, match="arguments: value: cannot be written as JSON: a object has no JSON form"
    ):
        list(client.list(arguments={"value": object()}))


def untyped(value): ...  # type: ignore[no-untyped-def]  # noqa: ANN001
