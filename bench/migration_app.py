"""The app, the filler and the steady client of the migration benchmark, for either holdfast.

migration_app.py fill URL JOBS                    short ones
migration_app.py hold URL JOBS                    long ones
migration_app.py client URL NAME RATE FILE        until SIGTERM; makes the jobs in the file first

It uses the public SDK only, which both have."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import holdfast

CHUNK = 1000
DELAYED, BROKEN, FLAKY = 100, 1000, 1000
"""One job in so many is delayed, fails for good, fails once."""
SLOW_SECONDS = 15.0
RETRY_SECONDS = 0.05
NAME = "migration_app:app"

app = holdfast.App()


def began(ctx: holdfast.Context) -> None:
    """Keep that this attempt began, also if this process is killed next."""
    if not _files:
        path = Path(os.environ["MIGRATION_FOLDER"]) / f"starts-{os.getpid()}"
        _files.append(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644))
    os.write(_files[0], f"{ctx.job_id} {ctx.attempt}\n".encode())


_files: list[int] = []


@app.job
async def quick(ctx: holdfast.Context) -> None:
    began(ctx)


@app.job
async def slow(ctx: holdfast.Context) -> None:
    """In the middle of its work when the migration comes."""
    began(ctx)
    await asyncio.sleep(SLOW_SECONDS)


@app.job
async def broken(ctx: holdfast.Context) -> None:
    began(ctx)
    raise holdfast.PermanentError("broken for good")


@app.job
async def flaky(ctx: holdfast.Context) -> None:
    began(ctx)
    if ctx.attempt == 1:
        raise holdfast.TransientError("broken for now")


def short(jobs: int) -> Iterator[holdfast.Call[None]]:
    for number in range(jobs):
        job_id = f"job-{number}"
        if number % DELAYED == 1:
            yield quick.configure(job_id=job_id, delay=3600).call()
        elif number % BROKEN == 2:
            yield broken.configure(job_id=job_id).call()
        elif number % FLAKY == 3:
            yield flaky.configure(job_id=job_id).call()
        else:
            yield quick.configure(job_id=job_id).call()


async def fill(url: str, calls: Iterable[holdfast.Call[None]]) -> None:
    async with holdfast.AsyncClient(url) as client:
        chunk = []
        for call in calls:
            chunk.append(call)
            if len(chunk) == CHUNK:
                await client.enqueue_many(chunk)
                chunk.clear()
        await client.enqueue_many(chunk)


class SteadyClient:
    """Makes so many jobs a second, and says of each that it is asked for, and that it was acknowledged.

    A call that failed is made again with the same id, unless its error says that it is of no use."""

    def __init__(self, url: str, name: str, rate: float) -> None:
        self._url, self._name, self._rate = url, name, rate
        self._over = asyncio.Event()

    async def run(self, again: list[str]) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._over.set)
        start = time.monotonic()
        client = await self._opened()
        say("open", f"{time.monotonic() - start:.3f}")
        try:
            async with asyncio.TaskGroup() as group:
                for job_id in again:
                    group.create_task(self._make(client, job_id))
                await self._steadily(client, group)
        finally:
            await client.close()

    async def _opened(self) -> holdfast.AsyncClient:
        while True:
            try:
                return await holdfast.AsyncClient(self._url).__aenter__()
            except holdfast.Unavailable as error:
                say("away", str(error))
                await asyncio.sleep(1)

    async def _steadily(self, client: holdfast.AsyncClient, group: asyncio.TaskGroup) -> None:
        start, sent = time.monotonic(), 0
        while not self._over.is_set():
            group.create_task(self._make(client, f"{self._name}-{sent}"))
            sent += 1
            pause = max(0.0, start + sent / self._rate - time.monotonic())
            try:
                await asyncio.wait_for(self._over.wait(), pause)
            except TimeoutError:
                continue

    async def _make(self, client: holdfast.AsyncClient, job_id: str) -> None:
        say("asked", job_id)
        start = time.monotonic()
        while True:
            try:
                await client.enqueue(quick.configure(job_id=job_id).call())
                say("made", job_id, f"{time.monotonic() - start:.4f}", f"{time.time():.3f}")
                return
            except holdfast.Unavailable as error:
                say("away", str(error))
                await asyncio.sleep(RETRY_SECONDS)
            except holdfast.HoldfastError as error:
                say("refused", job_id, str(error))
                self._over.set()
                return


def say(*words: str) -> None:
    print("\t".join(words), flush=True)


def main(verb: str, url: str, *words: str) -> None:
    if verb == "fill":
        work = fill(url, short(int(words[0])))
    elif verb == "hold":
        names = [f"slow-{number}" for number in range(int(words[0]))]
        work = fill(url, (slow.configure(queue="slow", job_id=name).call() for name in names))
    else:
        name, rate, file = words
        work = SteadyClient(url, name, float(rate)).run(Path(file).read_text().split())
    asyncio.run(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
