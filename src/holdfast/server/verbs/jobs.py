"""The verbs of jobs: make them, hand them off, replay them, cancel them."""

from collections import Counter
from collections.abc import Sequence

from holdfast.core.access import Scope
from holdfast.core.errors import Conflict, Exhausted, Invalid
from holdfast.core.job import Job
from holdfast.core.limits import BATCH_ITEMS_MAX, check_id
from holdfast.ports import Request
from holdfast.server import admission
from holdfast.server.calls import who
from holdfast.server.context import Context
from holdfast.server.sizes import fitting
from holdfast.server.verbs.access import actor, find, in_reach, known, made, prepared, shown
from holdfast.wire import asks
from holdfast.wire.answers import OfJob, OfJobs


class Jobs:
    """What a submitter and an operator do to jobs."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._registry = context.registry

    async def enqueue(self, ask: asks.Enqueue) -> OfJobs:
        principal = who.get()
        if not 1 <= len(ask.requests) <= BATCH_ITEMS_MAX:
            raise Invalid(f"From 1 to {BATCH_ITEMS_MAX} jobs are taken at once.")
        for one in ask.requests:
            admission.check_names(principal, one.job_id, one.spec)
        asked = [await prepared(self._context, one) for one in ask.requests]
        await self._admit(asked)
        many = len(asked) > 1
        try:
            jobs = await self._make(asked, actor(ask.actor), reuse=ask.reuse)
        except Conflict as error:
            raise await in_reach(self._registry, error, many=many) from error
        return OfJobs(tuple(fitting(made(job, many=many) for job in jobs)))

    async def _make(self, asked: Sequence[Request], actor: str, *, reuse: bool) -> Sequence[Job]:
        if not reuse:
            return await self._registry.enqueue_many(asked, actor=actor)
        return await self._context.checking.submit(asked, actor=actor)

    async def _admit(self, asked: Sequence[Request]) -> None:
        """Refuse what would make a queue too long. A repeat makes no job, so it is let in."""
        for queue, count in Counter(check_id(one.spec.queue, "queue") for one in asked).items():
            try:
                await self._context.depth.admit(queue, count)
            except Exhausted:
                if not await known(
                    self._registry, [one for one in asked if one.spec.queue == queue]
                ):
                    raise

    async def handoff(self, ask: asks.Handoff) -> OfJob:
        await self._command(ask.job_id)
        return shown(
            await self._registry.handoff(
                ask.job_id,
                ask.step,
                actor=actor(ask.actor),
                op_id=ask.op_id,
                handle=ask.handle or None,
                error=ask.error,
            )
        )

    async def replay(self, ask: asks.Replay) -> OfJob:
        principal = who.get()
        admission.demand(principal, Scope.ADMIN)
        job = await find(self._registry, ask.job_id)
        admission.enter(principal, Scope.ADMIN, job.spec.queue, job.spec.region)
        await self._context.depth.admit(job.spec.queue)
        return shown(
            await self._registry.replay(ask.job_id, actor=actor(ask.actor), replay_id=ask.op_id)
        )

    async def cancel(self, ask: asks.Cancel) -> OfJob:
        await self._command(ask.job_id)
        return shown(
            await self._registry.cancel(
                ask.job_id,
                actor=actor(ask.actor),
                op_id=ask.op_id,
                reason=ask.reason,
                hard=ask.hard,
            )
        )

    async def _command(self, job_id: str) -> None:
        job = await find(self._registry, job_id)
        admission.command(who.get(), job, job_id)
