"""Access: which jobs the caller of a verb may know of, in whose name it acts, and what it is shown."""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.access import Principal, Scope
from holdfast.core.derived_ids import derived_id
from holdfast.core.errors import Conflict, Denied
from holdfast.core.job import Job
from holdfast.core.visibility import can_see_all, submitter
from holdfast.ports import JobRequest, Registry
from holdfast.registry.local import LocalRegistry
from holdfast.server import admission
from holdfast.server.call_records import in_caller_trace
from holdfast.server.calls import current_principal
from holdfast.server.context import ServerContext
from holdfast.wire.responses import JobResponse

TAKEN = "A request_id or job_id is taken already, by another caller."
OTHERS_MADE = " Other jobs of the same call may have been made."


def requested_id(request: JobRequest) -> str | None:
    """Return the id that the job will have, if the request determines it."""
    if request.request_id is None:
        return request.job_id
    return derived_id(request.spec.queue, request.request_id)


async def all_made(registry: Registry, requests: Sequence[JobRequest]) -> bool:
    """Whether all of these are repeats: their jobs exist already."""
    ids = list(map(requested_id, requests))
    known_ids = [one for one in ids if one is not None]
    return len(known_ids) == len(ids) and None not in await registry.status_many(known_ids)


async def visible_conflict(registry: Registry, error: Conflict, *, many: bool = False) -> Conflict:
    """Return the conflict; of a job that the caller may not read, it says only that the id is taken."""
    [job] = await registry.status_many([error.job_id]) if error.job_id else [None]
    readable = error.job_id is None or (job is not None and admission.may_read(current_principal.get(), job))
    return error if readable else _taken(many=many)


def check_readable(job: Job, *, many: bool = False) -> Job:
    """Return the job that an enqueue made or repeated; `Conflict` if the caller may not read it. A repeat
    may be of a job of another key: to return it would reveal that its payload is the same."""
    if not admission.may_read(current_principal.get(), job):
        raise _taken(many=many)
    return job


def _taken(*, many: bool) -> Conflict:
    return Conflict(TAKEN + OTHERS_MADE if many else TAKEN)


async def find(registry: Registry, job_id: str) -> Job:
    """Return the job of this id, if the caller may know of it; else `NotFound`."""
    [job] = await registry.status_many([job_id]) if job_id else [None]
    return admission.find(current_principal.get(), job, job_id)


def actor_of(given: str) -> str:
    """Return in whose name the caller acts: its key's, or without keys the `given` one."""
    principal = current_principal.get()
    return principal.actor if principal.key_id is not None or not given else given


def job_response(job: Job) -> JobResponse:
    """Return the job as the caller may see it."""
    return JobResponse(admission.visible_job(current_principal.get(), job))


async def prepare(context: ServerContext, request: JobRequest) -> JobRequest:
    """Return the request as it is enqueued: in the caller's name and trace, with its promise in the output
    store. `Denied` when the queue is out of the caller's reach."""
    principal = current_principal.get()
    admission.check_queue(principal, Scope.SUBMIT, request.spec.queue, request.spec.region)
    if principal.key_id is not None:
        request = replace(request, submitted_by=admission.submitter(principal))
        admission.check_not_linked(principal, request.spec)
    return in_caller_trace(await context.outputs.with_store(request))


def require_scope_everywhere(scope: Scope) -> None:
    """Raise `Denied` unless the caller has this scope for the whole store."""
    admission.require_scope(current_principal.get(), scope)
    if not current_principal.get().everywhere:
        raise Denied("This key does not reach every queue and region.")


JOBS, FEED = "jobs", "feed"


def log_of(job_id: str) -> str:
    """Return the scope of the cursors of this job's log."""
    return f"log/{job_id}"


def history_of(job_id: str) -> str:
    """Return the scope of the cursors of this job's history."""
    return f"history/{job_id}"


class Cursors:
    """Seals the cursors that are sent to a caller who does not see everything, and opens those it sends
    back: a position among all jobs, or in the log of all, tells how many others there are. A cursor is good
    only for the key and the listing or log that it was made for."""

    def __init__(self, registry: LocalRegistry) -> None:
        self._registry = registry

    async def seal(self, principal: Principal, what: str, cursor: str) -> str:
        """Return the cursor as this caller may have it."""
        if can_see_all(principal):
            return cursor
        return await self._registry.seal_cursor(cursor, holder=f"{submitter(principal)}/{what}")

    async def open(self, principal: Principal, what: str, text: str | None) -> str | None:
        """Return the cursor in what this caller sent; `Invalid` when it was not made for it."""
        if text is None or can_see_all(principal):
            return text
        return await self._registry.unseal_cursor(text, holder=f"{submitter(principal)}/{what}")
