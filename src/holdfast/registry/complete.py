"""complete and complete_many: owners report how their attempts ended."""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.errors import HoldfastError, Invalid
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Complete, Outcome, Success
from holdfast.core.spec import check_struct
from holdfast.ports import Completion, Grant, Request
from holdfast.registry.line import Asked, Line
from holdfast.registry.requests import follow_ups_of


async def complete(
    line: Line,
    grant: Grant,
    outcome: Outcome,
    *,
    op_id: str | None = None,
    compensated: bool | None = None,
    follow_ups: Sequence[Request] = (),
) -> Job:
    """End the attempt. Only the newest owner can: every other caller is `Fenced`."""
    completion = Completion(grant, outcome, op_id, compensated, tuple(follow_ups))
    return await line.settle(grant.job_id, _command(completion, line.op(op_id)))


async def complete_many(line: Line, completions: Sequence[Completion]) -> list[Job | HoldfastError]:
    """End each attempt as `complete` would; what it would raise is an answer among the others."""
    call = line.op(None)
    asked: list[Asked] = []
    refused: dict[int, Invalid] = {}
    for n, done in enumerate(completions):
        try:
            # A number behind one id names an op as well as an id of its own: 0.1 us, not 0.9.
            op_id = f"{call}.{n}" if done.op_id is None else line.op(done.op_id)
            asked.append((done.grant.job.job_id, _command(done, op_id)))
        except Invalid as error:
            refused[n] = error
    answers = iter(await line.settle_many(asked))
    return [refused[n] if n in refused else next(answers) for n in range(len(completions))]


def _command(done: Completion, op_id: str) -> Complete:
    grant, outcome = done.grant, done.outcome
    command = Complete(
        op_id=op_id,
        token=grant.fencing_token,
        actor=f"worker:{grant.job.owner}",
        outcome=check_struct(outcome) if isinstance(outcome, Failure) else outcome,
        compensated=done.compensated,
    )
    if done.follow_ups and isinstance(outcome, Success):
        follow_ups = follow_ups_of(done.follow_ups, grant, actor=command.actor)
        return replace(command, follow_ups=follow_ups)
    return command
