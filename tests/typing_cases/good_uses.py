"""Uses that the type checker accepts, and what it knows about them."""

from datetime import timedelta
from typing import Any, BinaryIO, assert_type, reveal_type

import holdfast
from holdfast import App, AsyncClient, Client, Context, Handle, Job, OnExhausted, Retry, Task
from holdfast.core.event import Event
from holdfast.runner.call import Call
from holdfast.runner.task_handle import TaskHandle
from holdfast.sdk.async_client import OutputChunk

app = App("sqlite:///jobs.db")


async def undo(ctx: Context, path: str, width: int = 100) -> None: ...


@app.job
async def resize(ctx: Context, path: str, width: int = 100) -> dict[str, int]:
    return {path: width}


@app.job(
    kind="sum",
    version=2,
    queue="numbers",
    priority=1,
    max_failures=3,
    max_crashes=2,
    on_exhausted=OnExhausted.FAIL,
    retry=Retry(factor=3),
    lease=30,
    timeout=timedelta(minutes=1),
    ttl=3600.0,
    isolation="process",
    memory=2**30,
    lock="disk",
    region="eu",
    labels={"team": "numbers"},
    outputs=["model.bin"],
)
def add(first: int, second: int = 2) -> int:
    return first + second


@app.job(compensate=undo, on_exhausted="fail")
def shrink(ctx: Context, path: str, width: int = 100) -> None: ...


@app.job()
async def fetch(url: str, *, tries: int = 3) -> dict[str, Any]:
    return {"url": url, "tries": tries}


@app.job
def tidy() -> None: ...


@app.job
async def keep(document: object, name: str) -> int:
    return 1


def seen() -> None:
    reveal_type(
        resize.enqueue
    )  # is: def (path: str, width: int =) -> holdfast.sdk.handle.Handle[dict[str, int]]
    reveal_type(add.enqueue)  # is: def (first: int, second: int =) -> holdfast.sdk.handle.Handle[int]
    reveal_type(shrink.call)  # is: def (path: str, width: int =) -> holdfast.runner.call.Call[None]
    reveal_type(tidy.enqueue)  # is: def () -> holdfast.sdk.handle.Handle[None]


def plain() -> None:
    assert_type(resize.enqueue(path="a"), Handle[dict[str, int]])
    assert_type(resize.enqueue("a", 3).result(timeout=5), dict[str, int])
    assert_type(resize.call("a", width=3), Call[dict[str, int]])
    assert_type(resize.enqueue_many([resize.call("a")]), list[Handle[dict[str, int]]])
    assert_type(resize.configure(delay="5m", request_id="r").enqueue("a"), Handle[dict[str, int]])
    assert_type(resize.configure(connection=object()).call("a"), Call[dict[str, int]])
    assert_type(add.enqueue(1, second=3).result(), int)
    assert_type(add(1, 2), int)
    assert_type(shrink.enqueue("a"), Handle[None])
    assert_type(fetch.enqueue("a", tries=1), Handle[dict[str, Any]])
    assert_type(tidy.enqueue(), Handle[None])
    assert_type(keep.enqueue({"a": 1}, name="a"), Handle[int])
    assert_type(resize.enqueue("a").refresh(), Job)
    assert_type(resize.enqueue("a").cancel(hard=True), Job)
    assert_type(app.jobs["resize"].kind, str)


async def coroutine(ctx: Context) -> None:
    assert_type(await resize(ctx, "a", width=3), dict[str, int])
    assert_type(shrink.takes_context, bool)
    shrink(ctx, path="a")
    handle = await resize.enqueue_async(path="a")
    assert_type(handle, Handle[dict[str, int]])
    assert_type(await handle.result_async(), dict[str, int])
    assert_type(await add.enqueue_many_async([add.call(1)]), list[Handle[int]])
    ctx.follow_up(add.call(1))
    async with ctx.output("model.bin") as file:
        assert_type(file, BinaryIO)
    async for task in ctx.tasks_async():
        assert_type(task, TaskHandle)
        await task.save_async({"a.csv": b"1"})
        async for result in task.results_async():
            assert_type(result.files, dict[str, bytes])


def leave(ctx: Context) -> None:
    with ctx.output("model.bin") as file:
        assert_type(file, BinaryIO)
    for task in ctx.tasks():
        assert_type(task, TaskHandle)
        assert_type(task.params, dict[str, bool | int | float | str])
        assert_type([one.task for one in task.results()], list[Task])


def study() -> None:
    tasks = holdfast.study(bundle="a", entrypoint="b", parameter_sets=[{"c": 1}], replicates=2)
    assert_type(resize.configure(tasks=tasks).enqueue("a"), Handle[dict[str, int]])
    assert_type(resize.configure(outputs=["a"]).call("a"), Call[dict[str, int]])
    holdfast.command(["make"], outputs=["a", holdfast.File("b", count=2)])


def watch(client: Client) -> None:
    assert_type(client.enqueue(add.call(1), priority=1).result(), int)
    assert_type(client.enqueue("resize", {"path": "a"}, delay=3), Handle[Any])
    assert_type(client.enqueue_many([add.call(1)]), list[Handle[int]])
    assert_type(list(client.list(states=[holdfast.State.QUEUED])), list[Job])
    for piece in client.logs("job"):
        assert_type(piece, OutputChunk)
    for event in client.events():
        assert_type(event, Event)


async def watch_async() -> None:
    async with AsyncClient() as client:
        assert_type(await (await client.enqueue(add.call(1))).result_async(), int)
        assert_type(await client.enqueue("resize"), Handle[Any])
        async for job in client.list(queue="numbers"):
            assert_type(job, Job)
        async for piece in client.logs("job"):
            assert_type(piece, OutputChunk)
