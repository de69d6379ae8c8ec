"""The promised outputs of a job in words: how many are there, which are missing, who validates them."""

from datetime import datetime

from holdfast.core.explanation import MISSING_NAMES_SHOWN, format_duration
from holdfast.core.job import Job
from holdfast.core.outputs import is_being_validated
from holdfast.core.state import UNSUCCESSFUL, State


def output_counts(job: Job) -> str | None:
    """Return `5 of 8 outputs verified (2 reused), 3 missing`; before a validation, `8 outputs promised`."""
    promised = job.spec.promised_outputs
    if not promised:
        return None
    noun = "output" if promised == 1 else "outputs"
    found = job.found
    if found is None:
        return f"{promised:,} {noun} promised"
    reused = f" ({found.reused:,} reused)" if found.reused else ""
    missing = f", {found.missing:,} missing" if found.missing else ""
    return f"{found.verified:,} of {promised:,} {noun} verified{reused}{missing}"


def missing_names(job: Job) -> str | None:
    """Return the first names of the missing outputs, and how many more there are."""
    found = job.found
    return name_list(found.names[:MISSING_NAMES_SHOWN], found.missing) if found else None


def name_list(names: tuple[str, ...], total: int) -> str:
    """Return `a, b, c and 7 more`."""
    more = total - len(names)
    rest = f" and {more:,} more" if names and more > 0 else ""
    return ", ".join(names) + rest


def verdict_words(job: Job) -> str:
    """Return the verdict, such as `partial_success: 5 of 8 outputs verified, 3 missing: a, b, c.`"""
    if job.state is State.FAILED and job.error is not None and not ended_for_other_reason(job):
        return f"{job.state}: {job.error.summary}"
    names = missing_names(job)
    found = output_counts(job) or "no outputs were promised"
    return f"{job.state}: {found}{': ' if names else ''}{names or ''}."


def ended_for_other_reason(job: Job) -> bool:
    """Return whether the job ended without success for another reason than its outputs."""
    judged = job.error is not None and job.error.code == "NO_OUTPUTS"
    found = job.found
    return found is not None and job.state in UNSUCCESSFUL and (found.verified > 0 or not judged)


def end_words(job: Job) -> str | None:
    """Return why the job ended; without success, also how many of its outputs are there."""
    if not ended_for_other_reason(job):
        return job.reason
    return f"{(job.reason or str(job.state)).rstrip('.')}; {output_counts(job)}"


def validation_status(job: Job, now: datetime) -> str | None:
    """Return who validates the outputs and how far; or why they cannot be seen, and when the next try is."""
    check = job.check
    if check is None:
        return None
    if check.by is not None and is_being_validated(check, now):
        seen = f", {check.done:,} of {check.total:,}" if check.total else ""
        return f"{check.by} is validating{seen}"
    again = ""
    if check.next_at is not None:
        left = check.next_at - now
        again = (
            f"next validation in {format_duration(left)}" if check.next_at > now else "next validation is due"
        )
    if check.reason is None:
        return again or None
    tried = "once" if check.tries == 1 else f"{check.tries} times"
    after = f"; {again}" if again else ""
    return f"could not be seen, tried {tried}: {check.reason.rstrip('.')}{after}"


def is_cached(job: Job) -> bool:
    """Return whether nothing was run for the job: all it promises was there when it was submitted."""
    marked = isinstance(job.result, dict) and job.result.get("cached") is True
    # No handler begins in the commit that creates its job.
    return marked and job.started_at == job.created_at
