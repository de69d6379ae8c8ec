"""Celery on Redis: `celery worker` with the solo pool, late acknowledgement, no results."""

import side
from celery import Celery
from redis import Redis

PREFETCH = 128
VISIBILITY_SECONDS = 12  # for all that run or wait in a worker's memory
RESTORE = {"unacked_restore_interval": 1, "unacked_restore_throttle": 1}
QUIET = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
app = Celery("run_celery", broker=side.URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_publish_retry=False,
    worker_prefetch_multiplier=PREFETCH,
    worker_enable_remote_control=False,
    broker_pool_limit=64,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": VISIBILITY_SECONDS,
        "priority_steps": [0],
        **RESTORE,
    },
)


@app.task(name="noop")
def noop():
    side.count()


@app.task(name="timed")
def timed(sent):
    side.waited(sent)


@app.task(name="holds")
def holds():
    side.hold()


async def bulk(jobs):
    """There is no call for many: `apply_async` with one producer, as its guide advises."""
    with app.producer_or_acquire() as producer:

        def many(size):
            for _ in range(size):
                noop.apply_async(producer=producer)

        return await side.bulk(side.chunks(jobs, 500), many)


def enqueue(task, *words):
    task.delay(*words)


def left():
    store = Redis.from_url(side.URL)
    return store.llen("celery") + store.hlen("unacked")


if __name__ == "__main__":
    words = ["-A", "run_celery", "worker", "-n", side.WORKER, "--pool", "solo", *QUIET]
    side.main(
        settings=lambda: (
            f"2 processes, solo pool, prefetch multiplier {PREFETCH}, task_acks_late, "
            "task_ignore_result, task_publish_retry off, no gossip, mingle, heartbeat or remote control"
        ),
        bulk=bulk,
        single=lambda jobs: side.single(jobs, lambda: enqueue(noop)),
        clients=lambda many, jobs: side.client_threads(many, jobs, lambda: enqueue(noop)),
        work=lambda: side.script("celery", *words),
        waits=lambda times: side.waits(times, lambda sent: enqueue(timed, sent)),
        hold=lambda: enqueue(holds),
        left=left,
        recovery=lambda: f"visibility_timeout {VISIBILITY_SECONDS} s (for all jobs), {RESTORE}",
    )
