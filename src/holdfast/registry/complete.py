"""complete and complete_many: owners report how their attempts ended."""

from collections.abc import Sequence

from holdfast.core.errors import HoldfastError, Invalid
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Complete, Outcome
from holdfast.core.spec import check_struct
from holdfast.ports import Completion, Grant
from holdfast.registry.line import Asked, Line


async def complete(
    line: Line, grant: Grant, outcome: Outcome, *, op_id: str | None, compensated: bool | None
) -> Job:
    """End the attempt. Only the newest owner can: anybody else is `Fenced`."""
    command = _command(grant, outcome, line.op(op_id), compensated)
    return await line.settle(grant.job_id, command)


async def complete_many(line: Line, completions: Sequence[Completion]) -> list[Job | HoldfastError]:
    """End each attempt as `complete` would; what it would raise is an answer among the others."""
    call = line.op(None)
    asked: list[Asked] = []
    refused: dict[int, Invalid] = {}
    for n, done in enumerate(completions):
        try:
            # A number behind one id names an op as well as an id of its own: 0.1 us, not 0.9.
            op_id = f"{call}.{n}" if done.op_id is None else line.op(done.op_id)
            command = _command(done.grant, done.outcome, op_id, done.compensated)
            asked.append((done.grant.job_id, command))
        except Invalid as error:
            refused[n] = error
    answers = iter(await line.settle_many(asked))
    return [refused[n] if n in refused else next(answers) for n in range(len(completions))]


def _command(grant: Grant, outcome: Outcome, op_id: str, compensated: bool | None) -> Complete:
    return Complete(
        op_id=op_id,
        token=grant.fencing_token,
        actor=f"worker:{grant.job.owner}",
        outcome=check_struct(outcome) if isinstance(outcome, Failure) else outcome,
        compensated=compensated,
    )
