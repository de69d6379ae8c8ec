"""workers: who has announced itself, and lately."""

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.errors import Invalid
from holdfast.core.limits import LABEL_CHARACTERS_MAX, WORKERS_MAX, check_text
from holdfast.core.state import LEASED, State
from holdfast.core.workers import FORGOTTEN_AFTER, QueueInfo, WorkerInfo, check_worker, namesakes
from holdfast.ports import Announced, Census
from holdfast.registry.commit_queue import CommitQueue

QUEUES_MAX = 1_000
DELAYED_QUEUES_MAX = 100
DELAYED_MAX = 10_000
"""How many delayed jobs of a queue are counted, and in how many queues: those with the most jobs."""


async def announce(
    commits: CommitQueue,
    name: str,
    *,
    instance: str,
    queues: Sequence[str],
    kinds: Sequence[str] = (),
    executors: Sequence[str] = (),
    slots: int = 1,
    busy: int = 0,
    thread_kinds: Sequence[str] = (),
    thread_slots: int = 0,
    thread_busy: int = 0,
    region: str | None = None,
    host: str = "",
    pid: int = 0,
    app: str | None = None,
    version: str = "",
    paused: bool = False,
    leaving: bool = False,
    stopped: bool = False,
    started_at: datetime | None = None,
) -> Announced:
    """Keep that this worker is there. The first announcement of a process, which says no `started_at`, also
    returns its live namesakes: it costs a listing, the others one small write."""
    if started_at is not None and started_at.tzinfo is None:
        raise Invalid("started_at needs a time zone.")
    now = await commits.store.now()
    worker = check_worker(
        WorkerInfo(
            name=name,
            instance=instance,
            queues=tuple(queues),
            kinds=tuple(kinds),
            executors=tuple(executors),
            slots=slots,
            busy=busy,
            thread_kinds=tuple(thread_kinds),
            thread_slots=thread_slots,
            thread_busy=thread_busy,
            region=region,
            host=host,
            pid=pid,
            app=app,
            version=version,
            paused=paused,
            leaving=leaving,
            stopped=stopped,
            started_at=now if started_at is None else min(started_at, now),
            seen_at=now,
        )
    )
    await commits.store.put_worker(worker, forget_before=now - FORGOTTEN_AFTER)
    if started_at is not None:
        return Announced(worker=worker)
    known = await commits.store.list_workers()  # afterwards: of two that start at once, one sees the other
    if len(known) > WORKERS_MAX:
        await commits.store.put_worker(worker, forget_before=known[WORKERS_MAX - 1].seen_at)
    return Announced(worker=worker, namesakes=namesakes(worker, known, now))


async def workers(commits: CommitQueue, queue: str | None = None) -> list[WorkerInfo]:
    """Return the workers that are known, the last seen first; with `queue`, those that serve it."""
    check_text(queue or "", "A filter", LABEL_CHARACTERS_MAX)
    known = await commits.store.list_workers()
    return [worker for worker in known if queue is None or queue in worker.queues]


async def queues(commits: CommitQueue) -> list[QueueInfo]:
    """Return the queues that have jobs or a known worker, by name. Of the busiest, the delayed jobs are
    counted, up to a limit; the other counts are those that the store keeps."""
    store = commits.store
    now, census, known = await store.now(), await store.census(QUEUES_MAX), await store.list_workers()
    delayed = {
        queue: await store.count_ready(queue, delayed=True, limit=DELAYED_MAX)
        for queue in list(census.ready)[:DELAYED_QUEUES_MAX]
    }
    served = (queue for worker in known for queue in worker.queues)
    return [
        _queue(queue, census, delayed.get(queue, 0), known, now)
        for queue in sorted({*census.queues, *served})
    ]


def _queue(queue: str, census: Census, delayed: int, known: Sequence[WorkerInfo], now: datetime) -> QueueInfo:
    jobs, ready_at = census.queues.get(queue, {}), census.ready.get(queue)
    serving = [worker for worker in known if queue in worker.queues]
    live = [worker for worker in serving if worker.live(now)]
    return QueueInfo(
        queue=queue,
        queued=jobs.get(State.QUEUED, 0),
        delayed=delayed,
        many_delayed=delayed >= DELAYED_MAX,
        running=sum(jobs.get(state, 0) for state in LEASED),
        dead_letters=jobs.get(State.DEAD_LETTERED, 0),
        oldest_ready_at=ready_at if ready_at is not None and ready_at <= now else None,
        workers=tuple(dict.fromkeys(worker.name for worker in live)),
        slots=sum(worker.slots for worker in live),
        busy=sum(worker.busy for worker in live),
        asked_at=max((worker.seen_at for worker in serving), default=None),
    )
