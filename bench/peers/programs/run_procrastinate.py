"""Procrastinate: its worker on PostgreSQL, with the periodic task from its page on stalled jobs."""

import os

import procrastinate
import psycopg
import side

CONCURRENCY, CHUNK, POOL = 50, 1000, 16
HEARTBEAT = {"update_heartbeat_interval": 1.0, "stalled_worker_timeout": 5.0}
RECOVERY = os.environ.get("PEERS_SCENE") == "recovery"
FILL = """
INSERT INTO procrastinate_jobs (queue_name, task_name, priority, lock, queueing_lock, args)
SELECT queue_name, task_name, priority, lock, queueing_lock, args
FROM (SELECT * FROM procrastinate_jobs WHERE task_name = 'noop' ORDER BY id LIMIT 1) AS template,
     generate_series(1, %s)
"""
LEFT = "SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'noop' AND status IN ('todo', 'doing')"

pool = {"min_size": 4, "max_size": POOL}
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=side.URL, **pool))


@app.task(name="noop")
async def noop():
    side.count()


@app.task(name="timed")
async def timed(sent):
    side.waited(sent)


@app.task(name="holds")
async def holds():
    await side.hold_async()


if RECOVERY:

    @app.periodic(cron="* * * * * *")
    @app.task(name="retry_stalled", queueing_lock="retry_stalled", pass_context=True)
    async def retry_stalled(context, timestamp):
        seconds = HEARTBEAT["stalled_worker_timeout"]
        for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=seconds):
            await app.job_manager.retry_job(job)


async def with_app(act):
    async with app.open_async():
        return await act()


async def many(size):
    await noop.batch_defer_async(*[{}] * size)


async def bulk(jobs):
    await app.job_manager.list_jobs_async(id=0)
    return await side.bulk(side.chunks(jobs, CHUNK), many)


async def work():
    options = HEARTBEAT if RECOVERY else {}
    await app.run_worker_async(name=side.WORKER, concurrency=CONCURRENCY, **options)


async def fill(jobs):
    await many(1)
    await (await connection()).execute(FILL, [int(jobs) - 1])


@side.kept
async def connection():
    return await psycopg.AsyncConnection.connect(side.URL, autocommit=True)


async def left():
    return (await (await (await connection()).execute(LEFT)).fetchone())[0]


def within(act):
    return lambda *words: with_app(lambda: act(*words))


if __name__ == "__main__":
    side.main(
        settings=lambda: (
            f"2 x `run_worker_async(concurrency={CONCURRENCY})`; `batch_defer_async` of {CHUNK:,}; "
            f"pool of {POOL}"
        ),
        recovery=lambda: (
            "heartbeat every second, stalled after 5 s, `retry_stalled_jobs` as in its docs, every second"
        ),
        setup=within(app.schema_manager.apply_schema_async),
        bulk=within(bulk),
        fill=within(fill),
        single=within(lambda jobs: side.single(jobs, noop.defer_async)),
        clients=within(lambda many, jobs: side.clients(many, jobs, noop.defer_async)),
        work=within(work),
        waits=within(lambda times: side.waits(times, lambda sent: timed.defer_async(sent=sent))),
        hold=within(holds.defer_async),
        left=left,
    )
