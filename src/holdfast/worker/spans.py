"""The span of each attempt: part of the trace of its job, from begin to end in this worker."""

from holdfast import tracing
from holdfast.core.lifecycle import is_last_failure
from holdfast.worker.executor import Ending
from holdfast.worker.held_job import HeldJob


def begin(held: HeldJob) -> None:
    """Begin the span of an attempt, if its trace is recorded. No trace begins here: a job is part of one
    from its submission on, or of none."""
    grant = held.grant
    if grant.job.traceparent is not None and tracing.should_start(grant.job.traceparent):
        spec = grant.job.spec
        held.span = tracing.start_span(
            f"run {spec.kind}",
            "consumer",
            grant.job.traceparent,
            {
                "holdfast.job_id": grant.job_id,
                "holdfast.attempt": grant.attempt,
                "holdfast.queue": spec.queue,
                "holdfast.kind": spec.kind,
                "holdfast.correlation_id": grant.job.correlation,
            },
        )


def end(held: HeldJob, ending: Ending) -> None:
    """End it, with the outcome of the attempt."""
    if held.span is not None:
        held.span.set_attributes({"holdfast.outcome": _outcome(held, ending)})
        failure = ending.failure if _failed(held, ending) else None
        held.span.end(None if failure is None else failure.code or "Failure")


def _outcome(held: HeldJob, ending: Ending) -> str:
    if held.lost:
        return "lost"
    if _failed(held, ending):
        return "failed"
    if ending.failure is not None or ending.snooze is not None or (held.released and ending.stopped):
        return "released"
    return "cancelled" if ending.cancelled else "succeeded"


def _failed(held: HeldJob, ending: Ending) -> bool:
    """Whether it counts as a failure: a job that is released for another version of the code does not."""
    failure = ending.failure
    return failure is not None and not (
        failure.not_understood and not is_last_failure(held.grant.job, failure)
    )
