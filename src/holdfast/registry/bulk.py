"""bulk: run a plan of one verb on many jobs, through the verbs of any registry.

The calls of a batch are made at the same time, so that in a registry of this process they share commits. Each
has an op_id of the plan: a plan that broke off may be run again.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeAlias

from msgspec import Struct

from holdfast.core.bulk import BulkEffect, BulkPlan, BulkResult, BulkVerb, JobSelection
from holdfast.core.errors import Conflict, Denied, HoldfastError, Invalid, NotFound, Unavailable
from holdfast.core.job import Job
from holdfast.core.limits import PAGE_ITEMS_MAX, slices
from holdfast.core.state import State
from holdfast.ports import Ids, Inspector, JobFilter, Registry

REASONS_MAX = 20
"""How many different reasons for refusals a report keeps."""
INSPECTIONS = 8
"""Validations and resumes that are under way at once: each looks for outputs."""

Inspect: TypeAlias = Callable[[Job], Awaitable[Inspector]]
"""Returns the inspector that sees the outputs of a job."""

_REFUSALS = (Conflict, Invalid, NotFound, Denied)
"""The errors that are about one job. With any other one, which is about them all, the run breaks off."""


class Planned(Struct, frozen=True):
    """A job of a plan, and the job as it is; None if there is no job of this id."""

    job_id: str
    job: Job | None


async def plan_bulk(
    registry: Registry,
    ids: Ids,
    verb: BulkVerb,
    selection: JobSelection,
    *,
    again: bool = False,
    force: bool = False,
    reason: str | None = None,
) -> BulkPlan:
    """Return a plan for the jobs of the selection that exist now. `force` cancels hard, or validates what is
    not due; with `again`, jobs that were replayed or are being resumed are so again."""
    plan = BulkPlan(
        plan_id=ids.new(),
        verb=verb,
        selection=selection,
        planned_at=await registry.now(),
        again=again,
        force=force,
        reason=reason,
    )
    if not selection.job_ids:
        _ = plan.states  # raises if there can be none
    return plan


async def planned_jobs(registry: Registry, plan: BulkPlan) -> AsyncGenerator[list[Planned], None]:
    """Yield the jobs of the plan page by page, the oldest first; named jobs in their order, each once."""
    which = plan.selection
    if which.job_ids:
        for some in slices(list(dict.fromkeys(which.job_ids)), PAGE_ITEMS_MAX):
            jobs = await registry.status_many(some)
            yield list(map(Planned, some, jobs))
        return
    listed = JobFilter(queue=which.queue, kind=which.kind, states=plan.states, labels=which.labels)
    cursor: str | None = None
    while True:
        page = await registry.list_jobs(listed, after=cursor, limit=PAGE_ITEMS_MAX)
        if found := [Planned(job.job_id, job) for job in page.jobs if plan.covers(job)]:
            yield found
        cursor = page.next
        if cursor is None or (page.jobs and all(job.created_at > plan.planned_at for job in page.jobs)):
            return  # jobs that are made meanwhile come last, and may come for ever


async def count_planned(registry: Registry, plan: BulkPlan) -> int:
    """Return how many jobs the plan is about as they are now. Running it may meet fewer."""
    many = 0
    async with aclosing(planned_jobs(registry, plan)) as pages:
        async for page in pages:
            many += len(page)
    return many


async def run_bulk(
    registry: Registry, plan: BulkPlan, *, actor: str, inspect: Inspect | None = None
) -> AsyncGenerator[list[BulkResult], None]:
    """Do to each job of the plan what it says; yield the results batch by batch. Validating and resuming
    need `inspect`. Raise what is not about one job (`Unavailable`, `Exhausted`), after the results that came
    before it: then run the plan again."""
    run = _Run(registry, plan, actor, inspect)
    at_once = _calls_at_once(registry, plan)
    async with aclosing(planned_jobs(registry, plan)) as pages:
        async for page in pages:
            for some in slices(page, at_once):
                results, broken = await run.batch(some)
                yield results
                if broken is not None:
                    raise broken


def _calls_at_once(registry: Registry, plan: BulkPlan) -> int:
    if plan.verb in (BulkVerb.VALIDATE, BulkVerb.RESUME):
        return INSPECTIONS
    return registry.calls_at_once


class _Run:
    """A plan on a registry, and how each verb is called on one job."""

    def __init__(self, registry: Registry, plan: BulkPlan, actor: str, inspect: Inspect | None) -> None:
        self._registry = registry
        self._plan = plan
        self._actor = actor
        self._inspect = inspect
        self._replays: dict[str, list[str]] = {}
        self._verbs: dict[BulkVerb, Callable[[Job], Awaitable[BulkResult]]] = {
            BulkVerb.CANCEL: self._cancel,
            BulkVerb.REPLAY: self._replay,
            BulkVerb.VALIDATE: self._validate,
            BulkVerb.RESUME: self._resume,
        }

    async def batch(self, some: Sequence[Planned]) -> tuple[list[BulkResult], BaseException | None]:
        """Return the results of these jobs, and the error that broke the run off, if there was one."""
        if self._plan.verb is BulkVerb.REPLAY and not self._plan.again:
            job_ids = [one.job_id for one in some]
            self._replays = dict(zip(job_ids, await self._registry.replays(job_ids), strict=True))
        answers = await asyncio.gather(*map(self._one, some), return_exceptions=True)
        results = [answer for answer in answers if isinstance(answer, BulkResult)]
        broken = [answer for answer in answers if isinstance(answer, BaseException)]
        return results, broken[0] if broken else None

    async def _one(self, planned: Planned) -> BulkResult:
        try:
            if planned.job is None:
                raise NotFound(f"There is no job {planned.job_id}.", job_id=planned.job_id)
            return await self._verbs[self._plan.verb](planned.job)
        except _REFUSALS as error:
            return _refused(planned.job_id, error)
        except Unavailable as error:
            if error.job_id is None:
                raise
            return _refused(planned.job_id, error)  # its outputs cannot be seen, which is about it alone

    async def _cancel(self, job: Job) -> BulkResult:
        plan = self._plan
        if job.state is State.CANCELLED:
            return _already(job, job, "It is cancelled.")
        if job.cancel is not None and not plan.force:
            return _already(job, job, "Its owner was asked before to stop.")
        after = await self._registry.cancel(
            job.job_id,
            actor=self._actor,
            op_id=plan.op_id(job.job_id),
            reason=plan.reason,
            hard=plan.force,
        )
        return BulkResult(job_id=job.job_id, effect=BulkEffect.DONE, job=after)

    async def _replay(self, job: Job) -> BulkResult:
        if earlier := self._replays.get(job.job_id):
            note = f"It was replayed as {earlier[-1]}."
            return _already(job, job, note, other_id=earlier[-1])
        new = await self._registry.replay(
            job.job_id, actor=self._actor, replay_id=self._plan.op_id(job.job_id)
        )
        return BulkResult(job_id=job.job_id, effect=BulkEffect.DONE, job=new, other_id=new.job_id)

    async def _validate(self, job: Job) -> BulkResult:
        if not job.ended and job.state is not State.VALIDATING:
            raise Conflict(f"Job {job.job_id} is {job.state}: its work is not done.", job_id=job.job_id)
        inspector = await self._inspector(job)
        after = await inspector.validate(job.job_id, actor=self._actor, force=self._plan.force)
        if after.version == job.version and after.check == job.check:
            return _already(job, after, "It was not due for validation.")
        if after.check is not None and after.check.reason is not None:
            error = Conflict(f"Its outputs could not be seen: {after.check.reason}", job_id=job.job_id)
            return _refused(job.job_id, error)
        return BulkResult(job_id=job.job_id, effect=BulkEffect.DONE, job=after)

    async def _resume(self, job: Job) -> BulkResult:
        inspector = await self._inspector(job)
        resumption = await inspector.resume(
            job.job_id,
            actor=self._actor,
            resume_id=self._plan.op_id(job.job_id),
            again=self._plan.again,
        )
        new = resumption.job
        if new is None:
            return _already(job, job, "Nothing is missing.")
        if resumption.earlier:
            note = f"It is resumed by {new.job_id} already ({new.state})."
            return _already(job, new, note, other_id=new.job_id)
        return BulkResult(job_id=job.job_id, effect=BulkEffect.DONE, job=new, other_id=new.job_id)

    async def _inspector(self, job: Job) -> Inspector:
        if self._inspect is None:
            raise Invalid(f"To {self._plan.verb} jobs takes an inspector of their outputs.")
        return await self._inspect(job)


def _already(job: Job, after: Job, note: str, *, other_id: str | None = None) -> BulkResult:
    return BulkResult(job_id=job.job_id, effect=BulkEffect.ALREADY, job=after, note=note, other_id=other_id)


def _refused(job_id: str, error: HoldfastError) -> BulkResult:
    return BulkResult(job_id=job_id, effect=BulkEffect.REFUSED, note=error.message, error=error)


class BulkReport:
    """The sum of the results: how many there are of each effect, and why jobs were refused."""

    def __init__(self) -> None:
        self.done = self.already = self.refused = 0
        self.reasons: dict[str, int] = {}

    def add(self, result: BulkResult) -> None:
        if result.effect is BulkEffect.DONE:
            self.done += 1
        elif result.effect is BulkEffect.ALREADY:
            self.already += 1
        else:
            self.refused += 1
            reason = (result.note or "").replace(result.job_id, "JOB")
            if reason in self.reasons or len(self.reasons) < REASONS_MAX:
                self.reasons[reason] = self.reasons.get(reason, 0) + 1
