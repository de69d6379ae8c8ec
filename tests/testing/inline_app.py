"""An app whose handlers do what handlers do: return, fail, wait, hang, and make other jobs."""

import asyncio
import threading
import time
from datetime import timedelta

from holdfast import App, Context, PermanentError, Retry, Snooze

app = App("sqlite:////nowhere/at/all.db")
said: list[str] = []


@app.job
async def add(first: int, second: int = 2) -> int:
    return first + second


@app.job
def add_plainly(first: int, second: int = 2) -> int:
    return first + second


@app.job(max_failures=3, retry=Retry(backoff=timedelta(seconds=30), factor=1))
async def stumble(ctx: Context, times: int) -> int:
    if ctx.attempt <= times:
        raise ValueError(f"stumbled in attempt {ctx.attempt}")
    return ctx.attempt


@app.job
def stumble_plainly() -> None:
    raise PermanentError("never")


@app.job
async def breed(depth: int) -> None:
    said.append(f"depth {depth}")
    if depth:
        await breed.enqueue_async(depth=depth - 1)


@app.job
def breed_plainly(depth: int) -> None:
    said.append(f"depth {depth}")
    if depth:
        breed_plainly.configure(queue=f"queue-{depth}").enqueue(depth=depth - 1)


@app.job
async def breed_while_blocking(depth: int) -> None:
    said.append(f"depth {depth}")
    if depth:
        breed_while_blocking.enqueue(depth=depth - 1)


@app.job
async def snooze_for_ever(seconds: float) -> None:
    raise Snooze(seconds)


def undo(ctx: Context, why: str) -> None:
    said.append(f"undone {why}")


@app.job(timeout=60, max_failures=1, compensate=undo)
async def sleep_long(why: str) -> None:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        said.append("cancelled")
        raise


@app.job(timeout=60, max_failures=1)
def wait_long(ctx: Context) -> None:
    said.append(f"told {ctx.wait_cancelled(3600)}")


@app.job
def wait_a_little(ctx: Context) -> bool:
    return ctx.wait_cancelled(1800)


@app.job
async def sleep_on_and_off() -> None:
    for _ in range(10):
        await asyncio.sleep(60)


@app.job
async def work_in_a_thread() -> int:
    async with asyncio.timeout(5):
        return await asyncio.to_thread(_slowly)


def _slowly() -> int:
    time.sleep(0.05)
    return 7


never = threading.Event()


@app.job
def hang() -> None:
    never.wait()


@app.job
async def keep(ctx: Context, pages: int) -> list[int]:
    done: list[int] = ctx.last_checkpoint(list[int]) or []
    for page in range(len(done), pages):
        ctx.progress(page, pages)
        ctx.emit("page", number=page)
        done.append(page)
        await ctx.checkpoint_async(done)
        if page == 1 and ctx.attempt == 1:
            raise ConnectionError("lost between pages")
    return done


@app.job
async def breed_in_time() -> None:
    async with asyncio.timeout(5):
        await add.enqueue_async(first=1)
