"""The validator: looks for the promised outputs of jobs and judges them, or says why it cannot see them.

Whoever looks says so every few seconds, which keeps the others away and shows how far it is. One that
dies or is stopped says nothing more, and a minute later somebody else begins anew: to be stopped is no
try that failed. What is found counts only if nobody has judged the job meanwhile.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime

from holdfast.core.errors import Conflict, NotFound, Unavailable
from holdfast.core.job import Job
from holdfast.core.limits import ID_CHARACTERS_MAX
from holdfast.core.outputs import LOOK, due_at, looks
from holdfast.core.state import UNSUCCESSFUL, State
from holdfast.outputs.examining import (
    Examination,
    Examined,
    LeftOff,
    Unseen,
    elsewhere,
    seen_at,
)
from holdfast.outputs.family import Family, family_of
from holdfast.outputs.unverified import Unverified, is_open
from holdfast.ports import Clock, Filter, Outputs, Registry
from holdfast.system import SystemClock

SIGN_SECONDS = 2.0
"""How often one who looks says how far it is."""

OPEN = (State.VALIDATING, State.PARTIAL_SUCCESS)
_RESUMED_MAX = 100
"""How far back the jobs are looked at that one resumes."""
_PAGE = 200

Progress = Callable[[int, int], None]


class Validator:
    """Judges what it can see: the outputs in the output store it was given, and plain paths on its own
    machine (`machine`; None for one that looks at no plain paths), for jobs of `queues` only if given:
    where a job ran is its worker's word, and one that may say so in its own queue is to learn nothing
    about the files of others."""

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
        unverified: Unverified | None = None,
    ) -> None:
        self._registry = registry
        self._outputs = outputs
        self._machine = machine
        self._queues = queues
        self._actor = acting(name, on_behalf_of)
        self._clock = clock or SystemClock()
        self._cursors: dict[State, str | None] = dict.fromkeys(OPEN)
        self._turns = deque(OPEN)
        self._unverified = unverified or Unverified(registry)

    def blind(self, job: Job) -> str | None:
        """Why this one cannot see the outputs of the job, or None when it can."""
        promise = job.spec.outputs
        if promise is None:
            return "Only whoever asked for this job knows its outputs, and looks for them."
        if (why := elsewhere(promise, self._outputs)) is not None:
            return why
        return self._blind_to_files(job) if promise.files else None

    def _blind_to_files(self, job: Job) -> str | None:
        queue = job.spec.queue
        if self._queues is not None and queue not in self._queues:
            return f"Its outputs are files; a worker that runs commands of queue {queue} sees them."
        place = seen_at(job)
        if place is None:
            return "Nobody said on which machine and in which folder it ran; its outputs are there."
        if place[0] != self._machine:
            return (
                f"Its outputs are files on {place[0]}, where it ran; only a worker there sees them."
            )
        return None

    async def validate(self, job: Job, *, progress: Progress | None = None) -> Job:
        """Look, and judge the job: as it is afterwards, still undecided when its outputs cannot be seen.
        A job that somebody else looks at, or has judged, stays as it is. One that resumes another has
        that one looked at as well. Only the registry's own trouble is raised."""
        judged, ours = await self._validate(job, progress)
        if ours:
            with suppress(NotFound, Unavailable):  # it is looked at again anyway
                await self._validate_originals(judged)
        return judged

    async def _validate_originals(self, job: Job) -> None:
        """Look at the job that this one resumes, and at those before it, each once: a caller may have
        made jobs that resume one another in a circle."""
        ours, seen = True, {job.job_id}
        while ours and job.found is not None and job.found.verified:
            original = job.spec.resumed_from
            if original is None or original in seen or len(seen) >= _RESUMED_MAX:
                return
            seen.add(original)
            job = await self._registry.get(original)
            if not is_judged(job):
                return
            job, ours = await self._validate(job, None)

    async def sweep(self, *, limit: int = 100) -> int:
        """Validate the jobs that are due and that this one can see, `limit` at most: how many it were.

        A job that none of us can see says why, once. Each sweep goes on where the last one ended, page
        by page, so that many jobs cost one page and none of them waits for ever. What goes wrong with a
        job is raised when the others have had their turn. Of the jobs that ended without success those
        that this process knows of are looked at (`Unverified`).
        """
        now = await self._registry.now()
        validated = 0
        failures: list[Exception] = []
        self._turns.rotate()  # so that one kind never takes all of every sweep
        for state in self._turns:
            page = await self._registry.list_jobs(
                Filter(states=(state,)), after=self._cursors[state], limit=_PAGE
            )
            taken, whole = await self._take_some(page.jobs, now, limit - validated, failures)
            validated += taken
            if whole:
                self._cursors[state] = page.next
        if validated < limit:
            ended = await self._unverified.page()
            validated += (await self._take_some(ended, now, limit - validated, failures))[0]
        if failures:
            raise failures[0]
        return validated

    async def _take_some(
        self, jobs: Sequence[Job], now: datetime, limit: int, failures: list[Exception]
    ) -> tuple[int, bool]:
        """How many were looked at, and whether each of them had its turn."""
        validated = 0
        for job in jobs:
            if validated >= limit:
                return validated, False
            if not due(job, now):
                continue
            try:
                validated += await self._take(job, now)
            except NotFound:
                continue
            except Unavailable:
                raise
            except Exception as error:
                failures.append(error)
        return validated, True

    async def _take(self, job: Job, now: datetime) -> bool:
        why = self.blind(job)
        if why is None:
            await self.validate(job)
            return True
        if job.updated_at + LOOK <= now:
            await self.tell_blind(job, why)
            self._unverified.drop(job.job_id)
        return False

    async def tell_blind(self, job: Job, why: str) -> Job:
        """Put down why nobody has seen the outputs, unless somebody has said so or is looking."""
        told = job.check is not None and job.check.reason is not None
        waits = job.state is State.VALIDATING or job.unverified
        if not waits or job.spec.outputs is None or told:
            return job
        return await self.report_trouble(job, why)

    async def _validate(self, job: Job, progress: Progress | None) -> tuple[Job, bool]:
        """The job, and whether it was judged by us."""
        if self.blind(job) is not None:
            return job, False
        total = job.spec.promised_outputs
        try:
            job = await self._registry.look(
                job.job_id, actor=self._actor, version=job.version, total=total
            )
        except Conflict:
            return await self._registry.get(job.job_id), False
        looking = _Looking(total, progress)
        try:
            family = await self._family(job)
            async with self._signs(job, looking):
                examined = await self._examination(job).examine(family, tell=looking.tell)
        except Unseen as error:
            return await self.report_trouble(job, str(error)), False
        except _Settled:
            return await self._registry.get(job.job_id), False
        assert examined is not None  # nobody asked to stop at the first that is missing
        return await self._judge(job, examined)

    async def _family(self, job: Job) -> Family:
        promise = job.spec.outputs
        named = promise is not None and (promise.files or promise.names)
        return await family_of(self._registry, job) if named else Family()

    def _examination(self, job: Job) -> Examination:
        promise = job.spec.outputs
        assert promise is not None  # whoever is blind does not begin
        return Examination(self._outputs, machine=self._machine, job_id=job.job_id, promise=promise)

    async def _judge(self, job: Job, examined: Examined) -> tuple[Job, bool]:
        try:
            judged = await self._registry.judge(
                job.job_id,
                examined.found,
                actor=self._actor,
                evidence=examined.evidence,
                version=job.version,
            )
        except Conflict:
            return await self._registry.get(job.job_id), False
        return judged, True

    async def report_trouble(self, job: Job, reason: str) -> Job:
        """Record in the job why its outputs cannot be seen; return the job as it is afterwards."""
        try:
            return await self._registry.look(
                job.job_id, actor=self._actor, version=job.version, trouble=reason
            )
        except Conflict:
            return await self._registry.get(job.job_id)

    @asynccontextmanager
    async def _signs(self, job: Job, looking: "_Looking") -> AsyncIterator[None]:
        """Signs of life, as long as the body runs."""
        signs = asyncio.create_task(self._give_signs(job, looking))
        try:
            yield
        finally:
            signs.cancel()
            with suppress(asyncio.CancelledError):
                await signs

    async def _give_signs(self, job: Job, looking: "_Looking") -> None:
        while True:
            await self._clock.sleep(SIGN_SECONDS)
            try:
                await self._registry.look(
                    job.job_id,
                    actor=self._actor,
                    version=job.version,
                    done=looking.done,
                    total=looking.total,
                )
            except Unavailable:
                continue
            except Conflict:
                looking.settled = True
                return


class _Settled(LeftOff):
    """Somebody else has judged the job, or looks at it, since we were silent for too long."""


class _Looking:
    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total = total
        self.done = 0
        self.settled = False
        self._progress = progress

    def tell(self, done: int) -> None:
        self.done = done
        if self.settled:
            raise _Settled
        if self._progress is not None:
            self._progress(done, self.total)


def acting(name: str, on_behalf_of: str | None = None) -> str:
    """The actor of a validator, and whom it looks for, when somebody asked."""
    asked = f" for {on_behalf_of}" if on_behalf_of else ""
    return f"validator:{name}{asked}"[:ID_CHARACTERS_MAX]


def is_judged(job: Job) -> bool:
    """Whether it may be looked at again: all but what has succeeded, or is not done, or promises nothing."""
    return job.state in OPEN or (job.state in UNSUCCESSFUL and job.spec.outputs is not None)


def due(job: Job, now: datetime) -> bool:
    """Whether it is time to look for the outputs of the job, and nobody does."""
    if job.state not in OPEN and not is_open(job):
        return False
    check = job.check
    if check is not None and looks(check, now):
        return False
    return due_at(job.updated_at, check, now) <= now
