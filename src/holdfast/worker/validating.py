"""The validations of one worker: of the jobs it ran at once, of others by a sweep.

They run beside the jobs: a job that promised outputs has left its slot when its validation begins, and a
job that promised none never comes here.
"""

import asyncio
from collections.abc import Collection
from typing import Protocol

from holdfast.core.errors import Denied, HoldfastError
from holdfast.core.job import Job
from holdfast.core.outputs import WAITS
from holdfast.core.state import State
from holdfast.failpoint import failpoint
from holdfast.outputs.lazily import LazyOutputs
from holdfast.outputs.validation import OutputValidation
from holdfast.outputs.validator import Validator
from holdfast.ports import Clock, Ids, Registry
from holdfast.worker.tasks import Tasks

SWEEP_JOBS = 100
AT_ONCE = 16
OWN_MAX = 1_000
"""How many jobs of this worker may wait for their first validation; a sweep finds the others."""


class Report(Protocol):
    """Receives the state in which a job was left, and what went wrong."""

    def ended(self, job: Job, seconds: float) -> None: ...

    def trouble(self, why: str) -> None: ...


class Validating:
    """The validations of the worker `name` on `machine`. With `queues`, it validates plain paths of jobs
    in these queues only."""

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
        self._report = report
        self._clock = clock
        self._validation = OutputValidation(
            registry,
            outputs,
            clock=clock,
            ids=ids,
            machine=machine,
            name=name,
            concurrency=AT_ONCE,
            queues=queues,
        )
        self._tasks = Tasks(report.trouble)
        self._looked = asyncio.Event()
        self._unlooked = 0
        self._said = False

    def add(self, job: Job, seconds: float) -> None:
        """Validate a job of this worker that has ended after so many seconds; then report it."""
        if self._unlooked >= OWN_MAX:
            self._report.ended(job, seconds)
            return
        self._unlooked += 1
        self._tasks.start(self._own(job, seconds))

    async def settle(self) -> None:
        """Wait until every job of this worker has been validated once, with a verdict or without."""
        while self._unlooked:
            self._looked.clear()
            await self._looked.wait()

    async def close(self) -> None:
        await self._tasks.stop()
        await self._validation.outputs.close()

    async def _own(self, job: Job, seconds: float) -> None:
        """Validate until there is a verdict, or the tries of this worker are used up; report once."""
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
        """Return the seconds until the next try; None when later tries are left to the sweeps."""
        check = job.check
        if check is None or check.next_at is None or not 1 <= check.tries <= len(WAITS):
            return None
        if check.tries == 1:
            self._report.trouble(f"the outputs of {job.job_id} cannot be seen: {check.reason}")
        return max(0.0, (check.next_at - await self._registry.now()).total_seconds())

    async def _validate(self, job: Job) -> Job:
        """Return the job as it is afterwards. Jobs whose outputs this worker never sees are left to
        others, and the first of them is reported."""
        async with self._validation.slots:
            try:
                validator, why = await self._open()
                if why is not None and job.spec.outputs is not None and job.spec.outputs.store:
                    return await validator.report_trouble(job, why)
                if (why := validator.blind(job)) is not None:
                    self._say_once(f"the outputs of {job.job_id} are for others to validate: {why}")
                    return job
                failpoint("worker.validation_begun")
                return await validator.validate(job)
            except HoldfastError as error:
                self._report.trouble(error.message)
                return job

    def _say_once(self, why: str) -> None:
        if not self._said:
            self._said = True
            self._report.trouble(why)

    async def _open(self) -> tuple[Validator, str | None]:
        """Return the validator, and why the output store cannot be opened: then it sees plain paths only."""
        try:
            return self._validation.validator(await self._validation.outputs.get()), None
        except HoldfastError as error:
            return self._validation.validator(None), error.message

    async def sweep(self) -> None:
        """Validate what is due, about every half a minute, until cancelled."""
        try:
            await self._validation.sweep_forever(self._sweep)
        except Denied as error:
            self._report.trouble(f"the outputs of other workers' jobs are for others: {error}")

    async def _sweep(self) -> None:
        try:
            if await self._validation.any_due():  # else the output store stays closed
                validator, _ = await self._open()
                while await validator.sweep(limit=SWEEP_JOBS) == SWEEP_JOBS:
                    pass
        except Denied:
            raise
        except Exception as error:
            self._report.trouble(f"outputs could not be validated: {error}")
