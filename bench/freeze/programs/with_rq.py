"""RQ: `rq worker` on Redis. A job of a dead worker is run again when it was given retries."""

import handler
from redis import Redis
from rq import Queue, Retry
from rq.job import Job

OPTIONS = ["--maintenance-interval", "1", "--job-monitoring-interval", "1", "--worker-ttl", "16"]


def waits():
    return handler.job()


def connection():
    return Redis.from_url(handler.URL)


def enqueue():
    queue = Queue(connection=connection())
    return queue.enqueue("with_rq.waits", retry=Retry(max=3), job_timeout=600).id


def state(job_id):
    job = Job.fetch(job_id, connection=connection())
    status = job.get_status()
    over = status in {"finished", "failed", "stopped", "canceled"}
    return {"name": status, "over": over, "result": job.return_value()}


if __name__ == "__main__":
    words = ["worker", "--url", handler.URL, "--name", handler.WORKER, *OPTIONS]
    handler.main(
        settings=lambda: f"`rq worker {' '.join(OPTIONS)}`, `Retry(max=3)`; 60 s more are built in",
        work=lambda: handler.script("rq", *words),
        enqueue=enqueue,
        state=state,
    )
