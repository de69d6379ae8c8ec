"""chancy on PostgreSQL: its worker with the recovery and leadership plugins that it starts by default."""

import handler
from chancy import Chancy, Queue, QueuedJob, Reference, Worker, job
from chancy.executors.asyncex import AsyncExecutor
from chancy.plugins.leadership import Leadership
from chancy.plugins.recovery import Recovery

WORKER = {"heartbeat_poll_interval": 1, "heartbeat_timeout": 3, "queue_change_poll_interval": 1}
PLUGINS = [Leadership(poll_interval=1, timeout=3), Recovery(poll_interval=1)]
EXECUTOR = f"{AsyncExecutor.__module__}.{AsyncExecutor.__qualname__}"

app = Chancy(handler.URL, plugins=PLUGINS, no_default_plugins=True)


@job(queue="default", max_attempts=5)
async def waits(*, context: QueuedJob):
    await handler.job_async(context.attempts, str(context.id))


async def with_app(act):
    async with app:
        return await act()


async def setup():
    await app.migrate()
    queue = Queue("default", concurrency=1, executor=EXECUTOR, polling_interval=1)
    await app.declare(queue)


async def work():
    async with Worker(app, worker_id=handler.WORKER, **WORKER) as worker:
        await worker.wait_for_shutdown()


async def enqueue():
    return str((await app.push(waits)).identifier)


async def state(job_id):
    seen = await app.get_job(Reference(job_id))
    name = seen.state.value
    return {"name": name, "over": name in {"succeeded", "failed"}, "result": None}


if __name__ == "__main__":
    handler.main(
        settings=lambda: f"Worker {WORKER}, Leadership(1 s, timeout 3 s), Recovery(1 s)",
        setup=lambda: with_app(setup),
        work=lambda: with_app(work),
        enqueue=lambda: with_app(enqueue),
        state=lambda job_id: with_app(lambda: state(job_id)),
    )
