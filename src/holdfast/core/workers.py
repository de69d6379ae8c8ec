"""Workers as they announce themselves: which queues and kinds they serve, and how busy they are."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.access import Principal
from holdfast.core.errors import Invalid
from holdfast.core.limits import (
    ANNOUNCED_KINDS_MAX,
    ANNOUNCED_QUEUES_MAX,
    LABEL_CHARACTERS_MAX,
    NUMBER_MAX,
    check_id,
    check_owner,
    check_text,
)

ANNOUNCE_SECONDS = 15.0
"""How often a worker announces itself."""
SILENT_AFTER = timedelta(seconds=60)
"""A worker that has not announced itself for this long counts as gone, until it does."""
FORGOTTEN_AFTER = timedelta(days=1)
"""How long a store keeps a worker that does not announce itself any more."""


class WorkerInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker as it announced itself last, at `seen_at` on the store's clock. `instance` is an id of its
    process, new at every start. `busy` of its `slots` had a job then. A version of a kind is part of its
    name, as in `resize:2`. Of `thread_kinds`, at most `thread_slots` jobs run at the same time. A worker
    that is `paused` claims nothing: its machine cannot run jobs."""

    name: str
    instance: str
    queues: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    executors: tuple[str, ...] = ()
    slots: int = 1
    busy: int = 0
    thread_kinds: tuple[str, ...] = ()
    thread_slots: int = 0
    thread_busy: int = 0
    region: str | None = None
    host: str = ""
    pid: int = 0
    app: str | None = None
    version: str = ""
    paused: bool = False
    leaving: bool = False
    stopped: bool = False
    started_at: datetime
    seen_at: datetime

    def live(self, now: datetime) -> bool:
        """Return whether the worker is there, as far as is known. One that was seen well after now was seen
        before the store's clock was set back, and not since."""
        return not self.stopped and abs(now - self.seen_at) < SILENT_AFTER

    def state(self, now: datetime) -> str:
        """Return the state as one word."""
        if self.stopped:
            return "stopped"
        if not self.live(now):
            return "silent"
        if self.leaving:
            return "leaving"
        if self.paused:
            return "paused"
        return "idle" if not self.busy else "busy" if self.busy < self.slots else "full"

    def taken(self, kind: str) -> tuple[int, int]:
        """Return how many of the slots for jobs of this kind are taken, and how many there are."""
        if kind in self.thread_kinds and self.busy < self.slots:
            return self.thread_busy, self.thread_slots
        return self.busy, self.slots

    def free(self, kind: str) -> int:
        """Return how many jobs of this kind it could begin at once."""
        taken, slots = self.taken(kind)
        return 0 if self.leaving or self.paused else max(0, min(slots - taken, self.slots - self.busy))

    @property
    def place(self) -> str:
        """Where it runs, such as `host-1, process 4711`."""
        return f"{self.host or 'an unknown host'}, process {self.pid or 'unknown'}"


class QueueInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue: its jobs, and who serves it. Of the `queued` jobs, `delayed` are not due yet; when there are
    `many_delayed`, they were not counted further. `oldest_ready_at` is since when the first one is ready.
    `workers` are the live ones, with all their slots; `asked_at` is when one announced itself last."""

    queue: str
    queued: int = 0
    delayed: int = 0
    many_delayed: bool = False
    running: int = 0
    dead_letters: int = 0
    oldest_ready_at: datetime | None = None
    workers: tuple[str, ...] = ()
    slots: int = 0
    busy: int = 0
    asked_at: datetime | None = None

    @property
    def ready(self) -> int:
        return max(0, self.queued - self.delayed)


def last_seen_first(workers: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    """Return the workers in the order of a listing."""
    return sorted(workers, key=lambda one: (-one.seen_at.timestamp(), one.name, one.instance))


def check_worker(worker: WorkerInfo) -> WorkerInfo:
    """Return the worker as it is stored: with at most so many queues and kinds. Raise `Invalid` when a name
    or a number cannot be."""
    check_owner(worker.name)
    check_id(worker.instance, "instance")
    if not worker.queues:
        raise Invalid("A worker serves at least one queue.")
    for queue in worker.queues:
        check_id(queue, "queue")
    for name in (*worker.kinds, *worker.thread_kinds, *worker.executors, *filter(None, [worker.region])):
        check_id(name, "A name")
    for text in (worker.host, worker.app or "", worker.version):
        check_text(text, "A text about a worker", LABEL_CHARACTERS_MAX)
    if not all(0 <= number <= NUMBER_MAX for number in _numbers(worker)):
        raise Invalid("Slots, busy ones and pid are numbers from 0 on.")
    return replace(
        worker,
        queues=tuple(dict.fromkeys(worker.queues))[:ANNOUNCED_QUEUES_MAX],
        kinds=tuple(dict.fromkeys(worker.kinds))[:ANNOUNCED_KINDS_MAX],
        thread_kinds=tuple(dict.fromkeys(worker.thread_kinds))[:ANNOUNCED_KINDS_MAX],
        executors=tuple(dict.fromkeys(worker.executors))[:ANNOUNCED_QUEUES_MAX],
    )


def _numbers(worker: WorkerInfo) -> tuple[int, ...]:
    return (worker.slots, worker.busy, worker.thread_slots, worker.thread_busy, worker.pid)


def namesakes(worker: WorkerInfo, known: Iterable[WorkerInfo], now: datetime) -> tuple[WorkerInfo, ...]:
    """Return the live workers of the same name in other processes."""
    return tuple(
        other
        for other in known
        if other.name == worker.name and other.instance != worker.instance and other.live(now)
    )


def visible_worker(principal: Principal, worker: WorkerInfo) -> WorkerInfo | None:
    """Return the worker as this caller may see it: with the queues that it reaches. Of a worker that serves
    others too, it sees neither the machine nor the code. None if it reaches no queue of it."""
    queues = tuple(queue for queue in worker.queues if principal.reaches(queue, worker.region))
    if len(queues) == len(worker.queues):
        return worker
    if not queues:
        return None
    return replace(worker, queues=queues, kinds=(), thread_kinds=(), host="", pid=0, app=None)
