"""awa on PostgreSQL: its asynchronous client, one logical queue over two physical ones."""

import asyncio
import signal
from dataclasses import dataclass
from itertools import cycle

import awa
import side

QUEUE = awa.PartitionedQueue("default", 2)
CHUNK = 5000
WORKERS = 1024
CLAIM = 512
LIMITS = {
    "heartbeat_interval_ms": 1000,
    "heartbeat_staleness_ms": 4000,
    "heartbeat_rescue_interval_ms": 1000,
    "leader_election_interval_ms": 1000,
    "promote_interval_ms": 250,
}
# Its own `queue_stats` takes ten seconds over 5,000 jobs that have just ended. A job that was rescued
# counts twice here until its ring is rotated out.
LEFT = """
SELECT (SELECT count(*) FROM awa.ready_entries) + (SELECT count(*) FROM awa.deferred_jobs)
     - (SELECT count(*) FROM awa.done_entries) - (SELECT count(*) FROM awa.ready_tombstones)
     - (SELECT coalesce(sum(completed_count), 0)::bigint FROM awa.receipt_completion_batches) AS jobs
"""


@dataclass
class Noop:
    """Three kinds of job and their arguments."""


@dataclass
class Timed:
    sent: float


@dataclass
class Holds:
    pass


def client(connections=4):
    return awa.AsyncClient(side.URL, max_connections=connections)


async def setup():
    await awa.migrate(side.URL)
    # What a fresh database gets when its first worker starts; here jobs come before workers.
    await client().install_queue_storage(schema="awa")


async def work():
    worker, queue = client(20), QUEUE.physical_queues[0]

    @worker.task(Noop, queue=queue)
    async def noop(job):
        side.count()

    @worker.task(Timed, queue=queue)
    async def timed(job):
        side.waited(job.args.sent)

    @worker.task(Holds, queue=queue)
    async def holds(job):
        await side.hold_async()

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await worker.start(QUEUE.queue_configs(WORKERS, claim_batch_size=CLAIM), **LIMITS)
    await stop.wait()
    await worker.shutdown()


async def bulk(jobs):
    queues, producer, chunk = cycle(QUEUE.physical_queues), client(), [Noop()] * CHUNK

    async def enqueue_many(size):
        await producer.enqueue_many_copy(chunk[:size], queue=next(queues))

    return await side.bulk(side.chunks(jobs, CHUNK), enqueue_many)


def insert(connections=4):
    queues, producer = cycle(QUEUE.physical_queues), client(connections)
    return lambda job: producer.insert(job, queue=next(queues))


async def single(jobs):
    enqueue = insert()
    return await side.single(jobs, lambda: enqueue(Noop()))


async def clients(many, jobs):
    enqueue = insert(connections=20)
    return await side.clients(many, jobs, lambda: enqueue(Noop()))


async def waits(times):
    enqueue = insert()
    await side.waits(times, lambda sent: enqueue(Timed(sent)))


async def hold():
    await insert()(Holds())


async def left():
    transaction = await client().transaction()
    row = await transaction.fetch_one(LEFT)
    await transaction.rollback()
    return row["jobs"]


if __name__ == "__main__":
    side.main(
        settings=lambda: (
            "2 worker processes, PartitionedQueue of 2, max_workers 1024 for each, claim_batch_size "
            "512, asynchronous handlers, queue storage; enqueue_many_copy by 5,000; "
            + ", ".join(f"{name}={value}" for name, value in LIMITS.items())
        ),
        recovery=lambda: "a heartbeat every second, stale after 4 s, looked for every second",
        setup=setup,
        work=work,
        bulk=bulk,
        single=single,
        clients=clients,
        waits=waits,
        hold=hold,
        left=left,
        fill=bulk,
    )
