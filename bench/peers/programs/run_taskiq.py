"""taskiq on Redis: the stream broker of taskiq-redis, `taskiq worker`, no results."""

import asyncio

import side
from redis.asyncio import Redis
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import RedisStreamBroker

AT_ONCE = 100
IDLE_MS = 10_000
OPTIONS = ["-w", "1", "--max-async-tasks", str(AT_ONCE), "--log-level", "WARNING"]
broker = RedisStreamBroker(
    side.URL,
    consumer_id="0",
    idle_timeout=IDLE_MS,
    unacknowledged_lock_timeout=5,
    xread_block=1000,
    xread_count=AT_ONCE,
    max_connection_pool_size=64,
).with_serializer(ORJSONSerializer())


@broker.task(task_name="noop")
async def noop():
    side.count()


@broker.task(task_name="timed")
async def timed(sent: float):
    side.waited(sent)


@broker.task(task_name="holds")
async def holds():
    await side.hold_async()


def connected(verb):
    """The verb, between the start and the end of the broker."""

    async def between(*words):
        await broker.startup()
        try:
            return await verb(*words)
        finally:
            await broker.shutdown()

    return between


async def many(size):
    """There is no call for many."""
    await asyncio.gather(*(noop.kiq() for _ in range(size)))


async def setup():
    """The group of consumers is made by the start."""


async def hold():
    await holds.kiq()


async def left():
    async with Redis.from_url(side.URL) as store:
        [group] = await store.xinfo_groups("taskiq")
    return group["lag"] + group["pending"]


if __name__ == "__main__":
    side.main(
        settings=lambda: (
            f"2 processes, `taskiq worker {' '.join(OPTIONS)}`, uvloop, ORJSON, "
            f"xread_count {AT_ONCE}, acknowledged when_saved"
        ),
        setup=connected(setup),
        bulk=connected(lambda jobs: side.bulk(side.chunks(jobs, AT_ONCE), many)),
        single=connected(lambda jobs: side.single(jobs, noop.kiq)),
        clients=connected(lambda k, jobs: side.clients(k, jobs, noop.kiq)),
        work=lambda: side.script("taskiq", "worker", "run_taskiq:broker", *OPTIONS),
        waits=connected(lambda times: side.waits(times, timed.kiq)),
        hold=connected(hold),
        left=left,
        recovery=lambda: f"idle_timeout {IDLE_MS} ms, but a worker only looks after a new message",
    )
