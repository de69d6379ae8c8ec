"""Access: which jobs the caller of a verb may know of, in whose name it acts, and what it is shown."""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.access import Scope
from holdfast.core.errors import Conflict, Denied
from holdfast.core.job import Job
from holdfast.core.naming import derived_id
from holdfast.ports import Registry, Request
from holdfast.server import admission
from holdfast.server.calls import who
from holdfast.server.context import Context
from holdfast.server.tracing import tied
from holdfast.wire.answers import OfJob

TAKEN = "A request_id or job_id is taken already, by somebody else."
BESIDE = " Others that were asked for with it may have been made."


def id_of(asked: Request) -> str | None:
    """The id that the job will have, if the request says so."""
    if asked.request_id is None:
        return asked.job_id
    return derived_id(asked.spec.queue, asked.request_id)


async def known(registry: Registry, asked: Sequence[Request]) -> bool:
    """Whether all of these were asked for before, and have made their jobs."""
    ids = list(map(id_of, asked))
    named = [one for one in ids if one is not None]
    return len(named) == len(ids) and None not in await registry.get_many(named)


async def in_reach(registry: Registry, error: Conflict, *, many: bool = False) -> Conflict:
    """The refusal as the caller may hear it: of a job that it may not read, only that its id is taken."""
    [job] = await registry.get_many([error.job_id]) if error.job_id else [None]
    known = error.job_id is None or (job is not None and admission.reads(who.get(), job))
    return error if known else _taken(many=many)


def made(job: Job, *, many: bool = False) -> Job:
    """The job that an enqueue returns. A repeat may be of one that another key has asked for: to be given
    it would say that it was asked for in the same words, which only those may know who may read it."""
    if not admission.reads(who.get(), job):
        raise _taken(many=many)
    return job


def _taken(*, many: bool) -> Conflict:
    return Conflict(TAKEN + BESIDE if many else TAKEN)


async def find(registry: Registry, job_id: str) -> Job:
    """The job of this id, if the caller may know of it."""
    [job] = await registry.get_many([job_id]) if job_id else [None]
    return admission.find(who.get(), job, job_id)


def actor(said: str) -> str:
    """Who acts: what the key says, or without keys what the caller says."""
    principal = who.get()
    return principal.actor if principal.key_id is not None or not said else said


def shown(job: Job) -> OfJob:
    """The job, as whoever acted on it may see it."""
    return OfJob(admission.shown(who.get(), job))


async def prepared(context: Context, asked: Request) -> Request:
    """Return the request as it is made: in reach of the caller, in its name, with its promise in the output
    store, in its trace."""
    principal = who.get()
    admission.enter(principal, Scope.SUBMIT, asked.spec.queue, asked.spec.region)
    if principal.key_id is not None:
        asked = replace(asked, submitted_by=admission.submitter(principal))
        admission.check_new(principal, asked.spec)
    return tied(await context.checking.placed(asked))


def demand_everywhere(scope: Scope) -> None:
    """Raise `Denied` unless the caller has this scope for the whole store."""
    admission.demand(who.get(), scope)
    if not who.get().everywhere:
        raise Denied("This key does not reach every queue and region.")
