"""Promised outputs: what a job records, where they will be, and what is refused."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from holdfast import (
    App,
    AsyncClient,
    Client,
    Conflict,
    Context,
    File,
    Invalid,
    State,
    Unavailable,
    command,
)
from holdfast.core.outputs import OutputPromise
from holdfast.outputs.inspector import LocalInspector
from holdfast.outputs.url import open_outputs
from holdfast.sdk import output_store
from holdfast.sdk.open import open_local, open_registry
from holdfast.sdk.output_store import chosen_outputs, open_chosen_outputs, open_inspector
from holdfast.wire.remote_inspector import RemoteInspector
from tests.runner.outputs_app import tasks
from tests.sdk.sample_jobs import url_of
from tests.server.running_server import outputs_in, serving


def train(ctx: Context, seed: int = 1) -> None: ...


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HOLDFAST_OUTPUTS", raising=False)
    monkeypatch.setenv("HOLDFAST_CONFIG", "/dev/null")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    made = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    yield made
    made.close()


def promise(app: App, job_id: str) -> OutputPromise:
    job = app.background.call(lambda client: client.status(job_id))
    assert job.spec.outputs is not None
    assert job.spec.promised_outputs == job.spec.outputs.count
    return job.spec.outputs


def store_id(url: str | None) -> str:
    async def read() -> str:
        outputs = await open_outputs(str(url), create=False)
        await outputs.close()
        return outputs.store_id

    return asyncio.run(read())


# Which output store.


def test_what_is_given_goes_before_the_environment_that_before_the_file_and_that_before_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = "sqlite:///data/jobs.db"
    assert chosen_outputs(store) == f"file://{tmp_path}/data/jobs.outputs"
    assert chosen_outputs("postgresql://db/jobs") is None
    assert chosen_outputs("http://127.0.0.1:8080") is None
    assert chosen_outputs("memory://") is None

    settings = tmp_path / "holdfast.toml"
    settings.write_text('outputs = "s3://of-file"')
    monkeypatch.setenv("HOLDFAST_CONFIG", str(settings))
    assert chosen_outputs(store) == chosen_outputs("memory://") == "s3://of-file"
    monkeypatch.setenv("HOLDFAST_OUTPUTS", "s3://of-env")
    assert chosen_outputs(store) == App(store).outputs == "s3://of-env"
    assert chosen_outputs(store, "s3://given") == "s3://given"
    assert App(store, outputs="s3://given").outputs == "s3://given"


async def test_the_folder_beside_a_store_is_none_until_somebody_has_made_it(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'jobs.db'}"

    assert await open_chosen_outputs(store, create=False) is None
    made = await open_chosen_outputs(store, create=True)
    again = await open_chosen_outputs(store, create=False)
    assert made is not None
    assert again is not None
    assert again.store_id == made.store_id
    with pytest.raises(Unavailable):  # it was named: that it is not there is no choice
        await open_chosen_outputs(store, str(tmp_path / "elsewhere"), create=False)


async def test_a_server_is_asked_about_outputs_unless_there_is_an_output_store_here(
    tmp_path: Path,
) -> None:
    server = "http://127.0.0.1:1"
    remote = await open_registry(server)
    local = await open_registry("memory://")
    outputs = await open_outputs(str(tmp_path / "o"), create=True)
    assert isinstance(await open_inspector(remote, server, outputs=None), RemoteInspector)
    assert isinstance(await open_inspector(remote, server, outputs=outputs), LocalInspector)
    forced = await open_inspector(remote, server, outputs=None, server=False)
    assert isinstance(forced, LocalInspector)
    assert isinstance(await open_inspector(local, "memory://", outputs=None), LocalInspector)
    await remote.close()
    await local.close()


# What is promised.


def test_a_function_promises_what_its_decorator_says(app: App, tmp_path: Path) -> None:
    job = app.job(outputs=["model.bin", "metrics.json"])(train)

    made = promise(app, job.enqueue(3).job_id)

    assert made.names == ("model.bin", "metrics.json")
    assert made.place == (tmp_path / "jobs.outputs").as_uri()
    assert made.store == store_id(app.outputs)


def test_a_job_that_promises_nothing_makes_no_output_store(app: App, tmp_path: Path) -> None:
    handle = app.job(train).enqueue(3)

    assert handle.job.spec.outputs is None
    assert not (tmp_path / "jobs.outputs").exists()


def test_many_jobs_open_the_output_store_once(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    async def counting(url: str, *, create: bool) -> object:
        opened.append(url)
        return await open_outputs(url, create=create)

    monkeypatch.setattr(output_store, "open_outputs", counting)
    job = app.job(outputs=["a"])(train)

    handles = job.enqueue_many(job.call(n) for n in range(100))
    job.enqueue(3)

    assert len({promise(app, handle.job_id).store for handle in handles}) == 1
    assert opened == [app.outputs]


def test_options_of_one_job_go_before_those_of_the_function(app: App) -> None:
    job = app.job(outputs=["a"])(train)

    assert promise(app, job.configure(outputs=["b", "c"]).enqueue().job_id).names == ("b", "c")
    assert job.configure(outputs=None).enqueue().job.spec.outputs is None
    both = promise(app, job.configure(tasks=tasks(1, 2)).enqueue().job_id)
    assert (both.names, both.entries) == (("a",), 3)
    assert job.configure(delay=60).outputs == ("a",)


def test_a_study_is_kept_once_however_often_its_job_is_made(app: App, tmp_path: Path) -> None:
    job = app.job(train).configure(tasks=tasks())

    first, second = (promise(app, job.enqueue(n).job_id) for n in range(2))

    assert first == second
    assert (first.entries, first.store) == (8, store_id(app.outputs))
    [kept] = (tmp_path / "jobs.outputs" / "manifests").iterdir()
    assert kept.stem == first.manifest
    assert len(kept.read_bytes().splitlines()) == 8


def test_a_repeated_request_is_the_same_job_and_another_promise_is_another_request(
    app: App,
) -> None:
    job = app.job(outputs=["a"])(train).configure(request_id="r-1")

    assert job.enqueue().job_id == job.enqueue().job_id
    with pytest.raises(Exception, match="exists already, for a different request"):
        job.configure(outputs=["b"]).enqueue()


def test_clients_promise_by_name_and_commands_promise_paths(app: App, tmp_path: Path) -> None:
    store = str(tmp_path / "elsewhere")
    with Client(app.url, outputs=store) as client:
        by_name = client.enqueue("train", {"seed": 1}, outputs=["a"], tasks=tasks(1, 1))
        files: list[str | File] = [File("run-7/*.parquet", count=4), "model.pt"]
        submitted = client.submit(["make"], outputs=files)
        call = client.enqueue(command(["make"], outputs=["x"]), outputs=["y"])

    made = promise(app, by_name.job_id)
    assert (made.names, made.entries, made.store) == (("a",), 1, store_id(store))
    assert promise(app, submitted.job_id) == OutputPromise(
        files=(File("run-7/*.parquet", count=4), File("model.pt"))
    )
    assert promise(app, call.job_id).files == (File("y"),)
    assert not (tmp_path / "jobs.outputs").exists()


async def test_coroutines_promise_too(app: App) -> None:
    job = app.job(outputs=["a"])(train)

    await job.enqueue_async(1)
    async with AsyncClient(app.url) as client:
        made = await client.enqueue(job.call(2))

    assert promise(app, made.job_id).names == ("a",)


@pytest.mark.parametrize("store", ["memory", "postgres"])
def test_without_an_output_store_nothing_can_be_promised_in_one(store: str, tmp_path: Path) -> None:
    app = App(url_of(store, tmp_path))
    with pytest.raises(Invalid, match=r"set HOLDFAST_OUTPUTS, or write App\(outputs=…\)"):
        app.job(outputs=["a"])(train).enqueue()
    app.close()


async def test_a_server_says_where_the_outputs_will_be_when_nobody_here_does(
    tmp_path: Path,
) -> None:
    outputs = await open_outputs(str(tmp_path / "o"), create=True)
    await outputs.close()
    registry = await open_local("memory://")
    async with serving(registry, opening=outputs_in(tmp_path / "o")) as served:
        async with AsyncClient(served.url) as client:
            named = await client.enqueue("train", outputs=["a"])
            study = await client.enqueue("train", tasks=tasks(2, 2))
        made = [(await registry.status(one.job_id)).spec.outputs for one in (named, study)]
    await registry.close()

    assert [one and one.count for one in made] == [1, 6]
    assert {one and one.store for one in made} == {outputs.store_id}
    assert len(list((tmp_path / "o" / "manifests").iterdir())) == 1


async def test_a_server_without_an_output_store_takes_no_promise_of_one() -> None:
    registry = await open_local("memory://")
    async with serving(registry) as served, AsyncClient(served.url) as client:
        with pytest.raises(Conflict, match="output store"):
            await client.enqueue("train", outputs=["a"])
    await registry.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"outputs": "model.bin"}, 'outputs is a list of names, such as ["model.bin"]'),
        ({"outputs": [1]}, "outputs is a list of names"),
        ({"outputs": ["a/b"]}, "An output cannot be called 'a/b'"),
        ({"outputs": ["a", "a"]}, "An output is promised twice"),
        ({"outputs": [File("a")]}, "plain paths are for commands"),
        ({"outputs": [f"o{n}" for n in range(101)]}, "At most 100 outputs are named one by one"),
        ({"tasks": "study.jsonl"}, "tasks are what holdfast.study makes"),
        ({"tasks": 3}, "tasks are what holdfast.study makes"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_made(
    app: App, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    job = app.job(train)
    with pytest.raises(Invalid, match="train: ") as refused:
        job.configure(**options)
    assert words in refused.value.message
    with Client(app.url) as client, pytest.raises(Invalid, match="train: "):
        client.enqueue("train", **options)
    assert not (tmp_path / "jobs.outputs").exists()


def test_a_study_without_tasks_and_one_that_was_used_up_are_refused(app: App, tmp_path: Path) -> None:
    job = app.job(train)
    with pytest.raises(Invalid, match="at least one task"):
        job.configure(tasks=[]).enqueue()
    with pytest.raises(Invalid, match="Task 1 is 'x'"):
        job.configure(tasks=["x"]).enqueue()  # type: ignore[list-item]
    with pytest.raises(Invalid, match="is an option of one job, not of all"):
        app.job(tasks=tasks())(train)  # type: ignore[call-overload]

    used = job.configure(tasks=tasks(1, 1)).call()
    with Client(app.url, outputs=str(tmp_path / "a")) as client:
        client.enqueue(used)
    elsewhere = Client(app.url, outputs=str(tmp_path / "b"))
    with elsewhere, pytest.raises(Invalid, match="These tasks were read already"):
        elsewhere.enqueue(used)


# In a transaction of the caller's own.


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_jobs_that_promise_are_made_inside_a_transaction(tmp_path: Path, driver: str, commits: bool) -> None:
    app = App(url_of("postgres", tmp_path), outputs=str(tmp_path / "outputs"))
    job = app.job(outputs=["a"])(train).configure(tasks=tasks(1, 1))
    plain = app.url.partition("?")[0]

    async def coroutine() -> None:
        connection = await asyncpg.connect(plain)
        transaction = connection.transaction()
        await transaction.start()
        await job.configure(connection=connection).enqueue_async(1)
        await (transaction.commit() if commits else transaction.rollback())
        await connection.close()

    if driver == "asyncpg":
        asyncio.run(coroutine())
    else:
        with psycopg.connect(plain) as connection:
            job.configure(connection=connection).enqueue(1)
            if not commits:
                connection.rollback()

    counts = app.background.call(lambda client: client.counts())
    assert counts.get(State.QUEUED, 0) == (1 if commits else 0)
    app.close()
