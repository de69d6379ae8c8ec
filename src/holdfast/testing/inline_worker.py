"""The inline worker: it runs ready jobs in this process, on virtual time, and returns what it did."""

import asyncio
import traceback
from collections import Counter
from collections.abc import Coroutine
from datetime import datetime
from threading import Lock
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.ports import Grant, Ids, JobFilter, JobPage
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.app import App
from holdfast.sdk.output_store import lazy_outputs
from holdfast.system import machine_name
from holdfast.testing.inline_executor import HandlerObserver, InlineExecutor
from holdfast.testing.shared_store import SharedStore
from holdfast.testing.virtual_time import VirtualClock, VirtualLoop
from holdfast.worker.claims import WorkerSettings
from holdfast.worker.spool import MemorySpool
from holdfast.worker.validation import WorkerValidation
from holdfast.worker.worker import Worker

ATTEMPTS_MAX = 1000


class Endless(AssertionError):
    """Jobs are run again and again without an end."""


class Ran(Struct, frozen=True):
    """A job that `drain` has run: as it is afterwards, its attempts, and the last exception of its
    handler."""

    job: Job
    attempts: int
    error: BaseException | None = None

    def __repr__(self) -> str:
        job = self.job
        return f"<{job.spec.kind} {job.job_id}: {job.state} after {_times(self.attempts)}>"

    @property
    def state(self) -> State:
        return self.job.state


class Drained(Struct, frozen=True):
    """The jobs that `drain` has run, in the order in which they began."""

    ran: tuple[Ran, ...]

    def __repr__(self) -> str:
        return f"<drained: {', '.join(map(repr, self.ran)) or 'nothing'}>"

    @property
    def jobs(self) -> list[Job]:
        return [one.job for one in self.ran]

    @property
    def attempts(self) -> int:
        """The number of attempts, of all jobs together."""
        return sum(one.attempts for one in self.ran)

    @property
    def states(self) -> list[State]:
        return [one.state for one in self.ran]

    def check(self) -> "Drained":
        """Raise `AssertionError` with the tracebacks of the handlers, unless every job has succeeded."""
        wrong = [one for one in self.ran if one.state is not State.SUCCEEDED]
        if wrong:
            raise AssertionError("\n\n".join(map(_describe, wrong)))
        return self


def _describe(one: Ran) -> str:
    job = one.job
    why = job.reason or (job.error.summary if job.error else "no reason was given")
    words = f"Job {job.job_id} ({job.spec.kind}) is {job.state} after {_times(one.attempts)}: {why}"
    if one.error is None:
        return words
    return f"{words}\n{''.join(traceback.format_exception(one.error)).rstrip()}"


def _times(attempts: int) -> str:
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"


class InlineWorker:
    """A worker of the bench that runs during `drain`, on a loop of its own."""

    def __init__(
        self,
        app: App,
        clock: VirtualClock,
        ids: Ids,
        store: SharedStore,
        owner: str,
        *,
        patience: float,
        observer: HandlerObserver | None = None,
    ) -> None:
        self._app = app
        self._clock = clock
        self._ids = ids
        self._store = store
        self._owner = owner
        self._loop = VirtualLoop(clock, patience=patience)
        self._registry = _DrainRegistry(store, ids, owner)
        self._inline = InlineExecutor(app, threads=64, observer=observer)
        self._busy = Lock()
        self._draining: asyncio.Task[Any] | None = None
        self.lost: list[str] = []

    def drain(self, *, until_idle: bool, slots: int = 1, attempts_max: int = ATTEMPTS_MAX) -> Drained:
        report = _Report(self.lost, attempts_max)
        self._run(self._drain(report, until_idle, slots))
        jobs = {job.job_id: job for job in self._store.all()}
        errors = self._inline.errors
        return Drained(tuple(Ran(jobs[one], n, errors.get(one)) for one, n in report.attempts.items()))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        if not self._busy.acquire(blocking=False):
            work.close()
            raise Invalid("This app is being drained already.")
        try:
            self._draining = self._loop.create_task(work)
            self._loop.run_until_complete(self._draining)
        finally:
            self._draining = None
            self._busy.release()

    def interrupt(self) -> None:
        if (draining := self._draining) is not None:
            self._loop.call_soon_threadsafe(draining.cancel)

    async def _drain(self, report: "_Report", until_idle: bool, slots: int) -> None:
        self._inline.errors.clear()
        while True:
            await self._registry.expire()
            while queues := self._ready_queues():
                before = report.attempts.total()
                await self._work(report, queues, slots)
                if report.attempts.total() == before:
                    break
            due = self._next_due()
            if due is None or not until_idle:
                return
            self._clock.advance_to(due)

    async def _work(self, report: "_Report", queues: tuple[str, ...], slots: int) -> None:
        worker = Worker(
            self._registry,
            WorkerSettings(owner=self._owner, queues=queues, slots=slots, drain=True, shares=False),
            report,
            clock=self._clock,
            ids=self._ids,
            executors=[self._inline],
            spool=MemorySpool(),
            validation=WorkerValidation(
                self._registry,
                lazy_outputs(self._app.url, self._app.outputs),
                report,
                clock=self._clock,
                ids=self._ids,
                machine=machine_name(),
                name=self._owner,
            ),
        )
        report.worker = worker
        self._loop.handlers = self._inline
        try:
            await worker.run()
        finally:
            self._loop.handlers = None
        report.check()

    def _ready_queues(self) -> tuple[str, ...]:
        now = self._clock.now()
        ready = (job for job in self._own() if job.state is State.QUEUED and job.ready_at <= now)
        return tuple(dict.fromkeys(job.spec.queue for job in ready))

    def _next_due(self) -> datetime | None:
        """Return the next time at which something is due for a job that has not ended."""
        now = self._clock.now()
        times = [job.due_at for job in self._own()]
        times += [job.ready_at for job in self._own() if job.state is State.QUEUED]
        return min((time for time in times if time is not None and time > now), default=None)

    def _own(self) -> list[Job]:
        kinds = self._app.jobs
        return [
            job
            for job in self._store.all()
            if not job.ended and job.spec.kind in kinds and job.spec.executor is None
        ]

    def close(self) -> None:
        loop = self._loop
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


class _DrainRegistry(LocalRegistry):
    """A registry whose listings omit jobs that are not ready or that others hold, so that a worker that
    drains does not wait for them."""

    def __init__(self, store: SharedStore, ids: Ids, owner: str) -> None:
        super().__init__(store, ids)
        self._owner = owner

    async def list_jobs(
        self,
        which: JobFilter = JobFilter(),
        *,
        after: str | None = None,
        limit: int = 100,
        newest: bool = False,
    ) -> JobPage:
        page = await super().list_jobs(which, after=after, limit=limit, newest=newest)
        now = await self.now()
        jobs = (job for job in page.jobs if job.ready_at <= now)
        return replace(page, jobs=tuple(j for j in jobs if j.owner in (None, self._owner)))


class _Report:
    """Counts attempts, and stops the worker at the limit."""

    def __init__(self, lost: list[str], attempts_max: int) -> None:
        self.attempts: Counter[str] = Counter()
        self.worker: Worker | None = None
        self._lost = lost
        self._most = attempts_max
        self._kinds: dict[str, str] = {}

    def started(self, grant: Grant) -> None:
        self.attempts[grant.job_id] += 1
        self._kinds[grant.job_id] = grant.job.spec.kind
        if self.attempts.total() == self._most and self.worker is not None:
            self.worker.leave()

    def check(self) -> None:
        if self.attempts.total() >= self._most:
            [(job_id, times)] = self.attempts.most_common(1)
            raise Endless(
                f"{self._most} attempts were made and there is no end: {times} of them at job {job_id}"
                f" ({self._kinds[job_id]}). If that is meant, give a higher attempts_max."
            )

    def ended(self, job: Job, seconds: float) -> None: ...

    def lost(self, grant: Grant, why: str) -> None:
        self._lost.append(why)

    def trouble(self, why: str) -> None: ...

    def paused(self, seconds: float, why: str) -> None: ...

    def resumed(self) -> None: ...
