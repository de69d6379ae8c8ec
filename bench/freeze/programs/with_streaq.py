"""streaQ: `streaq run` on Redis."""

import handler
from streaq import Worker

IDLE_SECONDS = 3
worker = Worker(redis_url=handler.URL, concurrency=4, idle_timeout=IDLE_SECONDS)


@worker.task(timeout=None, max_tries=5)
async def waits():
    return await handler.job_async(waits.context.tries)


async def enqueue():
    async with worker:
        return (await waits.enqueue()).id


async def state(task_id):
    async with worker:
        status = str(await worker.status_by_id(task_id))
        result = (await worker.result_by_id(task_id, timeout=1)).result if status == "done" else None
    return {"name": status, "over": status in {"done", "missing"}, "result": result}


if __name__ == "__main__":
    handler.main(
        settings=lambda: f"idle_timeout {IDLE_SECONDS} s, task timeout none",
        work=lambda: handler.script("streaq", "run", "with_streaq:worker"),
        enqueue=enqueue,
        state=state,
    )
