"""judge: the verdict on promised outputs; look: what is said while somebody looks for them."""

from collections.abc import Sequence

from holdfast.core.errors import Invalid
from holdfast.core.job import Job
from holdfast.core.lifecycle import Judge, Look
from holdfast.core.limits import ATTRIBUTES_BYTES_MAX, OUTPUTS_NAMED_MAX, check_actor, clip
from holdfast.core.outputs import Found, Output
from holdfast.core.spec import check_struct, check_value
from holdfast.core.state import State
from holdfast.registry.line import Line


async def look(
    line: Line,
    job_id: str,
    *,
    actor: str,
    version: int | None = None,
    done: int = 0,
    total: int = 0,
    trouble: str | None = None,
) -> Job:
    """Say that one looks, how far one is, or why nothing could be seen."""
    command = Look(
        actor=check_actor(actor), version=version, done=done, total=total, trouble=trouble
    )
    return await line.settle(job_id, check_struct(command))


async def judge(
    line: Line,
    job_id: str,
    found: Found = Found(),
    *,
    actor: str,
    op_id: str | None = None,
    evidence: Sequence[Output] = (),
    version: int | None = None,
    override: State | None = None,
    reason: str | None = None,
) -> Job:
    """What was found decides, or an operator who says why."""
    if len(evidence) > OUTPUTS_NAMED_MAX:
        raise Invalid(f"At most {OUTPUTS_NAMED_MAX} outputs are told one by one; keep a report.")
    command = Judge(
        op_id=line.op(op_id),
        actor=check_actor(actor),
        found=check_struct(found),
        evidence=tuple(map(check_struct, evidence)),
        version=version,
        override=override,
        reason=clip(reason) if reason else None,
    )
    check_value([found, evidence], "What was found", ATTRIBUTES_BYTES_MAX)
    return await line.settle(job_id, command)
