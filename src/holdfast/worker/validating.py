"""Validating: a worker looks for the promised outputs of jobs, its own at once, others' now and then.

It is beside the jobs: a job that promised something has left its slot when this begins, and one that
promised nothing never comes here.
"""

import asyncio
from collections.abc import Collection
from typing import Protocol

from holdfast.core.errors import Conflict, Denied, HoldfastError
from holdfast.core.job import Job
from holdfast.core.outputs import WAITS
from holdfast.core.state import State
from holdfast.failpoint import failpoint
from holdfast.outputs.lazily import LazyOutputs
from holdfast.outputs.unverified import Unverified
from holdfast.outputs.validator import Validator, acting
from holdfast.ports import Clock, Filter, Ids, Outputs, Registry
from holdfast.worker.tasks import Tasks

SWEEP_SECONDS = 30.0
SWEEP_JOBS = 100
AT_ONCE = 16
OWN_MAX = 1_000
"""How many of our own jobs may wait for a look; a sweep finds the others."""


class Report(Protocol):
    """Whoever wants to know what came of it."""

    def ended(self, job: Job, seconds: float) -> None: ...

    def trouble(self, why: str) -> None: ...


class Validating:
    """The validations of one worker, called `name`, on `machine`. It looks at plain paths of jobs in
    `queues` only, if these are given."""

    def __init__(
        self,
        registry: Registry,
        outputs: LazyOutputs,
        report: Report,
        *,
        clock: Clock,
        ids: Ids,
        machine: str,
        name: str,
        queues: Collection[str] | None = None,
    ) -> None:
        self._registry = registry
        self._outputs = outputs
        self._report = report
        self._clock = clock
        self._ids = ids
        self._machine = machine
        self._name = name
        self._queues = queues
        self._tasks = Tasks(report.trouble)
        self._room = asyncio.Semaphore(AT_ONCE)
        self._looked = asyncio.Event()
        self._unlooked = 0
        self._said = False
        self._unverified = Unverified(registry)
        self._plain = self._validator(None)
        self._whole: Validator | None = None

    def add(self, job: Job, seconds: float) -> None:
        """A job of ours has ended after so many seconds, and its outputs are to be looked for."""
        if self._unlooked >= OWN_MAX:
            self._report.ended(job, seconds)
            return
        self._unlooked += 1
        self._tasks.start(self._own(job, seconds))

    async def settle(self) -> None:
        """Return when every job of ours is judged, or was looked for in vain."""
        while self._unlooked:
            self._looked.clear()
            await self._looked.wait()

    async def close(self) -> None:
        await self._tasks.stop()
        await self._outputs.close()

    async def _own(self, job: Job, seconds: float) -> None:
        """See it to its verdict, as far as that is for us; then it is reported, once."""
        try:
            try:
                job = await self._validate(job)
            finally:
                self._unlooked -= 1
                self._looked.set()
            while job.state is State.VALIDATING and (wait := await self._wait(job)) is not None:
                await self._clock.sleep(wait)
                job = await self._validate(await self._registry.get(job.job_id))
        except HoldfastError as error:
            self._report.trouble(error.message)
        finally:
            self._report.ended(job, seconds)

    async def _wait(self, job: Job) -> float | None:
        """For how many seconds, after the first tries; later ones are for whoever sweeps."""
        check = job.check
        if check is None or check.next_at is None or not 1 <= check.tries <= len(WAITS):
            return None
        if check.tries == 1:
            self._report.trouble(f"the outputs of {job.job_id} cannot be seen: {check.reason}")
        return max(0.0, (check.next_at - await self._registry.now()).total_seconds())

    async def _validate(self, job: Job) -> Job:
        """The job as it is afterwards. What we cannot see at all is for others, and told once."""
        async with self._room:
            try:
                validator, why = await self._eyes()
                if why is not None and job.spec.outputs is not None and job.spec.outputs.store:
                    return await self._unseen(job, why)
                if (why := validator.blind(job)) is not None:
                    self._say_once(f"the outputs of {job.job_id} are for others to look for: {why}")
                    return job
                failpoint("worker.validation_begun")
                return await validator.validate(job)
            except HoldfastError as error:
                self._report.trouble(error.message)
                return job

    async def _unseen(self, job: Job, why: str) -> Job:
        try:
            return await self._registry.look(
                job.job_id, actor=acting(self._name), version=job.version, trouble=why
            )
        except Conflict:
            return await self._registry.get(job.job_id)

    def _say_once(self, why: str) -> None:
        if not self._said:
            self._said = True
            self._report.trouble(why)

    async def _eyes(self) -> tuple[Validator, str | None]:
        """Who looks; and if the output store cannot be opened, why: then it sees plain paths only."""
        if self._whole is not None:
            return self._whole, None
        try:
            outputs = await self._outputs.get()
        except HoldfastError as error:
            return self._plain, error.message
        if outputs is None:
            return self._plain, None
        self._whole = self._validator(outputs)
        return self._whole, None

    def _validator(self, outputs: Outputs | None) -> Validator:
        return Validator(
            self._registry,
            outputs,
            machine=self._machine,
            name=self._name,
            queues=self._queues,
            clock=self._clock,
            unverified=self._unverified,
        )

    async def sweep(self) -> None:
        """Look for the outputs of whatever is due, whoever ran it, every half a minute, until cancelled.
        Every worker does this; none has to."""
        while True:
            await self._clock.sleep(SWEEP_SECONDS * (0.75 + self._ids.chance() / 2))
            try:
                await self._sweep()
            except Denied as error:
                self._report.trouble(f"the outputs of other workers' jobs are for others: {error}")
                return
            except Exception as error:
                self._report.trouble(f"outputs could not be looked for: {error}")

    async def _any(self) -> bool:
        """Whether any job may be due. State by state: that is what a store has an index for. Of a server
        with keys an empty page may come before one with jobs of ours."""
        for state in (State.VALIDATING, State.PARTIAL_SUCCESS):
            page = await self._registry.list_jobs(Filter(states=(state,)), limit=1)
            if page.jobs or page.next is not None:
                return True
        return await self._unverified.any()

    async def _sweep(self) -> None:
        if not await self._any():
            return  # and the output store stays closed
        validator, _ = await self._eyes()
        while await validator.sweep(limit=SWEEP_JOBS) == SWEEP_JOBS:
            pass
