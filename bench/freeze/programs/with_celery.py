"""Celery: `celery worker` (prefork) on Redis, late acknowledgement, results in Redis."""

import handler
from celery import Celery

VISIBILITY_SECONDS = 12
RESTORE = {"unacked_restore_interval": 1, "unacked_restore_throttle": 1}
app = Celery("with_celery", broker=handler.URL, backend=handler.URL)
app.conf.update(
    broker_transport_options={"visibility_timeout": VISIBILITY_SECONDS, **RESTORE},
    result_backend_transport_options={"visibility_timeout": VISIBILITY_SECONDS},
    visibility_timeout=VISIBILITY_SECONDS,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
)


@app.task(bind=True, name="waits")
def waits(self):
    return handler.job(self.request.retries)


def state(job_id):
    result = app.AsyncResult(job_id)
    over = result.ready()
    return {"name": result.state, "over": over, "result": str(result.result) if over else None}


if __name__ == "__main__":
    words = ["-A", "with_celery", "worker", "-c", "1", "-n", handler.WORKER, "-l", "INFO"]
    said = f"visibility_timeout {VISIBILITY_SECONDS} s (for all that run, so above the job's length)"
    handler.main(
        settings=lambda: f"acks_late, reject_on_worker_lost, prefetch 1, {RESTORE}, {said}",
        work=lambda: handler.script("celery", *words),
        enqueue=lambda: waits.delay().id,
        state=state,
    )
