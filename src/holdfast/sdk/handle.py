"""The handle of one job, for the code that enqueued it."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from holdfast.core.durations import Duration
from holdfast.core.errors import HoldfastError, Invalid
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.ports import EnqueuedJobs
from holdfast.runner.call import Call
from holdfast.runner.places import readable
from holdfast.runner.signature import located

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class JobFailed(HoldfastError):
    """The job has ended without success. `job` says how; Python prints the traceback of the handler, too."""

    advice = "Read the reason; holdfast why says what to do."

    def __init__(self, job: Job) -> None:
        reason = (job.reason or _missing(job) or "no reason was given").rstrip(".")
        super().__init__(
            f"Job {job.job_id} ({job.spec.kind}) ended {job.state}: {reason}."
            f" What to do: holdfast why {job.job_id}",
            job_id=job.job_id,
            version=job.version,
        )
        self.job = job
        if job.error is not None and job.error.traceback is not None:
            self.add_note(f"In the worker:\n{job.error.traceback}")

    def __reduce__(self) -> tuple[type["JobFailed"], tuple[Job]]:
        return JobFailed, (self.job,)


class JobClient(Protocol):
    """What handles and job functions need of a client; an `AsyncClient`."""

    async def create_jobs(
        self, calls: Sequence[Call[object]], *, connection: object = None
    ) -> EnqueuedJobs: ...

    async def create_jobs_on(self, connection: object, calls: Sequence[Call[object]]) -> EnqueuedJobs: ...

    async def status(self, job_id: str) -> Job: ...

    async def wait(self, job_id: str, timeout: Duration | None = None) -> Job: ...  # noqa: ASYNC109

    async def wait_result(self, job_id: str, timeout: Duration | None = None) -> Job: ...  # noqa: ASYNC109

    async def cancel(self, job_id: str, *, hard: bool = False, reason: str | None = None) -> Job: ...


class ClientAccess(Protocol):
    """Access to a client, for callers that block and for coroutines."""

    def call(self, work: Callable[[JobClient], Awaitable[T]]) -> T: ...

    async def call_async(self, work: Callable[[JobClient], Awaitable[T]], *, here: bool = False) -> T:
        """With `here`, the work runs on the caller's own loop."""
        ...


class Handle(Generic[R_co]):
    """A job that was enqueued. Every method has two forms: one blocks, one is for coroutines."""

    def __init__(
        self,
        job: Job,
        result_type: Any,  # noqa: ANN401
        access: ClientAccess,
        *,
        created: bool = True,
    ) -> None:
        self.job = job
        """The job as it was when it was enqueued; `refresh` returns it as it is now."""
        self.created = created
        """Whether this call made the job; False where one had made it before under this `request_id` or
        `job_id`: then nothing was enqueued, and the job may have ended long ago."""
        self._result_type = result_type
        self._access = access

    def __repr__(self) -> str:
        return f"<handle of job {self.job_id} ({self.job.spec.kind})>"

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return self.job.job_id

    def refresh(self) -> Job:
        """Return the job as it is now."""
        return self._access.call(lambda client: client.status(self.job_id))

    async def refresh_async(self) -> Job:
        """As `refresh`, for coroutines."""
        return await self._access.call_async(lambda client: client.status(self.job_id))

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait until the job has ended, and return what the handler returned.

        `JobFailed` when it did not succeed; `TimeoutError` when that takes longer than `timeout`, which
        does not affect the job.
        """
        job = self._access.call(lambda client: client.wait_result(self.job_id, timeout))
        return cast("R_co", result_of(job, self._result_type))

    async def result_async(self, timeout: Duration | None = None) -> R_co:  # noqa: ASYNC109
        """As `result`, for coroutines."""
        job = await self._access.call_async(lambda client: client.wait_result(self.job_id, timeout))
        return cast("R_co", result_of(job, self._result_type))

    def cancel(self, *, hard: bool = False, reason: str | None = None) -> Job:
        """Ask the job to stop; with `hard`, end it now. Returns the job after that."""
        return self._access.call(lambda client: client.cancel(self.job_id, hard=hard, reason=reason))

    async def cancel_async(self, *, hard: bool = False, reason: str | None = None) -> Job:
        """As `cancel`, for coroutines."""
        return await self._access.call_async(
            lambda client: client.cancel(self.job_id, hard=hard, reason=reason)
        )


def _missing(job: Job) -> str | None:
    found = job.found
    if found is None or not found.missing:
        return None
    names = ", ".join(found.names)
    return f"{found.missing:,} of its {job.spec.promised_outputs:,} outputs are missing: {names}"


def result_of(job: Job, result_type: object = Any) -> object:
    """Return the result of an ended job, as its declared type; `JobFailed` unless it succeeded. A job for
    which nothing ran, because all its outputs existed, has returned None."""
    if job.state is not State.SUCCEEDED:
        raise JobFailed(job)
    cached = job.found is not None and job.claim_op_id is None
    try:
        return readable(None if cached else job.result, result_type)
    except msgspec.ValidationError as error:
        if cached:
            raise Invalid(
                f"Nothing was run for job {job.job_id}, so {job.spec.kind} returned nothing: all its outputs"
                " existed already. Read the outputs instead.",
                job_id=job.job_id,
                version=job.version,
            ) from error
        raise Invalid(
            f"The result of job {job.job_id} is not what {job.spec.kind} is declared to return here:"
            f" {located(str(error))}.",
            job_id=job.job_id,
            version=job.version,
        ) from error


def handles(jobs: EnqueuedJobs, result_types: Iterable[Any], access: ClientAccess) -> list[Handle[Any]]:
    """Return the handles of jobs that were enqueued together."""
    existed = jobs.existed
    return [
        Handle(job, result_type, access, created=job.job_id not in existed)
        for job, result_type in zip(jobs, result_types, strict=False)
    ]
