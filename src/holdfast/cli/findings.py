"""What was found of the promised outputs, in words."""

from datetime import datetime

from holdfast.core.explain import NAMES_SHOWN, span
from holdfast.core.job import Job
from holdfast.core.outputs import looks
from holdfast.core.state import UNSUCCESSFUL, State


def tally(job: Job) -> str | None:
    """`5 of 8 outputs verified (2 reused), 3 missing`; before a validation, `8 outputs promised`."""
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


def lacking(job: Job) -> str | None:
    """The first names of what is missing, and how many more there are."""
    found = job.found
    return listed(found.names[:NAMES_SHOWN], found.missing) if found else None


def listed(names: tuple[str, ...], total: int) -> str:
    """`a, b, c and 7 more`."""
    more = total - len(names)
    rest = f" and {more:,} more" if names and more > 0 else ""
    return ", ".join(names) + rest


def verdict_words(job: Job) -> str:
    """The state, and what was found: `partial_success: 5 of 8 outputs verified, 3 missing: a, b, c.`"""
    if job.state is State.FAILED and job.error is not None and not is_beside(job):
        return f"{job.state}: {job.error.message}"
    names = lacking(job)
    found = tally(job) or "no outputs were promised"
    return f"{job.state}: {found}{': ' if names else ''}{names or ''}."


def is_beside(job: Job) -> bool:
    """Whether what was found is beside the end of the job, and not the reason for it."""
    judged = job.error is not None and job.error.code == "NO_OUTPUTS"
    found = job.found
    return found is not None and job.state in UNSUCCESSFUL and (found.verified > 0 or not judged)


def end_words(job: Job) -> str | None:
    """Why it ended so; of one that ended without success also what it has left."""
    if not is_beside(job):
        return job.reason
    return f"{(job.reason or str(job.state)).rstrip('.')}; {tally(job)}"


def looking(job: Job, now: datetime) -> str | None:
    """Who looks for the outputs and how far; or why they could not be seen, and when it is tried again."""
    check = job.check
    if check is None:
        return None
    if check.by is not None and looks(check, now):
        seen = f", {check.done:,} of {check.total:,}" if check.total else ""
        return f"{check.by} is looking{seen}"
    again = ""
    if check.next_at is not None:
        left = check.next_at - now
        again = f"next look in {span(left)}" if check.next_at > now else "next look is due"
    if check.reason is None:
        return again or None
    tried = "once" if check.tries == 1 else f"{check.tries} times"
    after = f"; {again}" if again else ""
    return f"could not be seen, tried {tried}: {check.reason.rstrip('.')}{after}"


def cached(job: Job) -> bool:
    """Whether nothing was run for it: all that it promises was there when it was asked for."""
    said = isinstance(job.result, dict) and job.result.get("cached") is True
    return said and job.started_at == job.created_at  # no handler begins in the commit that made it
