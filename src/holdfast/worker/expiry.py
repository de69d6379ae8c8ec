"""The search of a worker for leases that have ended, of any worker. Every worker does this; a claim does it
too."""

from typing import NoReturn

from holdfast.core.errors import HoldfastError
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Ids, Registry
from holdfast.system import SleepWatch, jittered
from holdfast.worker.claims import Claims
from holdfast.worker.completion_reporter import WorkerObserver

EXPIRE_SECONDS = 1.0


async def expire_leases(
    registry: Registry,
    claims: Claims,
    observer: WorkerObserver,
    watch: SleepWatch,
    *,
    clock: Clock,
    ids: Ids,
) -> NoReturn:
    """Expire overdue leases about once a second, until cancelled. After a sleep of the machine their owners,
    among them this worker, have a second to renew them."""
    while True:
        seconds = jittered(EXPIRE_SECONDS, ids)
        due_at = clock.monotonic() + seconds
        await clock.sleep(seconds)
        if watch.late(due_at) or watch.yielding:
            continue
        if clock.monotonic() - claims.claimed_at < seconds:
            continue  # a claim expires leases too
        try:
            await registry.expire()
            failpoint("worker.expired_others")
        except HoldfastError as error:
            observer.trouble(error.message)
