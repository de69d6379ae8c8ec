"""SAQ on PostgreSQL: `saq`, a job with a heartbeat, and a sweep every second."""

import handler
from saq import Queue

queue = Queue.from_url(handler.URL)
JOB = {"heartbeat": 2, "timeout": 0, "retries": 5}


async def waits(ctx):
    job = ctx["job"]
    return await handler.job_async(job.attempts, job.key, beat=job.update)


settings = {"queue": queue, "functions": [waits], "concurrency": 1, "timers": {"sweep": 1}}


async def with_queue(act):
    await queue.connect()
    try:
        return await act()
    finally:
        await queue.disconnect()


async def enqueue():
    return (await queue.enqueue("waits", **JOB)).key


async def state(key):
    job = await queue.job(key)
    if job is None:
        return {"name": "gone", "over": True, "result": None}
    over = job.status in {"complete", "failed", "aborted"}
    return {"name": str(job.status.value), "over": over, "result": job.result}


if __name__ == "__main__":
    handler.main(
        settings=lambda: f"enqueue with {JOB}, `job.update()` in the handler, timers {{'sweep': 1}}",
        setup=lambda: with_queue(queue.info),
        work=lambda: handler.script("saq", "with_saq.settings"),
        enqueue=lambda: with_queue(enqueue),
        state=lambda key: with_queue(lambda: state(key)),
    )
