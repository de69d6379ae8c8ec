"""The error for an unknown option: it names the likely one, and all that exist."""

from collections.abc import Collection
from difflib import get_close_matches

from holdfast.core.errors import Invalid

_ELSEWHERE = {
    **dict.fromkeys(("max_retries", "retries", "max_attempts", "attempts"), "max_failures"),
    **dict.fromkeys(("max_failures", "max_crashes", "backoff", "on_exhausted"), "retry"),
    **dict.fromkeys(("countdown", "defer_by"), "delay"),
    **dict.fromkeys(("eta", "at", "scheduled_at", "defer_until"), "run_at"),
    **dict.fromkeys(("expires", "expires_in"), "ttl"),
    **dict.fromkeys(("time_limit", "soft_time_limit", "job_timeout"), "timeout"),
    **dict.fromkeys(("task_id", "id"), "job_id"),
    **dict.fromkeys(("unique_id", "idempotency_key"), "request_id"),
    **dict.fromkeys(("tags", "meta"), "labels"),
    "name": "title",
}
"""Names of the same options in other libraries, in our decorator and on our command line."""


def unknown_option(option: str, known: Collection[str], what: str) -> Invalid:
    """Return the error for an unknown option, with the one that was probably meant and all that exist."""
    meant = _ELSEWHERE.get(option)
    while meant is not None and meant not in known:
        meant = _ELSEWHERE.get(meant)
    close = [meant] if meant else get_close_matches(option, known, 1)
    hint = f" Did you mean {close[0]}?" if close else ""
    names = ", ".join(sorted(known))
    return Invalid(f"{what}: there is no option {option}.{hint} There are: {names}.")
