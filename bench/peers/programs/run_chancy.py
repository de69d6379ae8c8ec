"""chancy on PostgreSQL: its worker with the asynchronous executor and the plugins that rescue."""

import logging

import side
from chancy import Chancy, Queue, Worker, job
from chancy.plugins.leadership import Leadership
from chancy.plugins.recovery import Recovery

CHUNK = 1000
CONCURRENCY = 1000
OUTGOING_SECONDS = 0.1
WORKER = {"heartbeat_poll_interval": 1, "heartbeat_timeout": 3, "queue_change_poll_interval": 1}
PLUGINS = [Leadership(poll_interval=1, timeout=3), Recovery(poll_interval=1)]
# It would write a line for each job.
quiet = logging.getLogger("quiet")
quiet.setLevel(logging.ERROR)
app = Chancy(
    side.URL,
    plugins=PLUGINS,
    no_default_plugins=True,
    log=quiet,
    min_connection_pool_size=4,
    max_connection_pool_size=20,
)


@job(queue="default", max_attempts=5)
async def noop():
    side.count()


@job(queue="default", max_attempts=5)
async def timed(*, sent: float):
    side.waited(sent)


@job(queue="default", max_attempts=5)
async def holds():
    await side.hold_async()


async def setup():
    async with app:
        await app.migrate()
        await app.declare(
            Queue(
                "default",
                concurrency=CONCURRENCY,
                executor=Chancy.Executor.Async,
                polling_interval=1,
                eager_polling=True,
            )
        )


async def work():
    async with app:
        worker = Worker(app, worker_id=side.WORKER, **WORKER)
        worker.send_outgoing_interval = OUTGOING_SECONDS
        async with worker:
            await worker.wait_for_shutdown()


async def bulk(jobs):
    chunk = [noop.job] * CHUNK
    with app:
        return await side.bulk(
            side.chunks(jobs, CHUNK),
            lambda size: list(app.sync_push_many(chunk[:size], batch_size=CHUNK)) and None,
        )


async def single(jobs):
    with app:
        return await side.single(jobs, lambda: app.sync_push(noop.job))


async def clients(many, jobs):
    async with app:
        return await side.clients(many, jobs, lambda: app.push(noop))


async def waits(times):
    with app:
        await side.waits(times, lambda sent: app.sync_push(timed.job.with_kwargs(sent=sent)))


async def hold():
    async with app:
        await app.push(holds)


async def left():
    text = "SELECT count(*) FROM chancy_jobs WHERE state IN ('pending', 'running', 'retrying')"
    async with app, app.pool.connection() as connection:
        return (await (await connection.execute(text)).fetchone())[0]


async def fill(jobs):
    """Copies of a job that its own push made; only the ids are new, and rise as its own do."""
    columns = "queue, func, kwargs, limits, meta, priority, max_attempts, scheduled_at, unique_key"
    now = "lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0')"
    text = (
        f"INSERT INTO chancy_jobs (id, {columns}) "
        f"SELECT ({now} || '70008000' || lpad(to_hex(n), 12, '0'))::uuid, {columns} "
        "FROM chancy_jobs, generate_series(2, %s) AS n WHERE id = %s"
    )
    async with app, app.pool.connection() as connection:
        first = await app.push(noop)
        await connection.execute(text, (int(jobs), first.identifier))


if __name__ == "__main__":
    side.main(
        settings=lambda: (
            f"2 worker processes, AsyncExecutor, concurrency {CONCURRENCY}, eager_polling, "
            f"send_outgoing_interval {OUTGOING_SECONDS} s, no log line per job, plugins "
            f"Leadership(1 s, timeout 3 s) and Recovery(1 s) only, {WORKER}; "
            f"sync_push_many by {CHUNK}"
        ),
        recovery=lambda: "a worker's heartbeat every second, gone after 3 s; looked for every second",
        setup=setup,
        work=work,
        bulk=bulk,
        single=single,
        clients=clients,
        waits=waits,
        hold=hold,
        left=left,
        fill=fill,
    )
