"""The app of the worker benchmark: jobs that do nothing, tell the time, outlive a worker, or talk."""

import asyncio
import time

import holdfast

app = holdfast.App()
NAME = "worker_app:app"
LINE_BYTES = 100


@app.job
async def nothing(n: int) -> None:
    """A coroutine."""


@app.job
def nothing_in_a_thread(n: int) -> None:
    """A plain function, run in a thread of the shared runner."""


@app.job(isolation="process")
def nothing_apart(n: int) -> None:
    """A plain function in a process of its own."""


@app.job
async def moment() -> float:
    """When it began, by the clock that all processes of the machine share."""
    return time.monotonic()


@app.job
async def survive(ctx: holdfast.Context, aloud: bool) -> float:
    """Hang in the first attempt, with or without a word; in the next one, tell when that began."""
    now = time.monotonic()
    if ctx.attempt == 1:
        if aloud:
            print("here")
        await asyncio.sleep(600)
    return now


@app.job
def talk(lines: int) -> None:
    for n in range(lines):
        print(line(n))


def line(n: int) -> str:
    """A line that says which it is; with its end it has 100 bytes."""
    return f"{n:09d} ".ljust(LINE_BYTES - 1, "x")
