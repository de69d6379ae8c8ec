"""SAQ on PostgreSQL or Redis, by the URL: `saq`, and jobs of which nothing is kept once they succeed."""

import asyncio
import os
from importlib.util import find_spec

import side
from saq import Queue

ON_POSTGRES = side.URL.startswith("postgres")
CHUNK = 1000
JOB = {"ttl": -1, "timeout": 0}
HELD = {"ttl": -1, "timeout": 0, "heartbeat": 2, "retries": 5}
CONCURRENCY = 100 if ON_POSTGRES else 50
CONNECTIONS = 20
# On Redis a sweep takes a job that was just claimed, and not yet marked, for a stuck one: it runs twice.
SWEEP_SECONDS = 1 if ON_POSTGRES else 10

pool = {"min_size": CONNECTIONS, "max_size": CONNECTIONS} if ON_POSTGRES else {}
queue = Queue.from_url(side.URL, **pool)


async def noop(ctx):
    side.count()


async def timed(ctx, *, sent):
    side.waited(sent)


async def holds(ctx):
    await side.hold_async(beat=ctx["job"].update)


settings = {
    "queue": queue,
    "functions": [noop, timed, holds],
    "concurrency": CONCURRENCY,
    "timers": {"sweep": SWEEP_SECONDS},
}


@side.kept
async def opened():
    """Once for a process: a pool that was closed cannot be opened again."""
    await queue.connect()


async def connected(act):
    await opened()
    return await act()


def enqueue():
    return queue.enqueue("noop", **JOB)


async def enqueue_many(size):
    await asyncio.gather(*(enqueue() for _ in range(size)))


async def hold():
    await queue.enqueue("holds", **HELD)


async def fill(jobs):
    """Copies of a job that its own enqueue made; only the keys are new."""
    job = await enqueue()
    columns = "queue, status, priority, group_key, scheduled"
    text = (
        f"INSERT INTO saq_jobs (key, job, {columns}) SELECT key || '-' || n, "
        "convert_to(replace(convert_from(job, 'UTF8'), key, key || '-' || n), 'UTF8'), "
        f"{columns} FROM saq_jobs, generate_series(2, %s) AS n WHERE key = %s"
    )
    async with queue.pool.connection() as connection:
        await connection.execute(text, (int(jobs), job.key))


def words():
    parser = "with hiredis" if find_spec("hiredis") else "without hiredis"
    store = f"a pool of {CONNECTIONS}" if ON_POSTGRES else parser
    return (
        f"2 worker processes, concurrency {CONCURRENCY}, {store}, jobs with {JOB} (no row kept), "
        f"sweep every {SWEEP_SECONDS} s; enqueued by asyncio.gather over {CHUNK}"
    )


if __name__ == "__main__":
    bounded = f"job with {HELD}, `job.update()` in the handler, sweep every {SWEEP_SECONDS} s"
    verbs = {"fill": lambda jobs: connected(lambda: fill(jobs))} if ON_POSTGRES else {}
    side.main(
        settings=words,
        recovery=lambda: bounded,
        setup=lambda: connected(queue.info),
        work=lambda: side.script("saq", "run_saq.settings", "--quiet"),
        bulk=lambda jobs: connected(lambda: side.bulk(side.chunks(jobs, CHUNK), enqueue_many)),
        single=lambda jobs: connected(lambda: side.single(jobs, enqueue)),
        clients=lambda many, jobs: connected(lambda: side.clients(many, jobs, enqueue)),
        waits=lambda times: connected(
            lambda: side.waits(times, lambda sent: queue.enqueue("timed", sent=sent, **JOB))
        ),
        hold=lambda: connected(hold),
        left=lambda: connected(lambda: queue.count("incomplete")),
        **verbs,
    )
    os._exit(0)  # its pool stays open, and would be waited for
