"""complete and complete_many: owners report how their attempts ended."""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.errors import HoldfastError, Invalid
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Complete, Outcome, Success
from holdfast.core.tracebacks import check_failure
from holdfast.ports import Completion, Grant, JobRequest
from holdfast.registry.commit_queue import CommitQueue, CompletionCommand
from holdfast.registry.job_requests import follow_up_commands


async def complete(
    commits: CommitQueue,
    grant: Grant,
    outcome: Outcome,
    *,
    op_id: str | None = None,
    compensated: bool | None = None,
    follow_ups: Sequence[JobRequest] = (),
) -> Job:
    """End the attempt. Only the newest owner can: every other caller is `Fenced`."""
    completion = Completion(grant, outcome, op_id, compensated, tuple(follow_ups))
    return await commits.execute(grant.job_id, _command(completion, commits.op_id_or_new(op_id)))


async def complete_many(commits: CommitQueue, completions: Sequence[Completion]) -> list[Job | HoldfastError]:
    """End each attempt as `complete` would; an error that it would raise is returned in its place."""
    call = commits.op_id_or_new(None)
    commands: list[CompletionCommand] = []
    refused: dict[int, Invalid] = {}
    for n, done in enumerate(completions):
        try:
            # One id with a number identifies an op as well as a new id does: 0.1 us, not 0.9.
            op_id = f"{call}.{n}" if done.op_id is None else commits.op_id_or_new(done.op_id)
            commands.append((done.grant.job.job_id, _command(done, op_id)))
        except Invalid as error:
            refused[n] = error
    results = iter(decided := await commits.execute_many(commands))
    if not refused:
        return decided
    return [refused[n] if n in refused else next(results) for n in range(len(completions))]


def _command(done: Completion, op_id: str) -> Complete:
    grant, outcome = done.grant, done.outcome
    command = Complete(
        op_id=op_id,
        token=grant.fencing_token,
        actor=f"worker:{grant.job.owner}",
        outcome=check_failure(outcome) if isinstance(outcome, Failure) else outcome,
        compensated=done.compensated,
    )
    if done.follow_ups and isinstance(outcome, Success):
        follow_ups = follow_up_commands(done.follow_ups, grant, actor=command.actor)
        return replace(command, follow_ups=follow_ups)
    return command
