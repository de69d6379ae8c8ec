"""Trace context as the W3C writes it: `00-<trace>-<span>-<flags>`, one text from submitter to worker."""

import re

from holdfast.core.errors import Invalid
from holdfast.core.limits import clip

_FIELDS = re.compile(
    r"(?!ff)(?!00.{54})[0-9a-f]{2}"  # a version, of which 00 has nothing after its flags
    r"-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
)
_TRACE = slice(3, 35)
_SAMPLED = 1


def traceparent_of(text: str) -> str | None:
    """Return the context in a header `traceparent`, as version 00 writes it; None for a malformed header.

    A later version may have more fields after a dash. Of the flags only "sampled" is kept.
    """
    found = _FIELDS.fullmatch(text)
    return f"00-{found[1]}-{found[2]}-{int(found[3], 16) & _SAMPLED:02x}" if found else None


def trace_id_of(traceparent: str) -> str:
    """Return the id of the trace in a context."""
    return traceparent[_TRACE]


def check_trace(trace_id: str | None, traceparent: str | None) -> tuple[str | None, str | None]:
    """Return the id and the context of a trace as they are stored; a context contains the id.

    Raise `Invalid` for a malformed context, or for an id that contradicts it."""
    if traceparent is None:
        return trace_id, None
    context = traceparent_of(traceparent)
    if context is None:
        raise Invalid(
            f"traceparent {clip(traceparent, 80)!r} is not valid: write 00, the trace in 32 hex digits, the"
            " span in 16 and the flags in 2, with dashes between them."
        )
    if trace_id not in (None, trace_id_of(context)):
        raise Invalid("trace_id and traceparent name two traces: give one of them.")
    return trace_id_of(context), context
