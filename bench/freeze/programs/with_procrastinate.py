"""Procrastinate: its worker on PostgreSQL, with the periodic task from its page on stalled jobs."""

import handler
import procrastinate

HEARTBEAT = {"update_heartbeat_interval": 1.0, "stalled_worker_timeout": 3.0}
EVERY_SECOND = "* * * * * *"

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=handler.URL))


@app.task(name="waits", pass_context=True)
async def waits(context):
    return await handler.job_async(context.job.attempts)


@app.periodic(cron=EVERY_SECOND)
@app.task(name="retry_stalled", queueing_lock="retry_stalled", pass_context=True)
async def retry_stalled(context, timestamp):
    seconds = HEARTBEAT["stalled_worker_timeout"]
    for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=seconds):
        await app.job_manager.retry_job(job)


async def with_app(act):
    async with app.open_async():
        return await act()


async def work():
    await app.run_worker_async(
        name=handler.WORKER, concurrency=4, fetch_job_polling_interval=1.0, **HEARTBEAT
    )


async def enqueue():
    return str(await waits.defer_async())


async def state(job_id):
    [job] = await app.job_manager.list_jobs_async(id=int(job_id))
    return {"name": job.status, "over": job.status not in {"todo", "doing"}, "result": None}


if __name__ == "__main__":
    said = ", ".join(f"{name}={value:g}" for name, value in HEARTBEAT.items())
    handler.main(
        settings=lambda: f"{said}; `retry_stalled_jobs` as in its docs, every second",
        setup=lambda: with_app(app.schema_manager.apply_schema_async),
        work=lambda: with_app(work),
        enqueue=lambda: with_app(enqueue),
        state=lambda job_id: with_app(lambda: state(job_id)),
    )
