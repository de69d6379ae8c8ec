"""Job requests: checked, given an id, and turned into the command that creates the job."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from holdfast.core.derived_ids import derived_id, follow_up_id
from holdfast.core.errors import Invalid
from holdfast.core.lifecycle import Enqueue
from holdfast.core.limits import (
    ATTRIBUTES_BYTES_MAX,
    BATCH_BYTES_MAX,
    ID_CHARACTERS_MAX,
    check_follow_ups,
    check_id,
    check_text,
)
from holdfast.core.outputs import ValidationResult
from holdfast.core.spec import Spec, check_spec, check_struct, check_value
from holdfast.core.trace import check_trace
from holdfast.ports import Grant, Ids, JobRequest

JOB_ID_MISMATCH = "The job to create must name the job_id that is acquired."


def with_trace(request: JobRequest, traceparent: str | None) -> JobRequest:
    """Return the request as a part of this trace, unless it has one itself."""
    if traceparent is None or request.trace_id is not None or request.traceparent is not None:
        return request
    return replace(request, traceparent=traceparent)


def enqueue_command(request: JobRequest, ids: Ids, *, actor: str) -> Enqueue:
    """Return the command that creates the requested job.

    The id of a job with a `request_id` is derived from queue and `request_id`, so that "create it once" is
    "create it if absent" in every store.
    """
    return _enqueue_command(request, ids.new, actor)


def enqueue_commands(requests: Sequence[JobRequest], ids: Ids, *, actor: str) -> list[Enqueue]:
    """Return the commands that create the requested jobs, as `enqueue_command` does; raise `Invalid` for the
    first wrong request."""
    unnamed = [1 for request in requests if request.request_id is None and request.job_id is None]
    new_id = iter(ids.many(len(unnamed))).__next__
    commands: list[Enqueue] = []
    for request in requests:
        checked = commands[-1].spec if commands else None
        commands.append(_enqueue_command(request, new_id, actor, checked))
    return commands


def _enqueue_command(
    request: JobRequest, new_id: Callable[[], str], actor: str, checked: Spec | None = None
) -> Enqueue:
    """Return the command for the request. `checked` is a spec that was checked before."""
    if request.request_id is not None and request.job_id is not None:
        raise Invalid("Give a request_id or a job_id, not both: each says which job this is.")
    if request.job_id is not None:
        job_id = op_id = check_id(request.job_id, "job_id")
    elif request.request_id is not None:
        op_id = check_id(request.request_id, "request_id")
        job_id = derived_id(check_id(request.spec.queue, "queue"), op_id)
    else:
        job_id = op_id = new_id()
    if request.submitted_by is not None:
        check_text(request.submitted_by, "submitted_by", ID_CHARACTERS_MAX)
    return _command(request, job_id, op_id, actor, request.submitted_by or actor, checked)


def create_command(request: JobRequest | None, job_id: str, ids: Ids, *, owner: str) -> Enqueue | None:
    """Return the command that creates the job of this id while acquiring it; None without a request."""
    if request is None:
        return None
    made = enqueue_command(request, ids, actor=f"worker:{owner}")
    if made.job_id != job_id:
        raise Invalid(JOB_ID_MISMATCH)
    if made.found is not None:
        raise Invalid("A job that is acquired has to run: it cannot be created with found outputs.")
    return made


def follow_up_commands(requests: Sequence[JobRequest], grant: Grant, *, actor: str) -> tuple[Enqueue, ...]:
    """Return the commands that create the follow-ups of a job, all checked; raise `Invalid`, which names
    the first wrong one. Their ids are derived from the grant, so that a repeat creates the same jobs."""
    check_follow_ups(len(requests))
    commands = []
    for n, request in enumerate(requests):
        try:
            if request.job_id is not None or request.request_id is not None:
                raise Invalid("The id of a follow-up is derived: give no job_id and no request_id.")
            if request.found is not None:
                raise Invalid("A follow-up has to run: it cannot be created with found outputs.")
            job_id = follow_up_id(grant.job_id, grant.fencing_token, n)
            commands.append(_command(request, job_id, job_id, actor, actor))
        except Invalid as error:
            raise Invalid(f"follow_ups[{n}]: {error.message}") from error
    size = sum(memoryview(command.spec.payload).nbytes for command in commands)
    if size > BATCH_BYTES_MAX:
        raise Invalid(
            f"The payloads of all follow-ups have {size:,} bytes; at most {BATCH_BYTES_MAX:,} are taken."
        )
    return tuple(commands)


def _check_result(found: ValidationResult) -> ValidationResult:
    check_value(found, "What was found", ATTRIBUTES_BYTES_MAX)
    return check_struct(found)


def _command(
    request: JobRequest, job_id: str, op_id: str, actor: str, submitted_by: str, checked: Spec | None = None
) -> Enqueue:
    spec = check_spec(request.spec, checked)
    if request.correlation_id is not None:
        check_id(request.correlation_id, "correlation_id")
    if request.trace_id is not None:
        check_id(request.trace_id, "trace_id")
    trace_id, traceparent = check_trace(request.trace_id, request.traceparent)
    return Enqueue(
        op_id=op_id,
        job_id=job_id,
        spec=spec,
        actor=actor,
        register=request.register,
        found=None if request.found is None else _check_result(request.found),
        submitted_by=submitted_by,
        correlation_id=request.correlation_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )
