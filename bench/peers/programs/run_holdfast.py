"""holdfast: `holdfast worker` processes on SQLite or PostgreSQL, through the public SDK."""

import asyncio
import os
import time

import side

import holdfast
from holdfast import State

LEASE = f"{side.LEASE:g}s"
SLOTS = 1000
CHUNK = 1000

app = holdfast.App(side.URL)


@app.job
async def noop() -> None:
    side.count()


@app.job
async def timed(sent: float) -> None:
    side.waited(sent)


@app.job(max_crashes=5)
async def holds() -> None:
    await side.hold_async()


@side.kept
async def client():
    opened = await holdfast.AsyncClient(side.URL).__aenter__()
    await opened.counts("default")
    return opened


async def setup():
    """Opening a store makes it."""
    await client()


async def bulk(jobs):
    made = await client()

    async def many(size):
        await made.enqueue_many(noop.call() for _ in range(size))

    return await side.bulk(side.chunks(jobs, CHUNK), many)


async def single(jobs):
    made = await client()
    return await side.single(jobs, lambda: made.enqueue(noop.call()))


async def clients(many, jobs):
    made = await client()
    return await side.clients(many, jobs, lambda: made.enqueue(noop.call()))


def work():
    spool = side.FOLDER / f"spool-{side.WORKER}"
    options = ["--store", side.URL, "--name", side.WORKER, "--spool", str(spool)]
    if os.environ.get("PEERS_SCENE") != "default":
        options += ["-c", str(SLOTS)]
    if os.environ.get("PEERS_SCENE") == "recovery":
        options += ["--lease", LEASE]
    side.script("holdfast", "worker", "run_holdfast:app", *options)


async def waits(times):
    made = await client()
    await side.waits(times, lambda sent: made.enqueue(timed.call(sent)))


async def hold():
    await (await client()).enqueue(holds.call())


async def left():
    counts = await (await client()).counts("default")
    return sum(counts.get(state, 0) for state in (State.QUEUED, State.ASSIGNED, State.RUNNING))


async def kept():
    return sum((await (await client()).counts("default")).values())


async def crowd(waiting, unfit, claims, page_seconds):
    import crowd_holdfast  # a worker need not load it

    return await crowd_holdfast.crowd(side.URL, int(waiting), int(unfit), int(claims), float(page_seconds))


async def soak(seconds, rate):
    """Jobs that come in evenly, however long each takes."""
    made, each, began = await client(), 1 / float(rate), time.monotonic()
    sent, under_way = 0, set()
    while (due := began + sent * each) < began + float(seconds):
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        task = asyncio.ensure_future(made.enqueue(timed.call(time.monotonic())))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        sent += 1
    await asyncio.gather(*under_way)
    return sent


if __name__ == "__main__":
    workers = 1 if side.URL.startswith("sqlite") else 2
    side.main(
        settings=lambda: (
            f"{workers} x `holdfast worker -c {SLOTS}`; `AsyncClient`, `enqueue_many` of {CHUNK:,}"
        ),
        recovery=lambda: f"`--lease {LEASE}` (60 s unless asked for)",
        setup=setup,
        bulk=bulk,
        fill=bulk,
        single=single,
        clients=clients,
        work=work,
        waits=waits,
        hold=hold,
        left=left,
        kept=kept,
        crowd=crowd,
        soak=soak,
    )
