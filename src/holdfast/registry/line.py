"""The line: concurrent calls share commits, and a repeated op_id gets its original answer."""

import asyncio
from collections import Counter, deque
from copy import copy
from functools import partial

from msgspec import convert
from msgspec.structs import replace

from holdfast.core.catalogue import EventType
from holdfast.core.errors import HoldfastError, Invalid, NotFound, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import DeadLetter, Failure, Job
from holdfast.core.lifecycle import Change, Command, Expire, decide
from holdfast.core.limits import BATCH_ITEMS_MAX, check_id
from holdfast.core.projection import fold
from holdfast.core.state import ENDED, LEASED
from holdfast.failpoint import failpoint
from holdfast.ports import Decision, Due, Ids, One, Ready, Store, Work

SWEEP_ITEMS = 100
EXPIRER = Expire().actor


class Line:
    """Where every write queues up for the store.

    While one commit is under way, arriving works gather; they go together in the next. On an idle
    line a work goes at once: nobody ever waits for a timer.
    """

    def __init__(self, store: Store, ids: Ids) -> None:
        self.store = store
        self.ids = ids
        self.tally: Counter[str] = Counter()
        self._waiting: deque[_Entry] = deque()
        self._sweep = False
        self._single = 0
        self._flusher: asyncio.Task[None] | None = None

    async def submit(self, *works: Work, sweep: bool = False) -> list[list[Decision]]:
        """Commit the works with whatever else is waiting; `sweep` first expires what is due."""
        loop = asyncio.get_running_loop()
        entry = _Entry(works, loop.create_future())
        self._waiting.append(entry)
        failpoint("line.joined")
        self._sweep |= sweep
        if self._flusher is None:
            self._flusher = loop.create_task(self._flush())
        return await entry.answer

    async def settle(self, job_id: str, command: Command, *, lock: str | None = None) -> Job:
        """Decide one command on one job and return the job after it, or raise why it was refused."""
        [[decision]] = await self.submit(Work(One(job_id, lock), partial(decide, command)))
        if isinstance(decision, Change) and decision.after is not decision.before:
            return decision.after
        return await self.answer(job_id, command, decision)

    async def answer(self, job_id: str, command: Command, decision: Decision) -> Job:
        """What the caller of a command gets that changed nothing: a repeat of an applied op gets that
        op's own answer, whether it was refused now or had nothing to do."""
        job = decision.after if isinstance(decision, Change) else decision.job
        op_id = getattr(command, "op_id", None)
        if op_id is not None and job is not None:
            [history] = await self.store.histories([job_id])
            if any(_is_of(event, command, op_id) for event in history):
                return as_of(job, history, op_id)
        if isinstance(decision, Change):
            return decision.after
        error = decision.error
        error.job_id = job_id
        self.tally[type(error).__name__.lower()] += 1
        if decision.facts:
            await self.store.record(decision.facts)
        raise error

    def op(self, op_id: str | None) -> str:
        """The caller's op_id, or a new one."""
        return self.ids.new() if op_id is None else check_id(op_id, "op_id")

    async def sweep(self, limit: int) -> int:
        """Expire what is due; answers how many jobs changed."""
        [decisions] = await self.submit(Work(Due(limit), partial(decide, Expire())))
        return sum(isinstance(d, Change) and d.after is not d.before for d in decisions)

    async def get(self, job_id: str) -> Job:
        [job] = await self.store.get([job_id])
        if job is None:
            raise NotFound(f"There is no job {job_id}.", job_id=job_id)
        return job

    async def close(self) -> None:
        """Let everything that waits be committed."""
        while self._flusher is not None:
            await asyncio.gather(self._flusher, return_exceptions=True)

    async def _flush(self) -> None:
        try:
            while self._waiting:
                if not (batch := self._take()):
                    break
                failpoint("line.batch_taken")
                works = [work for entry in batch for work in entry.works]
                swept = self._sweep and any(isinstance(w.selection, Ready) for w in works)
                if swept:
                    works.append(Work(Due(SWEEP_ITEMS), partial(decide, Expire())))
                    self._sweep = False
                try:
                    answers = await self.store.transact(works)
                except HoldfastError as error:
                    _fail(batch, error)
                except Exception as error:
                    if len(batch) > 1:  # somebody's request cannot be written: find out whose
                        self._waiting.extendleft(reversed(batch))
                        self._single = len(batch)
                    else:
                        _fail(batch, _broken(error))
                else:
                    failpoint("line.committed")
                    _settle(batch, answers)
                    failpoint("line.answered")
                    self._count(answers)
        finally:
            self._flusher = None

    def _take(self) -> "list[_Entry]":
        """As much of what waits as fits into one commit; at least one entry."""
        while self._waiting and self._waiting[0].answer.done():
            self._waiting.popleft()  # its caller has left, and nobody would hold what it claims
            self._single -= 1
        if not self._waiting:
            return []
        batch = [self._waiting.popleft()]
        size = batch[0].size
        self._single -= 1
        while (
            self._waiting
            and self._single < 0
            and size + self._waiting[0].size <= BATCH_ITEMS_MAX
            and not self._waiting[0].answer.done()
        ):
            batch.append(self._waiting.popleft())
            size += batch[-1].size
        return batch

    def _count(self, answers: list[list[Decision]]) -> None:
        events = [
            event
            for decisions in answers
            for decision in decisions
            if isinstance(decision, Change)
            for event in decision.events
        ]
        self.tally.update([event.event_type for event in events])
        lapsed = [event for event in events if event.actor == EXPIRER]
        self.tally["lease_expiries"] += sum(event.from_state in LEASED for event in lapsed)


class _Entry:
    """The works of one call, and where its answer goes."""

    __slots__ = ("answer", "size", "works")

    def __init__(
        self, works: tuple[Work, ...], answer: asyncio.Future[list[list[Decision]]]
    ) -> None:
        self.works = works
        self.answer = answer
        self.size = len(works)
        for work in works:
            if not isinstance(work.selection, One):
                self.size += work.selection.limit - 1


def _is_of(event: Event, command: Command, op_id: str) -> bool:
    """Whether this command wrote the event: under its op_id and, for an owner, under its token."""
    token = getattr(command, "token", event.fencing_token)
    claimed = event.event_type == EventType.CLAIMED
    return event.op_id == op_id and event.fencing_token == token and not claimed


def as_of(job: Job, history: list[Event], op_id: str) -> Job:
    """The job as it stood right after this op, as far as its log knows: without a lease that has
    changed hands since."""
    last = max(n for n, event in enumerate(history) if event.op_id == op_id)
    past = fold(history[: last + 1], job.job_id).job
    assert past.state is not None  # a job's first event gives it one
    held = past.state in LEASED and past.fencing_token == job.fencing_token
    return replace(
        job,
        **{name: getattr(past, name) for name in _TOLD},
        error=convert(past.error, Failure | None),
        dead_letter=convert(past.dead_letter, DeadLetter | None),
        lease=job.lease if held else None,
        cancel=job.cancel if past.cancel_requested else None,
        ended_at=history[last].occurred_at if past.state in ENDED else None,
    )


_TOLD = (
    "state",
    "version",
    "transition_no",
    "attempt",
    "failures",
    "crashes",
    "fencing_token",
    "reason",
    "result",
    "missing_outputs",
)


def _broken(error: Exception) -> HoldfastError:
    """What a caller is told whose request broke the store's code: its own fault, or ours."""
    if isinstance(error, TypeError | ValueError | OverflowError):
        told: HoldfastError = Invalid(f"The request cannot be written: {error}")
    else:
        told = Unavailable(f"The store failed: {error!r}", applied="unknown")
    told.__cause__ = error
    return told


def _settle(batch: list[_Entry], answers: list[list[Decision]]) -> None:
    start = 0
    for entry in batch:
        end = start + len(entry.works)
        if not entry.answer.done():
            entry.answer.set_result(answers[start:end])
        start = end


def _fail(batch: list[_Entry], error: HoldfastError) -> None:
    for entry in batch:
        if not entry.answer.done():
            own = copy(error)  # callers may add to their error
            own.__cause__ = error.__cause__
            entry.answer.set_exception(own)
