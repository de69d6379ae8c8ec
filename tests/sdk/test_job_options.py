"""Every option of a job reaches the job, however the job is enqueued."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from holdfast import App, AsyncClient, Client, Context, Invalid, Job, Retry, State
from holdfast.core.manifest import Task
from holdfast.ports import JobRequest
from holdfast.runner.call import Call
from holdfast.sdk.job_function import JobFunction, JobOptions
from holdfast.testing import memory_app
from tests.sdk.sample_jobs import add, url_of

Made = JobFunction[..., int, Any]
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TASKS = [Task(bundle=f"sha256:{'b' * 64}", entrypoint="run:main", seed=n) for n in range(2)]
SAMPLES: dict[str, Any] = {
    "outputs": ["sum.txt"],
    "tasks": TASKS,
    "queue": "bulk",
    "name": "a sum",
    "priority": 1,
    "delay": 60,
    "run_at": datetime(2030, 1, 1, tzinfo=UTC),
    "lock": "sum-{first}-{second}",
    "region": "north",
    "lease": 5,
    "timeout": 7,
    "ttl": 600,
    "retry": Retry(max_failures=9),
    "labels": {"a": "b"},
    "request_id": "request-7",
    "job_id": "job-7",
    "correlation_id": "order-7",
    "trace_id": "0af7651916cd43dd8448eb211c80319c",
    "traceparent": PARENT,
}
"""Another value than the default, for every option."""
NAMES = ("request_id", "job_id")
ELSE = {"connection": "it says where, not what: tested below"}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    made = App("memory://", outputs=(tmp_path / "outputs").as_uri())
    yield made
    made.close()


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[App]:
    made = App(url_of("postgres", tmp_path), outputs=(tmp_path / "outputs").as_uri())
    yield made
    made.close()


def fields_of(job: Job) -> tuple[object, ...]:
    """What options can say of a job; where it is by itself is of no interest here."""
    named = job.job_id if job.job_id.startswith("job-") else None
    return (job.spec, named, job.correlation_id, job.trace_id, job.traceparent)


def made_by_itself(job: Made, option: str) -> Job:
    """The job that `enqueue` makes of it, in a store of its own."""
    return job.configure(**{option: SAMPLES[option]}).enqueue(1).job


def test_every_option_has_a_sample() -> None:
    assert SAMPLES.keys() | ELSE.keys() == set(JobOptions.__annotations__)


def by_many(job: Made, calls: list[Call[int]]) -> Job:
    return job.enqueue_many(calls)[0].job


def by_many_async(job: Made, calls: list[Call[int]]) -> Job:
    return asyncio.run(job.enqueue_many_async(calls))[0].job


Way = Callable[[Made, list[Call[int]]], Job]
MANY: list[Way] = [by_many, by_many_async]


@pytest.mark.parametrize("way", MANY)
@pytest.mark.parametrize("option", SAMPLES)
def test_what_is_said_of_many_is_said_of_each(option: str, way: Way, app: App) -> None:
    job = app.job(add)
    plain = job.enqueue(1).job
    wanted = made_by_itself(job, option)
    if option in NAMES:  # else the second would be the first
        app.close()

    found = way(job.configure(**{option: SAMPLES[option]}), [job.call(1)])

    assert fields_of(found) == fields_of(wanted)
    if option in NAMES:
        assert found.job_id == wanted.job_id != plain.job_id
    else:
        assert fields_of(found) != fields_of(plain)


@pytest.mark.parametrize("way", MANY)
@pytest.mark.parametrize("option", SAMPLES)
def test_what_a_call_says_itself_wins(option: str, way: Way, app: App) -> None:
    job = app.job(add)
    others: dict[str, Any] = {
        "outputs": [],
        "tasks": None,
        "priority": 9,
        "labels": {},
        "retry": Retry(max_failures=2),
        "delay": 5,
        "run_at": datetime(2031, 1, 1, tzinfo=UTC),
        "traceparent": PARENT.replace("b7", "c8"),
        "trace_id": "f" * 32,
    }
    other = others.get(option, 3 if isinstance(SAMPLES[option], int) else "job-other")
    own = job.configure(**{option: other}).call(1)
    wanted = job.configure(**{option: other}).enqueue(1).job

    found = way(job.configure(**{option: SAMPLES[option]}), [own])

    assert fields_of(found) == fields_of(wanted)


@pytest.mark.parametrize(
    ("of_all", "own"),
    [
        ({"delay": 5}, {"run_at": SAMPLES["run_at"]}),
        ({"run_at": SAMPLES["run_at"]}, {"delay": 5}),
        ({"trace_id": "f" * 32}, {"traceparent": PARENT}),
        ({"job_id": "job-1"}, {"request_id": "r-1"}),
        ({"queue": "bulk", "lock": "by-{second}"}, {"priority": 2, "lock": "mine"}),
    ],
)
def test_what_says_the_same_in_another_way_wins_too(
    of_all: dict[str, Any], own: dict[str, Any], app: App
) -> None:
    job = app.job(add)

    [found] = job.configure(**of_all).enqueue_many([job.configure(**own).call(1)])

    expected: dict[str, Any] = {**({"queue": "bulk"} if "queue" in of_all else {}), **own}
    app.close()
    assert fields_of(found.job) == fields_of(job.configure(**expected).enqueue(1).job)


@pytest.mark.parametrize("option", NAMES)
def test_the_name_of_one_job_is_not_given_to_several(option: str, app: App) -> None:
    job = app.job(add)
    named = job.configure(**dict[str, Any]({option: "job-7"}))

    with pytest.raises(Invalid, match=rf"a {option} names one job.*add.configure\({option}=\.\.\."):
        named.enqueue_many([job.call(1), job.call(2)])
    assert app.background.call(lambda client: client.counts()) == {}
    mine = job.configure(job_id="job-mine").call(2)
    assert len({one.job_id for one in named.enqueue_many([job.call(1), mine])}) == 2


@pytest.mark.parametrize("option", SAMPLES)
async def test_the_client_for_coroutines_takes_every_option(option: str, app: App) -> None:
    job = app.job(add)
    wanted, call = made_by_itself(job, option), job.configure(**{option: SAMPLES[option]}).call(1)

    async with AsyncClient("memory://", outputs=app.outputs) as client:
        found = [await client.enqueue(call), *await client.enqueue_many([call])]
    if option != "lock":  # a pattern is for those who know the arguments
        async with AsyncClient("memory://", outputs=app.outputs) as client:
            found.append(await client.enqueue(job.call(1), **{option: SAMPLES[option]}))

    assert [fields_of(one.job) for one in found] == [fields_of(wanted)] * len(found)


@pytest.mark.parametrize("option", SAMPLES)
def test_the_plain_client_takes_every_option(option: str, app: App) -> None:
    job = app.job(retry=Retry())(add)  # as jobs have it that are enqueued by the name of their kind
    wanted, call = made_by_itself(job, option), job.configure(**{option: SAMPLES[option]}).call(1)

    with Client("memory://", outputs=app.outputs) as client:
        found = [client.enqueue(call), *client.enqueue_many([call])]
    if option != "lock":
        with Client("memory://", outputs=app.outputs) as client:
            found.append(client.enqueue("add", {"first": 1}, **{option: SAMPLES[option]}))

    assert [fields_of(one.job) for one in found] == [fields_of(wanted)] * len(found)


@pytest.mark.parametrize("option", SAMPLES)
def test_follow_ups_take_every_option(option: str) -> None:
    app = App("memory://")
    job = app.job(add)
    call = job.configure(**{option: SAMPLES[option]}).call(1)

    def parent(ctx: Context) -> None:
        ctx.follow_up(call)

    begin = app.job(parent)
    with memory_app(app) as bench:
        handle = begin.enqueue()
        bench.drain()
        jobs = {one.spec.kind: one for one in bench.jobs()}
        if option in NAMES:
            assert "no job_id and no request_id" in (handle.refresh().reason or "")
            return
        found = jobs["add"]
        assert jobs["parent"].state is State.SUCCEEDED

        if option in ("outputs", "tasks"):
            assert found.spec.promised_outputs == len(SAMPLES[option])
            assert found.spec.outputs is not None
        else:
            assert found.spec == call.spec
            assert _same_ids(found, call.request, option)


def _same_ids(job: Job, request: JobRequest, option: str) -> bool:
    return option not in ("correlation_id", "trace_id", "traceparent") or (
        getattr(job, option) == getattr(request, option)
    )


@pytest.mark.parametrize("option", SAMPLES)
def test_a_transaction_takes_every_option(option: str, joined: App) -> None:
    job = joined.job(add)
    url = joined.url.partition("?")[0]
    chosen = job.configure(**{option: SAMPLES[option]})

    async def on_a_loop() -> Job:
        connection = await asyncpg.connect(url)
        transaction = connection.transaction()
        await transaction.start()
        [one] = await chosen.configure(connection=connection).enqueue_many_async([job.call(1)])
        await transaction.rollback()
        await connection.close()
        return one.job

    found = [asyncio.run(on_a_loop())]
    with psycopg.connect(url) as connection:
        found.append(chosen.configure(connection=connection).enqueue_many([job.call(1)])[0].job)
        connection.rollback()
    assert joined.background.call(lambda client: client.counts()) == {}
    wanted = chosen.enqueue(1).job

    assert [fields_of(one) for one in found] == [fields_of(wanted)] * 2


def test_a_call_keeps_its_connection(joined: App) -> None:
    job = joined.job(add)
    url = joined.url.partition("?")[0]

    with psycopg.connect(url) as mine, psycopg.connect(url) as other, Client(joined.url) as client:
        call = job.configure(connection=mine).call(1)
        job.enqueue_many([call])
        client.enqueue(call)
        client.enqueue_many([call])
        for calls in ([call, job.call(2)], [call, job.configure(connection=other).call(2)]):
            with pytest.raises(Invalid, match="different connections"):
                job.enqueue_many(calls)
        with pytest.raises(Invalid, match="different connections"):
            job.configure(connection=other).enqueue_many([call])
        mine.rollback()

    assert joined.background.call(lambda client: client.counts()) == {}


def test_a_follow_up_is_made_on_no_connection() -> None:
    app = App("memory://")
    call = app.job(add).configure(connection=object()).call(1)

    def parent(ctx: Context) -> None:
        ctx.follow_up(call)

    begin = app.job(parent)
    with memory_app(app) as bench:
        begin.enqueue()
        bench.drain(until_idle=True)
        [job] = bench.jobs()

    assert "give it no connection" in (job.reason or "")


def test_tasks_are_read_once_for_many_jobs(app: App) -> None:
    job = app.job(add)

    one, two = job.configure(tasks=iter(TASKS)).enqueue_many([job.call(1), job.call(2)])

    assert one.job.spec.outputs == two.job.spec.outputs
    assert one.job.spec.promised_outputs == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("a", r"enqueue_many takes calls, not 'a': pass add\.call\('a'\)\."),
        ((1, 2), r"pass add\.call\(1, 2\)\."),
        ({"first": 1}, r"pass add\.call\(first=1\)\."),
        (add, r"pass add\.call\(\.\.\.\)\."),
        ("a" * 100, r"pass add\.call\(\.\.\.\)\."),
    ],
)
def test_what_is_no_call_is_told_how_to_be_one(given: object, words: str, app: App) -> None:
    job: Any = app.job(add)

    with pytest.raises(Invalid, match=words):
        job.enqueue_many([given])
    with pytest.raises(Invalid, match=words):
        asyncio.run(job.enqueue_many_async([given]))


def test_one_call_is_no_list_of_calls(app: App) -> None:
    job: Any = app.job(add)

    with pytest.raises(Invalid, match=r"a list of calls: enqueue_many\(\[call\]\)"):
        job.enqueue_many(job.call(1))


def test_clients_and_follow_ups_say_so_too(app: App) -> None:
    job: Any = app.job(add)

    with Client("memory://") as client:
        with pytest.raises(Invalid, match=r"not 'a': pass f\.call\('a'\)"):
            client.enqueue_many(["a"])  # type: ignore[arg-type]
        with pytest.raises(Invalid, match=r"or a kind and its arguments, not <job add.*add\.call\("):
            client.enqueue(job)
    with pytest.raises(Invalid, match=r"follow_up takes a call, not <job add.*add\.call\("):
        Context.follow_up(object.__new__(Context), job)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("max_retries", r"Did you mean max_failures\? There are: compensate, .*, version\."),
        ("quee", r"Did you mean queue\? There"),
        ("zzz", r"there is no option zzz\. There are: compensate,"),
    ],
)
def test_an_unknown_option_of_the_decorator_is_told_which_there_are(
    option: str, words: str, app: App
) -> None:
    with pytest.raises(Invalid, match=f"add: there is no option {option}") as caught:
        app.job(**{option: 3})(add)  # type: ignore[call-overload]

    assert caught.match(words)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("max_retries", r"Did you mean retry=Retry\(max_failures=\.\.\.\)\? There are: connection, "),
        ("backoff", r"Did you mean retry=Retry\(backoff=\.\.\.\)\?"),
        ("countdown", r"Did you mean delay\?"),
        ("eta", r"Did you mean run_at\?"),
        ("title", r"Did you mean name\?"),
        ("timeot", r"Did you mean timeout\?"),
    ],
)
def test_an_unknown_option_of_configure_is_told_which_there_are(option: str, words: str, app: App) -> None:
    with pytest.raises(Invalid, match=rf"add: there is no option {option}\. {words}"):
        app.job(add).configure(**dict[str, Any]({option: 3}))


def test_an_unknown_option_of_a_command_is_told_which_there_are() -> None:
    with (
        Client("memory://") as client,
        pytest.raises(Invalid, match=r"There are: correlation_id, cwd"),
    ):
        client.submit(["true"], umask=7)  # type: ignore[call-arg]
