"""The slots of a worker: how many jobs it claims, of which kinds, and which of them may begin."""

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from holdfast.ports import Clock
from holdfast.worker.claims import ThreadSlots, WorkerSettings
from holdfast.worker.executor import EndedJob
from holdfast.worker.held_job import HeldJob
from holdfast.worker.prefetch import BriefSlots, Prefetch
from holdfast.worker.spread import FIRST, Spread

OTHERS_SECONDS = 0.05
_NONE: frozenset[str] = frozenset()


class ClaimSize(Struct, frozen=True, gc=False):
    """How many jobs to claim now, of all kinds but some, and how many there is room for."""

    limit: int
    wanted: int
    without: frozenset[str] = _NONE


class Slots:
    """Jobs of the kinds in `settings.threads` have fewer slots than the others: they are claimed for those
    slots only, and the others beside them for all that are free."""

    def __init__(self, clock: Clock, settings: WorkerSettings) -> None:
        threads = settings.threads
        most = settings.slots if threads is None else max(settings.slots, threads.slots_max)
        self._clock = clock
        self._prefetch = Prefetch(clock, most)
        self._threads = None if threads is None else _ThreadJobs(clock, threads)
        self._spread = Spread() if settings.shares and most > FIRST else None
        self._others_next = False
        self._others_at = 0.0
        self.running = 0
        """How many jobs are being run."""

    @property
    def threads_running(self) -> int:
        """How many of these take one of the slots of `settings.threads`."""
        return 0 if self._threads is None else self._threads.running

    def next_claim(self, waiting: deque[HeldJob], storing: int) -> ClaimSize:
        """Return what to claim, while these jobs wait for a slot and the output of so many is stored."""
        count, without = len(waiting), _NONE
        wanted = self._prefetch.wanted(count, count + self.running + storing)
        threads = self._threads
        if threads is not None and wanted:
            room = threads.room(waiting)
            if room and not self._others_next:
                wanted = min(wanted, room)
            elif threads.alone:
                wanted = 0
            else:
                without = threads.kinds
        limit = wanted
        if self._spread is not None:
            limit = self._spread.limit(wanted, self._prefetch.ahead)
        return ClaimSize(limit, wanted, without)

    def claimed(self, size: ClaimSize, count: int) -> None:
        """So many jobs were got by that claim."""
        if self._spread is not None:
            self._spread.claimed(count, size.limit, size.wanted)
        threads = self._threads
        if threads is None or threads.alone:
            return
        now = self._clock.monotonic()
        if size.without and not count:
            self._others_at = now + OTHERS_SECONDS  # there are none: do not look beside every claim
        self._others_next = not size.without and count == size.limit and now >= self._others_at

    def pause(self) -> float:
        """Return how long to leave what is left in the queue to other workers."""
        return self._spread.pause() if self._spread is not None else 0.0

    def has_room_for(self, kinds: frozenset[str], waiting: deque[HeldJob]) -> bool:
        """Whether jobs of these kinds, which the last claim left out, may be claimed by now."""
        return bool(kinds) and self._threads is not None and self._threads.room(waiting) > 0

    def next_job(self, waiting: deque[HeldJob]) -> HeldJob | None:
        """Take the first of the waiting jobs for which there is a slot."""
        threads = self._threads
        if not waiting or self.running >= self._prefetch.slots:
            return None
        held: HeldJob | None = None
        if threads is None:
            held = waiting.popleft()
        elif (held := threads.take(waiting)) is None:
            return None
        self.running += 1
        return held

    def given_up(self, held: HeldJob) -> None:
        """This job does not begin after all."""
        self.running -= 1
        if self._threads is not None and self._threads.has(held):
            self._threads.running -= 1

    def jobs_ended(self, endings: Sequence[EndedJob]) -> None:
        count = len(endings)
        self.running -= count
        self._prefetch.jobs_ended(count)
        if self._spread is not None:
            self._spread.jobs_ended(count)
        if self._threads is not None:
            self._threads.jobs_ended(endings)


class _ThreadJobs:
    """The jobs that take a thread or process each."""

    def __init__(self, clock: Clock, threads: ThreadSlots) -> None:
        self._slots = BriefSlots(clock, threads.slots, threads.slots_max)
        self._prefetch = Prefetch(clock, threads.slots, threads.slots_max)
        self.kinds = threads.kinds
        self.alone = threads.alone
        self.running = 0

    def has(self, held: HeldJob) -> bool:
        return self.alone or held.grant.job.spec.kind in self.kinds

    def room(self, waiting: deque[HeldJob]) -> int:
        """Return how many may be claimed."""
        count = len(waiting) if self.alone else sum(map(self.has, waiting))
        self._prefetch.slots = self._slots.now
        return self._prefetch.wanted(count, count + self.running)

    def take(self, waiting: deque[HeldJob]) -> HeldJob | None:
        """Take the first job of another kind, or of these if they have a slot."""
        free = self.running < self._slots.now
        for place, held in enumerate(waiting):
            mine = self.has(held)
            if mine and not free:
                if self.alone:
                    return None
                continue
            del waiting[place]
            self.running += mine
            return held
        return None

    def jobs_ended(self, endings: Sequence[EndedJob]) -> None:
        count = len(endings) if self.alone else sum(self.has(held) for held, _ in endings)
        self.running -= count
        self._slots.jobs_ended(count)
        self._prefetch.jobs_ended(count)
