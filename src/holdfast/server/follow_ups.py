"""Follow-ups: jobs that a worker asks for as it completes one. They pass what an enqueue passes."""

from collections import Counter
from collections.abc import Sequence
from copy import copy

from holdfast.core.access import Scope
from holdfast.core.errors import Denied, Exhausted, HoldfastError
from holdfast.core.limits import check_id
from holdfast.core.naming import follow_up_id
from holdfast.ports import Grant, Request
from holdfast.server import admission
from holdfast.server.calls import who
from holdfast.server.context import Context


async def follow_ups_of(
    context: Context, grant: Grant, asked: Sequence[Request]
) -> tuple[Request, ...]:
    """The follow-ups as they are made, or the error that refuses the completion they came with."""
    made: list[Request] = []
    for n, request in enumerate(asked):
        try:
            made.append(await _checked(context, request))
        except HoldfastError as error:
            raise _told(error, f"follow_ups[{n}]: {error.message}") from error
    await _admit(context, grant, made)
    return tuple(made)


async def _checked(context: Context, asked: Request) -> Request:
    """The follow-up, if it might be enqueued; only that it takes the scope `work`."""
    principal, spec = who.get(), asked.spec
    if not principal.may(Scope.WORK, spec.queue, spec.region):
        raise Denied(f"This key does not reach queue {spec.queue} for a follow-up.")
    admission.check_new(principal, spec)
    admission.check_names(principal, asked.job_id, spec)
    return await context.checking.placed(asked)


async def _admit(context: Context, grant: Grant, asked: Sequence[Request]) -> None:
    """Raise `Exhausted` if a queue would become too long, unless this is a repeat: then they are there."""
    for queue, count in Counter(check_id(one.spec.queue, "queue") for one in asked).items():
        try:
            await context.depth.admit(queue, count)
        except Exhausted as error:
            job_id, token = grant.job_id, grant.fencing_token
            ids = [follow_up_id(job_id, token, n) for n in range(len(asked))]
            if None in await context.registry.get_many(ids):
                raise _told(error, error.message) from error


def _told(error: HoldfastError, words: str) -> HoldfastError:
    """The error, and that the job has not ended by it."""
    told = copy(error)
    told.message, told.args = words, (words,)
    told.advice = (
        f"{error.advice} The job has not ended: complete it without this follow-up, or with others."
    )
    return told
