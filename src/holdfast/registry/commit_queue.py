"""The commit queue: concurrent calls share commits, and a repeated op_id returns its original result."""

import asyncio
from collections import deque
from collections.abc import Generator, Iterator, Sequence
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
from holdfast.core.limits import BATCH_BYTES_MAX, BATCH_ITEMS_MAX, batches, check_id, slices
from holdfast.core.spec import Spec
from holdfast.failpoint import failpoint
from holdfast.ports import ById, Decision, Due, Ids, Prompt, Ready, Store, Work
from holdfast.registry.counters import JobCounters
from holdfast.registry.idempotency import applied_op_id, job_after, reword_fenced
from holdfast.registry.read_batcher import ReadBatcher

EXPIRE_ITEMS = 100
ALONE_COMMITS = 16
"""After how many commits of one call each the next call may commit at once."""
UNVALIDATED_MAX = 10_000
"""How many unsuccessful jobs are remembered for validation; the oldest are dropped first."""

OWNER_COMMANDS = Heartbeat | Aggregate | Complete | Release
"""The commands of an attempt's owner, apart from its publishes."""

CompletionCommand: TypeAlias = tuple[str, Complete]
"""The id of a job, and the completion of its attempt."""

DecidedCommand: TypeAlias = tuple[str, Command, Decision]
"""The id of a job, a command on it, and the decision."""


class CommitQueue:
    """The queue of all writes to the store: a group commit.

    While one commit is under way, arriving works gather; they go together in the next. When the queue is
    idle, a work goes at once: no caller ever waits for a timer. Where the store can do it, and as long as
    calls come one by one, it does not even leave the caller's task; those that come in the same turn of the
    event loop gather.

    Works of attempt owners have a queue of their own. A commit takes up to its limit from each of the two
    queues, owners first: they wait for the commit under way, never for all the jobs that others enqueue,
    and neither queue can hold up the other. Works of one queue are committed in the order they came.
    """

    def __init__(self, store: Store, ids: Ids) -> None:
        self.store = store
        self.ids = ids
        self.read_batcher = ReadBatcher(store)
        self.counters = JobCounters()
        self.counting = False
        self.unvalidated: deque[str] = deque(maxlen=UNVALIDATED_MAX)
        self._owners: deque[_Entry] = deque()
        self._others: deque[_Entry] = deque()
        self._single: deque[_Entry] = deque()
        self._expire_first = False
        self._flusher: asyncio.Task[None] | None = None
        self._prompt = store if isinstance(store, Prompt) else None
        self._alone = 0
        self._turn_taken = False

    async def submit(
        self, *works: Work, expire_first: bool = False, owner: bool = False, size_bytes: int = 0
    ) -> list[list[Decision]]:
        """Commit the works together with others that wait, and return their decisions. `expire_first` also
        expires due jobs. `owner` says that the works are an owner's, `size_bytes` how large their payloads
        or events are."""
        loop = asyncio.get_running_loop()
        if self._alone >= ALONE_COMMITS and not (expire_first or self._expire_first or self._flusher):
            decisions = self._commit_at_once(works, loop)
            if decisions is not None:
                await self._end_turn()
                return decisions
        entry = _Entry(works, loop.create_future(), size_bytes)
        (self._owners if owner else self._others).append(entry)
        failpoint("commit_queue.joined")
        self._expire_first |= expire_first
        if self._flusher is None or self._flusher.done():
            self._flusher = loop.create_task(self._flush())
        return await entry.future

    def _commit_at_once(
        self, works: Sequence[Work], loop: asyncio.AbstractEventLoop
    ) -> list[list[Decision]] | None:
        """Commit without a task; return None when the works have to take their place in the queue."""
        if self._prompt is None or self._turn_taken:
            self._alone = 0
            return None
        began = loop.time()
        try:
            decisions = self._prompt.transact_at_once(works)
        except Exception as error:
            self.counters.commit_failures += 1
            translated = _translate(error)
            raise translated from translated.__cause__
        if decisions is not None:
            if self.counting:
                self.counters.count_commit(len(works), loop.time() - began)
            self._count(decisions)
        return decisions

    async def _end_turn(self) -> None:
        """Let all others run that are ready to: calls that follow one another must not hold up the loop."""
        self._turn_taken = True
        try:
            await _NextTurn()
        finally:
            self._turn_taken = False

    async def execute(self, job_id: str, command: Command, *, lock: str | None = None) -> Job:
        """Decide one command on one job; return the job after it, or raise why it was refused."""
        work = Work(ById(job_id, lock), partial(decide, command), command)
        size = _made_bytes(command) if type(command) is Complete else 0
        [[decision], *_] = await self.submit(
            work,
            *_existence_checks(command),
            owner=isinstance(command, OWNER_COMMANDS),
            size_bytes=size,
        )
        if _changed(decision):
            return decision.after
        return await self.resolve_unchanged(job_id, command, decision)

    async def execute_many(self, completions: Sequence[CompletionCommand]) -> list[Job | HoldfastError]:
        """Decide each completion on its job, many in one commit. Return for each, in order, what `execute`
        would return or raise."""
        results: list[Job | HoldfastError] = []
        for some in _batches(completions):
            results += await self._execute_some(some)
        return results

    async def _execute_some(self, completions: Sequence[CompletionCommand]) -> list[Job | HoldfastError]:
        works = [Work(ById(job_id), partial(decide, command), command) for job_id, command in completions]
        works += [check for _, c in completions if c.follow_ups for check in _existence_checks(c)]
        size = sum(_made_bytes(c) for _, c in completions if c.follow_ups)
        try:
            committed = await self.submit(*works, owner=True, size_bytes=size)
            decisions = [d for [d] in committed[: len(completions)]]
        except HoldfastError as error:
            return [_copy_of(error) for _ in completions]
        changed = [d.after for d in decisions if _changed(d)]
        if len(changed) == len(decisions):
            return list[Job | HoldfastError](changed)
        decided = [(*one, d) for one, d in zip(completions, decisions, strict=True) if not _changed(d)]
        try:
            rest = iter(await self._results(decided))
        except HoldfastError as error:
            rest = iter([_copy_of(error) for _ in decided])
        return [d.after if _changed(d) else next(rest) for d in decisions]

    async def resolve_unchanged(self, job_id: str, command: Command, decision: Decision) -> Job:
        """Return the result of a command that changed nothing: for a repeat of an applied op that op's own
        result, whether the repeat was refused or had nothing to do; else the job, or raise the refusal."""
        [result] = await self._results([(job_id, command, decision)])
        if isinstance(result, HoldfastError):
            raise result
        return result

    async def _results(self, decided: Sequence[DecidedCommand]) -> list[Job | HoldfastError]:
        known = [job_id for job_id, command, decision in decided if _may_repeat(command, decision)]
        chains = await self.store.histories(known) if known else []
        histories = dict(zip(known, chains, strict=True))
        made = await self._made(decided)
        results: list[Job | HoldfastError] = []
        facts: list[Event] = []
        for job_id, command, decision in decided:
            job, history = _subject(decision), histories.get(job_id, [])
            op_id = None if job is None else applied_op_id(command, job, history, made)
            if job is not None and op_id is not None:
                results.append(job_after(job, history, op_id))
            elif isinstance(decision, Change):
                results.append(decision.after)
            else:
                decision.error.job_id = job_id
                self.counters.refusals[type(decision.error).__name__.lower()] += 1
                facts += decision.facts
                results.append(reword_fenced(decision.error, command, history))
        if facts:  # each of them a stale write, known or new
            self.counters.other_events[facts[0].event_type] += await self.store.record(facts)
        return results

    async def _made(self, decided: Sequence[DecidedCommand]) -> dict[str, Spec]:
        """The existing jobs among the follow-ups of these commands."""
        named = [one.job_id for _, c, _ in decided if type(c) is Complete for one in c.follow_ups]
        jobs = await self.store.get(named) if named else []
        return {job.job_id: job.spec for job in jobs if job is not None}

    def op_id_or_new(self, op_id: str | None) -> str:
        """The caller's op_id, or a new one."""
        if op_id is None:
            return self.ids.new()
        return check_id.__wrapped__(op_id, "op_id")  # without its cache: each op_id is new

    async def expire_due(self, limit: int) -> int:
        """Expire jobs that are due; return how many changed."""
        [decisions] = await self.submit(Work(Due(limit), partial(decide, Expire())))
        return sum(map(_changed, decisions))

    async def get(self, job_id: str) -> Job:
        [job] = await self.store.get([job_id])
        if job is None:
            raise NotFound(f"There is no job {job_id}.", job_id=job_id)
        return job

    async def close(self) -> None:
        """Wait until everything in the queue is committed."""
        while self._flusher is not None:
            await asyncio.gather(self._flusher, return_exceptions=True)

    async def _flush(self) -> None:
        time = asyncio.get_running_loop().time
        try:
            while batch := self._take():
                failpoint("commit_queue.batch_taken")
                self._alone = self._alone + 1 if len(batch) == 1 else 0
                works = [work for entry in batch for work in entry.works]
                if self._expire_first and any(isinstance(w.selection, Ready) for w in works):
                    works.append(Work(Due(EXPIRE_ITEMS), partial(decide, Expire())))
                    self._expire_first = False
                began = time()
                try:
                    decisions = await self.store.transact(works)
                except Exception as error:
                    self.counters.commit_failures += 1
                    refused = isinstance(error, HoldfastError) and not isinstance(error, Invalid)
                    if refused or len(batch) == 1:
                        _fail(batch, _translate(error))
                    else:  # one request cannot be written: find out which
                        self._single.extend(batch)
                else:
                    if self.counting:
                        self.counters.count_commit(len(works), time() - began)
                    failpoint("commit_queue.committed")
                    _resolve(batch, decisions)
                    failpoint("commit_queue.resolved")
                    self._count(decisions)
        finally:
            self._flusher = None

    def _take(self) -> "list[_Entry]":
        """Take the next commit: one entry that is tried on its own, or as much of each queue as fits."""
        if single := _take_fitting(self._single, 1):
            return single
        return _take_fitting(self._owners, BATCH_ITEMS_MAX) + _take_fitting(self._others, BATCH_ITEMS_MAX)

    def _count(self, decisions: list[list[Decision]]) -> None:
        """Count what was committed, and remember the jobs that need a validation."""
        self.unvalidated += [
            d.after.job_id
            for one in decisions
            for d in one
            if isinstance(d, Change)
            and d.after.spec.promised_outputs
            and d.sample_events
            and d.after.unvalidated
        ]
        if self.counting:
            self.counters.count_changes(d for one in decisions for d in one if isinstance(d, Change))


class _NextTurn:
    """Awaited, it lets the event loop go round once."""

    def __await__(self) -> Generator[None]:
        yield


class _Entry:
    """The works of one call, and the future of their decisions."""

    __slots__ = ("future", "size", "size_bytes", "works")

    def __init__(
        self,
        works: tuple[Work, ...],
        future: asyncio.Future[list[list[Decision]]],
        size_bytes: int,
    ) -> None:
        self.works = works
        self.future = future
        self.size_bytes = size_bytes
        self.size = len(works)
        for work in works:
            if not isinstance(work.selection, ById):
                self.size += work.selection.limit - 1


def _take_fitting(entries: deque[_Entry], items: int) -> list[_Entry]:
    """Take up to `items` items, and no more bytes than a commit may have; at least one entry."""
    batch: list[_Entry] = []
    size = size_bytes = 0
    while entries:
        entry = entries[0]
        if entry.future.done():  # its caller has left, and would not hold what it claims
            entries.popleft()
            continue
        size += entry.size
        size_bytes += entry.size_bytes
        if batch and (size > items or size_bytes > BATCH_BYTES_MAX):
            break
        batch.append(entries.popleft())
    return batch


def _batches(completions: Sequence[CompletionCommand]) -> Iterator[Sequence[CompletionCommand]]:
    """The completions of each commit: none has too many jobs, or too many bytes of new ones."""
    if not any(command.follow_ups for _, command in completions):  # 0.03 us each, not 0.15
        return slices(completions, BATCH_ITEMS_MAX)
    weights = ((1 + len(command.follow_ups), _made_bytes(command)) for _, command in completions)
    return (completions[start:end] for start, end, _ in batches(weights))


def _made_bytes(command: Complete) -> int:
    """The size of the payloads of its follow-ups."""
    return sum(memoryview(made.spec.payload).nbytes for made in command.follow_ups)


def _existence_checks(command: Command) -> list[Work]:
    """Works that change nothing: the store reads these ids, and so sees which of them exist."""
    if type(command) is not Complete or not command.follow_ups:
        return []
    return [Work(ById(made.job_id, made.spec.lock), _read_only) for made in command.follow_ups]


def _read_only(job: Job | None, *_: object) -> Decision:
    return Refusal(NotFound("There is no such job.")) if job is None else Change(job, job)


def _changed(decision: Decision) -> TypeGuard[Change]:
    return isinstance(decision, Change) and decision.after is not decision.before


def _subject(decision: Decision) -> Job | None:
    return decision.after if isinstance(decision, Change) else decision.job


def _may_repeat(command: Command, decision: Decision) -> bool:
    """Whether the command may be a repeat: heartbeats have no op_id, and an unknown job no history."""
    return hasattr(command, "op_id") and _subject(decision) is not None


def _translate(error: Exception) -> HoldfastError:
    """The error for a request that broke the store's code: `Invalid` if it cannot be written."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, TypeError | ValueError | OverflowError):
        translated: HoldfastError = Invalid(f"The request cannot be written: {error}")
    else:
        translated = Unavailable(f"The store failed: {error!r}", applied="unknown")
    translated.__cause__ = error
    return translated


def _resolve(batch: list[_Entry], decisions: list[list[Decision]]) -> None:
    start = 0
    for entry in batch:
        end = start + len(entry.works)
        if not entry.future.done():
            entry.future.set_result(decisions[start:end])
        start = end


def _fail(batch: list[_Entry], error: HoldfastError) -> None:
    for entry in batch:
        if not entry.future.done():
            entry.future.set_exception(_copy_of(error))


def _copy_of(error: HoldfastError) -> HoldfastError:
    """A copy of an error for one of several callers, each of which may add to its own."""
    own = copy(error)
    own.__cause__ = error.__cause__
    return own
