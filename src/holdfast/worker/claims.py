"""How a worker claims jobs, and whether any are left to claim."""

from collections.abc import Container, Iterable
from datetime import timedelta
from itertools import product

from msgspec import Struct

from holdfast.core.errors import Unavailable
from holdfast.core.job import Job
from holdfast.core.limits import BATCH_ITEMS_MAX
from holdfast.core.spec import Spec
from holdfast.core.state import LEASED, State
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, JobFilter, Registry
from holdfast.worker.completion_reporter import WorkerObserver
from holdfast.worker.held_job import HeldJob
from holdfast.worker.leaving import Leaving

RETRY_SECONDS = 0.5
DEFAULT_QUEUE = Spec().queue


class ThreadSlots(Struct, frozen=True, kw_only=True):
    """How many jobs of these kinds may run at the same time, because each takes a thread or a process: up to
    `slots_max` while they end within milliseconds. `alone`: the worker has no other kinds."""

    kinds: frozenset[str]
    slots: int
    slots_max: int
    alone: bool


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """The options of a worker. `drain` ends it when its queues have nothing left to run; with `shares` it
    leaves a part of a burst to other idle workers. With `in_turn` each claim begins with the next queue;
    otherwise the first queue has priority."""

    owner: str
    queues: tuple[str, ...] = ("default",)
    slots: int = 1
    threads: ThreadSlots | None = None
    shares: bool = True
    region: str | None = None
    lease: timedelta | None = None
    in_turn: bool = False
    drain: bool = False
    leave_seconds: float = 10.0


def choose_queues(given: tuple[str, ...], named: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the queues that a worker serves, and those it leaves out of the ones that its app has `named`.
    Unless some are given, it serves all of these, and the default one."""
    if given:
        return given, tuple(queue for queue in named if queue not in given)
    return tuple(dict.fromkeys((*named, DEFAULT_QUEUE))), ()


class Claims:
    """Claims jobs of the kinds that the worker can run. `claimed_at` is when it last did."""

    def __init__(
        self,
        registry: Registry,
        settings: WorkerSettings,
        observer: WorkerObserver,
        *,
        clock: Clock,
        kinds: Iterable[str],
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._observer = observer
        self._clock = clock
        self._kinds = kinds
        self._turn = 0
        self.claimed_at = 0.0
        self.not_understood: set[str] = set()
        """The jobs that this worker gave back because its code does not know their kind or version."""

    async def claim(
        self, op_id: str, wanted: int, leaving: Leaving, *, without: Container[str] = ()
    ) -> list[HeldJob]:
        """Claim jobs of all kinds but some, again under the same `op_id` while the store is unavailable.
        Deadlines count from before the call that succeeded. A worker that leaves goes on for a while if jobs
        may have been granted to it: other workers could not have them before their leases end."""
        settings, since = self._settings, self._clock.monotonic()
        unsure = late = False
        queues = self._next_queues()
        while True:
            asked_at = self.claimed_at = self._clock.monotonic()
            try:
                grants = await self._registry.claim(
                    queues,
                    owner=settings.owner,
                    limit=min(wanted, BATCH_ITEMS_MAX),
                    op_id=op_id,
                    kinds=tuple([kind for kind in self._kinds if kind not in without]),
                    lease=settings.lease,
                    region=settings.region,
                )
            except Unavailable as error:
                unsure = unsure or error.applied == "unknown"
                waited = self._clock.monotonic() - since
                if leaving.is_set() and (not unsure or waited > settings.leave_seconds):
                    return []  # what may have been granted is free again when its lease ends
                self._observer.trouble(error.message)
                await self._clock.sleep(RETRY_SECONDS)
            else:
                took = self._clock.monotonic() - asked_at
                if any(took > grant.lease_seconds / 2 for grant in grants) and not late:
                    late = True  # a repeated claim returns how much of each lease is left
                    continue
                failpoint("worker.granted")
                return [HeldJob(grant, asked_at + grant.lease_seconds) for grant in grants]

    def _next_queues(self) -> tuple[str, ...]:
        queues = self._settings.queues
        if not self._settings.in_turn:
            return queues
        first, self._turn = self._turn, (self._turn + 1) % len(queues)
        return queues[first:] + queues[:first]

    async def any_left(self) -> bool:
        """Whether the queues hold anything that this worker can run, now or later; true when the store is
        unavailable."""
        try:
            return await self._any_left()
        except Unavailable as error:
            self._observer.trouble(error.message)
            return True

    async def _any_left(self) -> bool:
        for queue, kind in product(self._settings.queues, self._kinds):
            which = JobFilter(queue=queue, kind=kind, states=(State.QUEUED, *sorted(LEASED)))
            cursor: str | None = None
            while True:
                page = await self._registry.list_jobs(which, after=cursor)
                if any(self._suits(job) for job in page.jobs):
                    return True
                cursor = page.next
                if cursor is None:
                    break
        return False

    def _suits(self, job: Job) -> bool:
        here = self._settings.region
        return (
            job.spec.executor is None
            and (not job.spec.region or not here or job.spec.region == here)
            and job.job_id not in self.not_understood
        )
