"""The validator: scans for the promised outputs of jobs and gives the verdict, or reports why it cannot.

A validator reports its progress every few seconds, which keeps other validators away from the job. When
no report has come for a minute, another starts anew; the stopped validation does not count as a failed
try. A verdict counts only if the job has not got another one in the meantime.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime

from holdfast.core.errors import Conflict, Denied, NotFound, Unavailable
from holdfast.core.job import Job
from holdfast.core.limits import ID_CHARACTERS_MAX
from holdfast.core.outputs import VALIDATION_TIMEOUT, is_being_validated, validation_due_at
from holdfast.core.state import UNSUCCESSFUL, State
from holdfast.outputs.resume_chain import ResumeChain, load_resume_chain
from holdfast.outputs.scan import (
    OutputScan,
    ScanFailed,
    ScanResult,
    ScanStopped,
    ran_at,
    store_mismatch,
)
from holdfast.outputs.unvalidated_jobs import UnvalidatedJobs, awaits_validation
from holdfast.ports import Clock, JobFilter, Outputs, Registry
from holdfast.system import SystemClock

PROGRESS_SECONDS = 2.0
"""How often a validator reports its progress."""

SWEPT_STATES = (State.VALIDATING, State.PARTIAL_SUCCESS)
_RESUMED_MAX = 100
"""How many of the jobs that a job resumes, directly or not, are validated with it."""
_PAGE = 200

Progress = Callable[[int, int], None]


async def swept_states(registry: Registry) -> tuple[State, ...]:
    """Return the swept states that any job is in. Stores keep these counts, where a listing may have to read
    every job to find none. A caller that may not count gets all the states."""
    try:
        counts = await registry.counts()
    except Denied:
        return SWEPT_STATES
    return tuple(state for state in SWEPT_STATES if counts.get(state))


class Validator:
    """Validates outputs in the output store `outputs`, and plain paths on `machine` (None: no plain paths).
    With `queues`, plain paths are validated only for jobs of these: the worker of a job reports where it
    ran, and a worker that is trusted in one queue must learn nothing about the files of other queues."""

    def __init__(
        self,
        registry: Registry,
        outputs: Outputs | None,
        *,
        machine: str | None,
        name: str,
        on_behalf_of: str | None = None,
        queues: Collection[str] | None = None,
        clock: Clock | None = None,
        unvalidated: UnvalidatedJobs | None = None,
    ) -> None:
        self._registry = registry
        self._outputs = outputs
        self._machine = machine
        self._queues = queues
        self._actor = validator_actor(name, on_behalf_of)
        self._clock = clock or SystemClock()
        self._cursors: dict[State, str | None] = dict.fromkeys(SWEPT_STATES)
        self._turns = deque(SWEPT_STATES)
        self._unvalidated = unvalidated or UnvalidatedJobs(registry)

    def unreachable_reason(self, job: Job) -> str | None:
        """Return why this validator cannot see the outputs of the job, or None if it can."""
        promise = job.spec.outputs
        if promise is None:
            return "Its outputs are not on record; only the client that submitted it can validate them."
        if (why := store_mismatch(promise, self._outputs)) is not None:
            return why
        return self._files_unreachable_reason(job) if promise.files else None

    def _files_unreachable_reason(self, job: Job) -> str | None:
        queue = job.spec.queue
        if self._queues is not None and queue not in self._queues:
            return f"Its outputs are files; only a worker that runs commands of queue {queue} can see them."
        place = ran_at(job)
        if place is None:
            return "It is not on record on which machine and in which folder it ran; its outputs are there."
        if place[0] != self._machine:
            return f"Its outputs are files on {place[0]}, where it ran; only a worker there can see them."
        return None

    async def validate(self, job: Job, *, progress: Progress | None = None) -> Job:
        """Validate the outputs of the job; return the job with the verdict, or without one if its outputs
        cannot be seen. A job that another validator works on, or has finished, stays as it is. The job
        that this one resumes is validated as well. Only errors of the registry are raised."""
        validated_job, ours = await self._validate(job, progress)
        if ours:
            with suppress(NotFound, Unavailable):  # a sweep validates it again anyway
                await self._validate_originals(validated_job)
        return validated_job

    async def _validate_originals(self, job: Job) -> None:
        """Validate the job that this one resumes, and those before it, each once: a client may have made
        jobs that resume one another in a circle."""
        ours, seen = True, {job.job_id}
        while ours and job.found is not None and job.found.verified:
            original = job.spec.resumed_from
            if original is None or original in seen or len(seen) >= _RESUMED_MAX:
                return
            seen.add(original)
            job = await self._registry.status(original)
            if not can_validate(job):
                return
            job, ours = await self._validate(job, None)

    async def sweep(self, *, limit: int = 100) -> int:
        """Validate at most `limit` jobs that are due and whose outputs can be seen here; return how many.

        For a job that no validator can see, the reason is recorded once. Each sweep goes on where the last
        one ended, so that it reads one page however many jobs there are, and no job waits forever. An
        error with one job is raised after the others had their turn. Of the jobs that ended without
        success, those that this process knows are validated (`UnvalidatedJobs`).
        """
        now = await self._registry.now()
        validated = 0
        failures: list[Exception] = []
        self._turns.rotate()  # so that jobs of one state never take the whole limit of every sweep
        present = await swept_states(self._registry)
        for state in self._turns:
            if state not in present:
                continue
            page = await self._registry.list_jobs(
                JobFilter(states=(state,)), after=self._cursors[state], limit=_PAGE
            )
            taken, whole = await self._validate_due(page.jobs, now, limit - validated, failures)
            validated += taken
            if whole:
                self._cursors[state] = page.next
        if validated < limit:
            ended = await self._unvalidated.page()
            validated += (await self._validate_due(ended, now, limit - validated, failures))[0]
        if failures:
            raise failures[0]
        return validated

    async def _validate_due(
        self, jobs: Sequence[Job], now: datetime, limit: int, failures: list[Exception]
    ) -> tuple[int, bool]:
        """Return how many jobs were validated, and whether all of them had their turn."""
        validated = 0
        for job in jobs:
            if validated >= limit:
                return validated, False
            if not is_due(job, now):
                continue
            try:
                validated += await self._validate_or_report(job, now)
            except NotFound:
                continue
            except Unavailable:
                raise
            except Exception as error:
                failures.append(error)
        return validated, True

    async def _validate_or_report(self, job: Job, now: datetime) -> bool:
        why = self.unreachable_reason(job)
        if why is None:
            await self.validate(job)
            return True
        if job.updated_at + VALIDATION_TIMEOUT <= now:
            await self.report_unreachable(job, why)
            self._unvalidated.drop(job.job_id)
        return False

    async def report_unreachable(self, job: Job, why: str) -> Job:
        """Record why the outputs cannot be seen, unless a reason is recorded already."""
        reported = job.check is not None and job.check.reason is not None
        waits = job.state is State.VALIDATING or job.unvalidated
        if not waits or job.spec.outputs is None or reported:
            return job
        return await self.report_trouble(job, why)

    async def _validate(self, job: Job, progress: Progress | None) -> tuple[Job, bool]:
        """Return the job, and whether this validator gave the verdict."""
        if self.unreachable_reason(job) is not None:
            return job, False
        total = job.spec.promised_outputs
        try:
            job = await self._registry.report_validation(
                job.job_id, actor=self._actor, version=job.version, total=total
            )
        except Conflict:
            return await self._registry.status(job.job_id), False
        scanning = _Progress(total, progress)
        try:
            chain = await self._resume_chain(job)
            async with self._reporting(job, scanning):
                result = await self._scan(job).run(chain, on_progress=scanning.update)
        except ScanFailed as error:
            return await self.report_trouble(job, str(error)), False
        except _Superseded:
            return await self._registry.status(job.job_id), False
        assert result is not None  # only a scan that stops at the first missing output returns None
        return await self._complete(job, result)

    async def _resume_chain(self, job: Job) -> ResumeChain:
        promise = job.spec.outputs
        named = promise is not None and (promise.files or promise.names)
        return await load_resume_chain(self._registry, job) if named else ResumeChain()

    def _scan(self, job: Job) -> OutputScan:
        promise = job.spec.outputs
        assert promise is not None  # else `unreachable_reason` has stopped us
        return OutputScan(self._outputs, machine=self._machine, job_id=job.job_id, promise=promise)

    async def _complete(self, job: Job, result: ScanResult) -> tuple[Job, bool]:
        try:
            validated_job = await self._registry.complete_validation(
                job.job_id,
                result.found,
                actor=self._actor,
                evidence=result.evidence,
                version=job.version,
            )
        except Conflict:
            return await self._registry.status(job.job_id), False
        return validated_job, True

    async def report_trouble(self, job: Job, reason: str) -> Job:
        """Record in the job why its outputs cannot be seen; return the job as it is afterwards."""
        try:
            return await self._registry.report_validation(
                job.job_id, actor=self._actor, version=job.version, trouble=reason
            )
        except Conflict:
            return await self._registry.status(job.job_id)

    @asynccontextmanager
    async def _reporting(self, job: Job, scanning: "_Progress") -> AsyncIterator[None]:
        reports = asyncio.create_task(self._report_progress(job, scanning))
        try:
            yield
        finally:
            reports.cancel()
            with suppress(asyncio.CancelledError):
                await reports

    async def _report_progress(self, job: Job, scanning: "_Progress") -> None:
        while True:
            await self._clock.sleep(PROGRESS_SECONDS)
            try:
                await self._registry.report_validation(
                    job.job_id,
                    actor=self._actor,
                    version=job.version,
                    done=scanning.done,
                    total=scanning.total,
                )
            except Unavailable:
                continue
            except Conflict:
                scanning.superseded = True
                return


class _Superseded(ScanStopped):
    """Another validator has finished the job or works on it: our reports were missing for too long."""


class _Progress:
    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total = total
        self.done = 0
        self.superseded = False
        self._progress = progress

    def update(self, done: int) -> None:
        self.done = done
        if self.superseded:
            raise _Superseded
        if self._progress is not None:
            self._progress(done, self.total)


def validator_actor(name: str, on_behalf_of: str | None = None) -> str:
    """Return the actor of a validator, with the client on whose behalf it validates, if any."""
    asked = f" for {on_behalf_of}" if on_behalf_of else ""
    return f"validator:{name}{asked}"[:ID_CHARACTERS_MAX]


def can_validate(job: Job) -> bool:
    """Return whether the job may be validated: it is done, has not succeeded, and promises outputs."""
    return job.state in SWEPT_STATES or (job.state in UNSUCCESSFUL and job.spec.outputs is not None)


def is_due(job: Job, now: datetime) -> bool:
    """Return whether the job is to be validated now, and no validator works on it."""
    if job.state not in SWEPT_STATES and not awaits_validation(job):
        return False
    check = job.check
    if check is not None and is_being_validated(check, now):
        return False
    return validation_due_at(job.updated_at, check, now) <= now
