"""The simulated validator: it validates outputs as the product does, and in wrong ways."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random  # noqa: TID251  # seeded: the same chance every time

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.job import Job
from holdfast.core.outputs import OutputPromise, ValidationResult
from holdfast.core.spec import Spec
from holdfast.core.state import UNSUCCESSFUL, State
from holdfast.outputs.managed import validate_named
from holdfast.outputs.resume_chain import load_resume_chain
from holdfast.outputs.validator import Validator
from holdfast.ports import Clock, Ids, JobFilter, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.testing.simulation.actors import Actor
from holdfast.testing.simulation.output_store import STORE, FakeOutputStore, OutputsConnection

OPEN = JobFilter(states=(State.VALIDATING, State.PARTIAL_SUCCESS, *sorted(UNSUCCESSFUL)))
CACHED = 3
ENDS = (State.SUCCEEDED, State.FAILED, State.PARTIAL_SUCCESS, State.QUEUED)


class SimulatedValidator(Actor):
    """A validator that sweeps as every worker and server does. During faults it also completes validations
    with old results, overrides verdicts, resumes jobs with missing outputs, and reuses outputs."""

    def __init__(
        self,
        name: str,
        registry: LocalRegistry,
        clock: Clock,
        ids: Ids,
        chance: Random,
        *,
        output_store: FakeOutputStore,
        outputs: OutputsConnection,
    ) -> None:
        super().__init__(name, registry, clock, ids, chance)
        self._output_store = output_store
        self._outputs = outputs
        self._validator = Validator(
            registry,
            outputs,
            machine=None,
            name=name,
            clock=clock,
        )

    async def run(self, busy: Callable[[], bool]) -> None:
        while True:
            await self.clock.sleep(self.chance.uniform(0.3, 2.0))
            with suppress(HoldfastError):
                await self._turn(busy=busy())

    async def _turn(self, *, busy: bool) -> None:
        draw = self.chance.random()
        if draw < 0.2:
            await self._validator.sweep(limit=self.chance.randint(1, 5))
            return
        if busy and draw < 0.3:
            await self._reuse(self.chance.randrange(CACHED))
            return
        if busy and self.chance.random() < 0.3:
            self._output_store.corrupt(self.chance)
        listed = (await self.registry.list_jobs(OPEN, limit=50)).jobs
        jobs = tuple(job for job in listed if job.spec.outputs is not None)
        if not busy:
            jobs = tuple(job for job in jobs if job.state is State.VALIDATING)
        if not jobs:
            return
        job = self.chance.choice(jobs)
        if not busy or draw < 0.6:
            await self._validator.validate(job)  # also when it is not due
        elif draw < 0.8:
            asyncio.get_running_loop().create_task(self._complete_late(job))
        elif draw < 0.85:
            await self._override(job)
        elif job.resumable:
            await self._resume(job)

    async def _complete_late(self, job: Job) -> None:
        """Validate without a report, wait, and complete the validation with the old result."""
        try:
            family = await load_resume_chain(self.registry, job)
            names = job.spec.outputs.names if job.spec.outputs else ()
            seen = [await validate_named(self._outputs, family.owners, name) for name in names]
        except HoldfastError:
            return
        await self.clock.sleep(self.chance.uniform(0, 6))
        lacking = tuple(output.name for output in seen if output.missing is not None)
        found = ValidationResult(verified=len(seen) - len(lacking), missing=len(lacking), names=lacking)
        op_id = self.ids.new()
        for _ in range(self.chance.randint(1, 2)):
            await self.retry(
                lambda: self.registry.complete_validation(
                    job.job_id,
                    found,
                    actor=f"validator:{self.name}",
                    op_id=op_id,
                    evidence=seen,
                    version=job.version,
                )
            )

    async def _override(self, job: Job) -> None:
        op_id, end = self.ids.new(), self.chance.choice(ENDS)
        actor = self.chance.choice(("user:ops", f"validator:{self.name}"))
        await self.retry(
            lambda: self.registry.complete_validation(
                job.job_id, actor=actor, op_id=op_id, override=end, reason="checked by hand"
            )
        )

    async def _resume(self, job: Job) -> None:
        if job.found is None or not job.found.names:
            return
        lacking = OutputPromise(names=job.found.names, store=STORE)
        names = (self.ids.new(), self.ids.new(), "again")
        again = self.chance.random() < 0.3
        for _ in range(self.chance.randint(1, 3)):
            resume_id = self.chance.choice(names)
            await self.retry(partial(self._resume_as, job.job_id, lacking, resume_id, again=again))

    async def _resume_as(self, job_id: str, lacking: OutputPromise, resume_id: str, *, again: bool) -> Job:
        return await self.registry.resume(job_id, lacking, actor="user:ops", resume_id=resume_id, again=again)

    async def _reuse(self, number: int) -> None:
        """Enqueue a job whose outputs all exist already; sometimes that is not true."""
        promise = OutputPromise(names=("a", "b"), store=STORE)
        spec = Spec(payload=msgspec.Raw(b"%d" % number), outputs=promise, promised_outputs=2)
        lacks = int(self.chance.random() < 0.2)
        found = ValidationResult(verified=2 - lacks, missing=lacks, reused=2 - lacks)
        request = JobRequest(spec=spec, job_id=f"cached-{number}", found=found)
        await self.retry(lambda: self.registry.enqueue(request, actor=f"validator:{self.name}"))
