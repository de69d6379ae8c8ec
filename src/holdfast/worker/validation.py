"""The validations of one worker: of the jobs it ran at once, of others by a sweep.

They run beside the jobs: a job that promised outputs has left its slot when its validation begins, and a
job that promised none never comes here.
"""

import asyncio
from collections.abc import Collection
from typing import Protocol

from holdfast.core.errors import Denied, HoldfastError
from holdfast.core.job import Job
from holdfast.core.outputs import FIRST_RETRY_WAITS
from holdfast.core.state import State
from holdfast.failpoint import failpoint
from holdfast.outputs.lazy import LazyOutputs
from holdfast.outputs.validation import OutputValidation
from holdfast.ports import Clock, Ids, Registry
from holdfast.worker.tasks import Tasks

SWEEP_JOBS = 100
CONCURRENCY = 16
OWN_MAX = 1_000
"""How many jobs of this worker may wait for their first validation; a sweep finds the others."""


class ValidationObserver(Protocol):
    """Receives the state in which a job was left, and what went wrong."""

    def ended(self, job: Job, seconds: float) -> None: ...

    def trouble(self, why: str) -> None: ...


class WorkerValidation:
    """The validations of the worker `name` on `machine`. With `queues`, it validates plain paths of jobs
    in these queues only."""

    def __init__(
        self,
        registry: Registry,
        outputs: LazyOutputs,
        observer: ValidationObserver,
        *,
        clock: Clock,
        ids: Ids,
        machine: str,
        name: str,
        queues: Collection[str] | None = None,
    ) -> None:
        self._registry = registry
        self._observer = observer
        self._clock = clock
        self._validation = OutputValidation(
            registry,
            outputs,
            clock=clock,
            ids=ids,
            machine=machine,
            name=name,
            concurrency=CONCURRENCY,
            queues=queues,
        )
        self._tasks = Tasks(observer.trouble)
        self._validated = asyncio.Event()
        self._unvalidated = 0
        self._reported = False

    def add(self, job: Job, seconds: float) -> None:
        """Validate a job of this worker that has run for `seconds`; then tell the observer of its end."""
        if self._unvalidated >= OWN_MAX:
            self._observer.ended(job, seconds)
            return
        self._unvalidated += 1
        self._tasks.start(self._validate_own(job, seconds))

    async def wait_until_validated(self) -> None:
        """Wait until every job of this worker has been validated once, with a verdict or without."""
        while self._unvalidated:
            self._validated.clear()
            await self._validated.wait()

    async def close(self) -> None:
        await self._tasks.stop()
        await self._validation.outputs.close()

    async def _validate_own(self, job: Job, seconds: float) -> None:
        """Validate until there is a verdict, or the tries of this worker are used up; report once."""
        try:
            try:
                job = await self._validate(job)
            finally:
                self._unvalidated -= 1
                self._validated.set()
            while job.state is State.VALIDATING and (wait := await self._wait(job)) is not None:
                await self._clock.sleep(wait)
                job = await self._validate(await self._registry.status(job.job_id))
        except HoldfastError as error:
            self._observer.trouble(error.message)
        finally:
            self._observer.ended(job, seconds)

    async def _wait(self, job: Job) -> float | None:
        """Return the seconds until the next try; None when later tries are left to the sweeps."""
        check = job.check
        if check is None or check.next_at is None or not 1 <= check.tries <= len(FIRST_RETRY_WAITS):
            return None
        if check.tries == 1:
            self._observer.trouble(f"the outputs of {job.job_id} cannot be seen: {check.reason}")
        return max(0.0, (check.next_at - await self._registry.now()).total_seconds())

    async def _validate(self, job: Job) -> Job:
        """Return the job as it is afterwards. Jobs whose outputs this worker never sees are left to other
        workers, and the first of them is reported."""
        async with self._validation.slots:
            try:
                validator, why = await self._validation.open()
                if why is not None and job.spec.outputs is not None and job.spec.outputs.store:
                    return await validator.report_trouble(job, why)
                if (why := validator.unreachable_reason(job)) is not None:
                    if not self._reported:
                        self._reported = True
                        self._observer.trouble(
                            f"the outputs of {job.job_id} are left for other workers to validate: {why}"
                        )
                    return job
                failpoint("worker.validation_begun")
                return await validator.validate(job)
            except HoldfastError as error:
                self._observer.trouble(error.message)
                return job

    async def sweep(self) -> None:
        """Validate what is due, about every half a minute, until cancelled."""
        try:
            await self._validation.sweep_forever(self._sweep)
        except Denied as error:
            self._observer.trouble(f"the outputs of other workers' jobs are left to other workers: {error}")

    async def _sweep(self) -> None:
        try:
            if await self._validation.any_due():  # otherwise the output store stays closed
                validator, _ = await self._validation.open()
                while await validator.sweep(limit=SWEEP_JOBS) == SWEEP_JOBS:
                    pass
        except Denied:
            raise
        except Exception as error:
            self._observer.trouble(f"outputs could not be validated: {error}")
