"""The line: concurrent calls share commits, and a repeated op_id gets its original answer."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from copy import copy
from functools import partial
from typing import TypeAlias, TypeGuard

from holdfast.core.errors import HoldfastError, Invalid, NotFound, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import (
    Aggregate,
    Change,
    Command,
    Complete,
    Expire,
    Heartbeat,
    Refusal,
    Release,
    decide,
)
from holdfast.core.limits import BATCH_BYTES_MAX, BATCH_ITEMS_MAX, check_id
from holdfast.core.spec import Spec
from holdfast.failpoint import failpoint
from holdfast.ports import Decision, Due, Ids, One, Ready, Store, Work
from holdfast.registry.counted import Counted
from holdfast.registry.reads import Reads
from holdfast.registry.repeats import applied, as_of, retold

SWEEP_ITEMS = 100
UNVERIFIED_MAX = 10_000
"""How many unsuccessful ends are kept for whoever looks for outputs; the oldest are forgotten first."""

OWNERS = Heartbeat | Aggregate | Complete | Release
"""What the owner of an attempt says, beside what it publishes."""

Asked: TypeAlias = tuple[str, Complete]
"""A job, and how its owner says that the attempt ended."""

Told: TypeAlias = tuple[str, Command, Decision]
"""A job, what was asked of it, and what was decided."""


class Line:
    """Where every write queues up for the store.

    While one commit is under way, arriving works gather; they go together in the next. On an idle
    line a work goes at once: nobody ever waits for a timer.

    Owners of attempts have a lane of their own, and a commit takes as much of each lane as one commit may
    have, owners first: they wait for the commit under way, never for all the jobs that others enqueue,
    and neither lane can hold up the other. Works of one lane are committed in the order they came.
    """

    def __init__(self, store: Store, ids: Ids) -> None:
        self.store = store
        self.ids = ids
        self.reads = Reads(store)
        self.counted = Counted()
        self.counting = False
        self.unverified: deque[str] = deque(maxlen=UNVERIFIED_MAX)
        self._owners: deque[_Entry] = deque()
        self._others: deque[_Entry] = deque()
        self._apart: deque[_Entry] = deque()
        self._sweep = False
        self._flusher: asyncio.Task[None] | None = None

    async def submit(
        self, *works: Work, sweep: bool = False, owner: bool = False, size_bytes: int = 0
    ) -> list[list[Decision]]:
        """Commit the works with whatever else is waiting; `sweep` first expires what is due. `owner` says
        that they are an owner's, `size_bytes` how large their payloads or events are."""
        loop = asyncio.get_running_loop()
        entry = _Entry(works, loop.create_future(), size_bytes)
        (self._owners if owner else self._others).append(entry)
        failpoint("line.joined")
        self._sweep |= sweep
        if self._flusher is None or self._flusher.done():
            self._flusher = loop.create_task(self._flush())
        return await entry.answer

    async def settle(self, job_id: str, command: Command, *, lock: str | None = None) -> Job:
        """Decide one command on one job and return the job after it, or raise why it was refused."""
        work = Work(One(job_id, lock), partial(decide, command))
        size = _made_bytes(command) if type(command) is Complete else 0
        [[decision], *_] = await self.submit(
            work, *_looks(command), owner=isinstance(command, OWNERS), size_bytes=size
        )
        if _changed(decision):
            return decision.after
        return await self.answer(job_id, command, decision)

    async def settle_many(self, asked: Sequence[Asked]) -> list[Job | HoldfastError]:
        """Decide each completion on its job, many in one commit. Each is answered as `settle` would,
        in order, with the error it would raise as a value."""
        answers: list[Job | HoldfastError] = []
        for start, end in _chunks(asked):
            answers += await self._settle_some(asked[start:end])
        return answers

    async def _settle_some(self, asked: Sequence[Asked]) -> list[Job | HoldfastError]:
        works = [Work(One(job_id), partial(decide, command)) for job_id, command in asked]
        works += [look for _, c in asked if c.follow_ups for look in _looks(c)]
        size = sum(_made_bytes(c) for _, c in asked if c.follow_ups)
        try:
            answers = await self.submit(*works, owner=True, size_bytes=size)
            decisions = [d for [d] in answers[: len(asked)]]
        except HoldfastError as error:
            return [_own(error) for _ in asked]
        told = [(*one, d) for one, d in zip(asked, decisions, strict=True) if not _changed(d)]
        try:
            rest = iter(await self._answers(told) if told else ())
        except HoldfastError as error:
            rest = iter([_own(error) for _ in told])
        return [d.after if _changed(d) else next(rest) for d in decisions]

    async def answer(self, job_id: str, command: Command, decision: Decision) -> Job:
        """What the caller of a command gets that changed nothing: a repeat of an applied op gets that
        op's own answer, whether it was refused now or had nothing to do."""
        [answer] = await self._answers([(job_id, command, decision)])
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    async def _answers(self, told: Sequence[Told]) -> list[Job | HoldfastError]:
        known = [job_id for job_id, command, decision in told if _may_repeat(command, decision)]
        chains = await self.store.histories(known) if known else []
        histories = dict(zip(known, chains, strict=True))
        made = await self._made(told)
        answers: list[Job | HoldfastError] = []
        facts: list[Event] = []
        for job_id, command, decision in told:
            job, history = _subject(decision), histories.get(job_id, [])
            op_id = None if job is None else applied(command, job, history, made)
            if job is not None and op_id is not None:
                answers.append(as_of(job, history, op_id))
            elif isinstance(decision, Change):
                answers.append(decision.after)
            else:
                decision.error.job_id = job_id
                self.counted.refusals[type(decision.error).__name__.lower()] += 1
                facts += decision.facts
                answers.append(retold(decision.error, command, history))
        if facts:  # each of them a stale write, known or new
            self.counted.others[facts[0].event_type] += await self.store.record(facts)
        return answers

    async def _made(self, told: Sequence[Told]) -> dict[str, Spec]:
        """The follow-ups that these commands name and that are there."""
        named = [one.job_id for _, c, _ in told if type(c) is Complete for one in c.follow_ups]
        jobs = await self.store.get(named) if named else []
        return {job.job_id: job.spec for job in jobs if job is not None}

    def op(self, op_id: str | None) -> str:
        """The caller's op_id, or a new one."""
        if op_id is None:
            return self.ids.new()
        return check_id.__wrapped__(op_id, "op_id")  # each is new: none is found in its cache

    async def sweep(self, limit: int) -> int:
        """Expire what is due; answers how many jobs changed."""
        [decisions] = await self.submit(Work(Due(limit), partial(decide, Expire())))
        return sum(map(_changed, decisions))

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
        time = asyncio.get_running_loop().time
        try:
            while batch := self._take():
                failpoint("line.batch_taken")
                works = [work for entry in batch for work in entry.works]
                swept = self._sweep and any(isinstance(w.selection, Ready) for w in works)
                if swept:
                    works.append(Work(Due(SWEEP_ITEMS), partial(decide, Expire())))
                    self._sweep = False
                began = time()
                try:
                    answers = await self.store.transact(works)
                except Exception as error:
                    self.counted.failed += 1
                    refused = isinstance(error, HoldfastError) and not isinstance(error, Invalid)
                    if refused or len(batch) == 1:
                        _fail(batch, _broken(error))
                    else:  # somebody's request cannot be written: find out whose
                        self._apart.extend(batch)
                else:
                    if self.counting:
                        self.counted.committed(len(works), time() - began)
                    failpoint("line.committed")
                    _settle(batch, answers)
                    failpoint("line.answered")
                    self._note(answers)
        finally:
            self._flusher = None

    def _take(self) -> "list[_Entry]":
        """The next commit: one entry that is tried apart, or as much of each lane as fits."""
        if apart := _fitting(self._apart, 1):
            return apart
        return _fitting(self._owners, BATCH_ITEMS_MAX) + _fitting(self._others, BATCH_ITEMS_MAX)

    def _note(self, answers: list[list[Decision]]) -> None:
        """Count what was committed, and remember whose outputs nobody knows of."""
        changes = [d for decisions in answers for d in decisions if isinstance(d, Change)]
        self.unverified += [c.after.job_id for c in changes if c.events and c.after.unverified]
        if self.counting:
            self.counted.changed(changes)


class _Entry:
    """The works of one call, and where its answer goes."""

    __slots__ = ("answer", "size", "size_bytes", "works")

    def __init__(
        self,
        works: tuple[Work, ...],
        answer: asyncio.Future[list[list[Decision]]],
        size_bytes: int,
    ) -> None:
        self.works = works
        self.answer = answer
        self.size_bytes = size_bytes
        self.size = len(works)
        for work in works:
            if not isinstance(work.selection, One):
                self.size += work.selection.limit - 1


def _fitting(lane: deque[_Entry], items: int) -> list[_Entry]:
    """Take from the lane so many items, and no more bytes than a commit may have; at least one entry."""
    batch: list[_Entry] = []
    size = size_bytes = 0
    while lane:
        entry = lane[0]
        if entry.answer.done():  # its caller has left, and nobody would hold what it claims
            lane.popleft()
            continue
        size += entry.size
        size_bytes += entry.size_bytes
        if batch and (size > items or size_bytes > BATCH_BYTES_MAX):
            break
        batch.append(lane.popleft())
    return batch


def _chunks(asked: Sequence[Asked]) -> Iterator[tuple[int, int]]:
    """Where each commit begins and ends: none has too many jobs, or too many bytes of new ones."""
    if not any(command.follow_ups for _, command in asked):  # 0.03 us each, not 0.15
        for start in range(0, len(asked), BATCH_ITEMS_MAX):
            yield start, start + BATCH_ITEMS_MAX
        return
    start = jobs = size = 0
    for n, (_, command) in enumerate(asked):
        made = 1 + len(command.follow_ups)
        more = _made_bytes(command)
        jobs, size = jobs + made, size + more
        if n > start and (jobs > BATCH_ITEMS_MAX or size > BATCH_BYTES_MAX):
            yield start, n
            start, jobs, size = n, made, more
    yield start, len(asked)


def _made_bytes(command: Complete) -> int:
    """The payloads of the jobs that it makes."""
    return sum(memoryview(made.spec.payload).nbytes for made in command.follow_ups)


def _looks(command: Command) -> list[Work]:
    """Works that change nothing: a store that reads these ids sees which of them are taken."""
    if type(command) is not Complete or not command.follow_ups:
        return []
    return [Work(One(made.job_id, made.spec.lock), _look) for made in command.follow_ups]


def _look(job: Job | None, *_: object) -> Decision:
    return Refusal(NotFound("There is no such job.")) if job is None else Change(job, job)


def _changed(decision: Decision) -> TypeGuard[Change]:
    return isinstance(decision, Change) and decision.after is not decision.before


def _subject(decision: Decision) -> Job | None:
    return decision.after if isinstance(decision, Change) else decision.job


def _may_repeat(command: Command, decision: Decision) -> bool:
    """Whether the job's history can tell: heartbeats have no op_id, and an unknown job no history."""
    return hasattr(command, "op_id") and _subject(decision) is not None


def _broken(error: Exception) -> HoldfastError:
    """What a caller is told whose request broke the store's code: its own fault, or ours."""
    if isinstance(error, HoldfastError):
        return error
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
            entry.answer.set_exception(_own(error))


def _own(error: HoldfastError) -> HoldfastError:
    """A copy of an error that many get: each may add to its own."""
    own = copy(error)
    own.__cause__ = error.__cause__
    return own
