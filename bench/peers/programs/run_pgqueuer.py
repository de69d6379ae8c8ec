"""PgQueuer: its worker on PostgreSQL, with asyncpg, in large batches."""

import os
from datetime import timedelta

import asyncpg
import side
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

BATCH, CHUNK, POOL = 500, 5000, 16
RECOVERY = {"heartbeat_timeout": timedelta(seconds=5), "dequeue_timeout": timedelta(seconds=1)}
FILL = """
INSERT INTO pgqueuer (priority, entrypoint, payload, execute_after, status)
SELECT priority, entrypoint, payload, execute_after, status
FROM (SELECT * FROM pgqueuer WHERE entrypoint = 'noop' AND status = 'queued' LIMIT 1) AS template,
     generate_series(1, $1)
"""


async def work():
    app = PgQueuer(AsyncpgDriver(await connection()))

    @app.entrypoint("noop")
    async def noop(job):
        side.count()

    @app.entrypoint("timed")
    async def timed(job):
        side.waited(job.payload.decode())

    @app.entrypoint("holds")
    async def holds(job):
        await side.hold_async()

    options = RECOVERY if os.environ.get("PEERS_SCENE") == "recovery" else {}
    await app.run(batch_size=BATCH, **options)


async def with_queries(act):
    async with asyncpg.create_pool(side.URL, min_size=POOL, max_size=POOL) as pool:
        return await act(Queries(AsyncpgPoolDriver(pool)))


async def bulk(queries, jobs):
    def many(size):
        return queries.enqueue(["noop"] * size, [None] * size, [0] * size)

    return await side.bulk(side.chunks(jobs, CHUNK), many)


async def fill(queries, jobs):
    await queries.enqueue("noop", None)
    await (await connection()).execute(FILL, int(jobs) - 1, timeout=120)


@side.kept
async def connection():
    return await asyncpg.connect(side.URL)


async def left():
    """A job that has ended is deleted."""
    ask = "SELECT count(*) FROM pgqueuer WHERE entrypoint = 'noop'"
    return await (await connection()).fetchval(ask)


def within(act):
    return lambda *words: with_queries(lambda queries: act(queries, *words))


if __name__ == "__main__":
    side.main(
        settings=lambda: f"2 x `PgQueuer.run(batch_size={BATCH})`, asyncpg; `enqueue` of {CHUNK:,}",
        recovery=lambda: "heartbeat_timeout 5 s, dequeue_timeout 1 s",
        setup=within(lambda queries: queries.install()),
        bulk=within(bulk),
        fill=within(fill),
        single=within(lambda q, jobs: side.single(jobs, lambda: q.enqueue("noop", None))),
        clients=within(lambda q, many, jobs: side.clients(many, jobs, lambda: q.enqueue("noop", None))),
        work=work,
        waits=within(lambda q, times: side.waits(times, lambda sent: q.enqueue("timed", str(sent).encode()))),
        hold=within(lambda q: q.enqueue("holds", None)),
        left=left,
    )
