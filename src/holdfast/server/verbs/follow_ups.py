"""Follow-ups: jobs that a worker enqueues as it completes one. They pass the same checks as an enqueue."""

from collections import Counter
from collections.abc import Sequence
from copy import copy

from holdfast.core.access import Scope
from holdfast.core.derived_ids import follow_up_id
from holdfast.core.errors import Denied, Exhausted, HoldfastError
from holdfast.core.limits import check_id
from holdfast.ports import Grant, JobRequest
from holdfast.server import admission
from holdfast.server.calls import current_principal
from holdfast.server.context import ServerContext


async def follow_ups_of(
    context: ServerContext, grant: Grant, requests: Sequence[JobRequest]
) -> tuple[JobRequest, ...]:
    """Return the follow-ups as they are enqueued, or raise the error that refuses their completion."""
    checked: list[JobRequest] = []
    for n, request in enumerate(requests):
        try:
            checked.append(await _checked(context, request))
        except HoldfastError as error:
            raise _not_ended(error, f"follow_ups[{n}]: {error.message}") from error
    await _admit(context, grant, checked)
    return tuple(checked)


async def _checked(context: ServerContext, request: JobRequest) -> JobRequest:
    """Return the follow-up, if the caller may enqueue it; the scope `work` is enough for that."""
    principal, spec = current_principal.get(), request.spec
    if not principal.may(Scope.WORK, spec.queue, spec.region):
        raise Denied(f"This key does not reach queue {spec.queue} for a follow-up.")
    admission.check_not_linked(principal, spec)
    admission.check_names(principal, request.job_id, spec)
    return await context.outputs.with_store(request)


async def _admit(context: ServerContext, grant: Grant, requests: Sequence[JobRequest]) -> None:
    """Raise `Exhausted` if a queue would become too long, unless this is a repeat: then the jobs exist."""
    for queue, count in Counter(check_id(one.spec.queue, "queue") for one in requests).items():
        try:
            await context.queue_limit.admit(queue, count)
        except Exhausted as error:
            job_id, token = grant.job_id, grant.fencing_token
            ids = [follow_up_id(job_id, token, n) for n in range(len(requests))]
            if None in await context.registry.status_many(ids):
                raise _not_ended(error, error.message) from error


def _not_ended(error: HoldfastError, message: str) -> HoldfastError:
    """Return the error with this message, and the advice that the job has not ended."""
    error = copy(error)
    error.message, error.args = message, (message,)
    error.advice += " The job has not ended: complete it without this follow-up, or with others."
    return error
