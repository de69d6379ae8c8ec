"""report_validation and complete_validation: the progress and the verdict of a validation."""

from collections.abc import Sequence

from holdfast.core.errors import Invalid
from holdfast.core.job import Job
from holdfast.core.lifecycle import CompleteValidation, ReportValidation
from holdfast.core.limits import ATTRIBUTES_BYTES_MAX, OUTPUTS_NAMED_MAX, check_actor, clip
from holdfast.core.outputs import Output, ValidationResult
from holdfast.core.spec import check_struct, check_value
from holdfast.core.state import State
from holdfast.registry.commit_queue import CommitQueue


async def report_validation(
    commits: CommitQueue,
    job_id: str,
    *,
    actor: str,
    version: int | None = None,
    done: int = 0,
    total: int = 0,
    trouble: str | None = None,
) -> Job:
    """Report the progress of the validation, or why the outputs could not be seen."""
    command = ReportValidation(
        actor=check_actor(actor), version=version, done=done, total=total, trouble=trouble
    )
    return await commits.execute(job_id, check_struct(command))


async def complete_validation(
    commits: CommitQueue,
    job_id: str,
    found: ValidationResult = ValidationResult(),
    *,
    actor: str,
    op_id: str | None = None,
    evidence: Sequence[Output] = (),
    version: int | None = None,
    override: State | None = None,
    reason: str | None = None,
) -> Job:
    """Complete the validation by its result, or by an operator's override with a reason."""
    if len(evidence) > OUTPUTS_NAMED_MAX:
        raise Invalid(f"At most {OUTPUTS_NAMED_MAX} outputs are listed one by one; store a report.")
    command = CompleteValidation(
        op_id=commits.op_id_or_new(op_id),
        actor=check_actor(actor),
        found=check_struct(found),
        evidence=tuple(map(check_struct, evidence)),
        version=version,
        override=override,
        reason=clip(reason) if reason else None,
    )
    check_value([found, evidence], "What was found", ATTRIBUTES_BYTES_MAX)
    return await commits.execute(job_id, command)
