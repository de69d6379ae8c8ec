"""Spans of attempts: one for each, part of the trace of its job, from its beginning to its end here."""

from holdfast import tracing
from holdfast.core.lifecycle import is_last
from holdfast.worker.executor import Ending
from holdfast.worker.hold import Hold


def begin(hold: Hold) -> None:
    """Begin the span of an attempt, if anybody wants it. No trace begins here: a job is part of one from
    its submission on, or of none."""
    grant = hold.grant
    if grant.job.traceparent is not None and tracing.wanted(grant.job.traceparent):
        spec = grant.job.spec
        hold.span = tracing.start(
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


def end(hold: Hold, ending: Ending) -> None:
    """End it, with what came of the attempt."""
    if hold.span is not None:
        hold.span.note({"holdfast.outcome": _outcome(hold, ending)})
        failure = ending.failure if _failed(hold, ending) else None
        hold.span.end(None if failure is None else failure.code or "Failure")


def _outcome(hold: Hold, ending: Ending) -> str:
    if hold.lost:
        return "lost"
    if _failed(hold, ending):
        return "failed"
    if (
        ending.failure is not None
        or ending.snooze is not None
        or (hold.released and ending.stopped)
    ):
        return "released"
    return "cancelled" if ending.cancelled else "succeeded"


def _failed(hold: Hold, ending: Ending) -> bool:
    """Whether it counts as a failure: a job that is given back for another version of the code has not."""
    failure = ending.failure
    return failure is not None and not (
        failure.not_understood and not is_last(hold.grant.job, failure)
    )
