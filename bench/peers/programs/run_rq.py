"""RQ on Redis: `rq worker` with SimpleWorker, which runs jobs without a fork for each."""

import side
from redis import Redis
from rq import Queue, Retry

HOLD_SECONDS = 10
# A worker waits for work 15 s less than its ttl, and only between waits looks for lost jobs.
LOOKS = ["--maintenance-interval", "1", "--worker-ttl", "16"]
OPTIONS = ["--worker-class", "rq.SimpleWorker", "--quiet", *LOOKS]
queue = Queue(connection=Redis.from_url(side.URL))


def noop():
    side.count()


def timed(sent):
    side.waited(sent)


def holds():
    side.hold()


def many(size):
    queue.enqueue_many([Queue.prepare_data("run_rq.noop") for _ in range(size)])


def enqueue(name, *words, **options):
    queue.enqueue(f"run_rq.{name}", *words, **options)


def left():
    return queue.count + queue.started_job_registry.get_job_count(cleanup=False)


if __name__ == "__main__":
    words = ["worker", "--url", side.URL, "--name", side.WORKER, *OPTIONS]
    side.main(
        settings=lambda: (
            f"2 processes, `rq worker {' '.join(OPTIONS)}`, enqueue_many of 1,000; "
            "results kept for its 500 s, as to delete a job at once costs more"
        ),
        bulk=lambda jobs: side.bulk(side.chunks(jobs, 1000), many),
        single=lambda jobs: side.single(jobs, lambda: enqueue("noop")),
        clients=lambda k, jobs: side.client_threads(k, jobs, lambda: enqueue("noop")),
        work=lambda: side.script("rq", *words),
        waits=lambda times: side.waits(times, lambda sent: enqueue("timed", sent)),
        hold=lambda: enqueue("holds", retry=Retry(max=3), job_timeout=HOLD_SECONDS),
        left=left,
        recovery=lambda: (
            f"job_timeout {HOLD_SECONDS} s and 60 s that are built in, Retry(max=3), maintenance every second"
        ),
    )
