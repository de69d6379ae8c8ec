"""Calls as operators see them: what is known about each, for its span and for its line in the log."""

import logging
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import PurePath
from traceback import walk_tb
from typing import Any

from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext

from holdfast import tracing
from holdfast.core.errors import Corrupt, HoldfastError, Invalid, Unavailable
from holdfast.core.job import Job
from holdfast.core.limits import ID_CHARACTERS_MAX, clip
from holdfast.core.trace import trace_id_of, traceparent_of
from holdfast.ports import Clock, Grant, Request
from holdfast.registry.requests import within
from holdfast.wire.verbs import VERBS

log = logging.getLogger("holdfast.server")

SLOW_SECONDS = 1.0
_WAITING = frozenset(verb.rpc for verb in VERBS if verb.waits) | {
    *("DequeueJob", "PublishJobEvents", "StreamJobEvents")
}
"""The methods that may take long: they wait by design, or go through the whole store."""

FRAMES_MAX = 8


class Noted:
    """What is known about a call. Jobs that it makes are part of `traceparent`."""

    __slots__ = (
        "attempt",
        "began",
        "correlation_id",
        "error",
        "job_id",
        "method",
        "span",
        "trace_id",
        "traceparent",
        "waits",
    )

    def __init__(
        self, method: str, traceparent: str | None, began: float, *, waits: bool = False
    ) -> None:
        self.waits = waits
        self.method = method
        self.traceparent = traceparent
        self.began = began
        self.span: tracing.Span | None = None
        self.error: BaseException | None = None
        self.job_id: str | None = None
        self.attempt: int | None = None
        self.correlation_id: str | None = None
        self.trace_id = None if traceparent is None else trace_id_of(traceparent)

    def document(self, event: str, code: str, seconds: float, reason: str | None) -> dict[str, Any]:
        """The call as a line of the log, in the words of a worker's."""
        told = {
            "event": event,
            "method": self.method,
            "code": code,
            "job_id": self.job_id and clip(self.job_id, ID_CHARACTERS_MAX),
            "attempt": self.attempt,
            "correlation_id": self.correlation_id,
            "trace_id": self.trace_id,
            "seconds": round(seconds, 6),
            "reason": reason,
        }
        return {name: value for name, value in told.items() if value is not None}


under_way: ContextVar[Noted | None] = ContextVar("holdfast_call", default=None)
"""The call that is being answered."""


def caller_context(headers: Mapping[str, str]) -> str | None:
    """The trace that the caller is in, by its header `traceparent`. What is none is passed over."""
    given = headers.get("traceparent")
    return None if given is None else traceparent_of(given)


def about(job: Job) -> Job:
    """The call under way is about this job."""
    if (noted := under_way.get()) is not None:
        noted.job_id, noted.correlation_id = job.job_id, job.correlation
        noted.trace_id = job.trace_id or noted.trace_id
    return job


def by_owner(grant: Grant) -> Grant:
    """The call under way is by the owner of this attempt."""
    if (noted := under_way.get()) is not None:
        noted.job_id, noted.attempt = grant.job_id, grant.attempt
    return grant


def failed(error: BaseException, method: str) -> None:
    """The call under way has failed so. Outside of any, it is written down at once."""
    noted = under_way.get()
    if noted is None:
        end(Noted(method, None, 0.0), "failed", error, 0.0)
    else:
        noted.error = error


def tied(request: Request) -> Request:
    """The request, part of its caller's trace unless it names one itself."""
    noted = under_way.get()
    return request if noted is None else within(request, noted.traceparent)


def begin(method: str, headers: Mapping[str, str], now: float, *, waits: bool) -> Noted:
    """A call comes in; `now` is monotonic. `method` is a name of ours, never a path as it came. A call
    that `waits` by design is never slow."""
    noted = Noted(method, caller_context(headers), now, waits=waits)
    if tracing.wanted(noted.traceparent):
        noted.span = tracing.start(method, "server", noted.traceparent, {})
        noted.traceparent = noted.span.traceparent
        noted.trace_id = trace_id_of(noted.traceparent)
    tracing.enter(noted.traceparent)
    under_way.set(noted)
    return noted


def end(noted: Noted, code: str, error: BaseException | None, now: float) -> None:
    """It is answered with this code. `error` is what was raised, if something was; what it was told
    of by `failed` goes before that."""
    error, noted.error = noted.error or error, None  # else each would keep the other
    if isinstance(error, HoldfastError):
        noted.job_id = error.job_id or noted.job_id
        noted.correlation_id = error.correlation_id or noted.correlation_id
        noted.trace_id = error.trace_id or noted.trace_id
    level, event, reason = _verdict(noted, error, now - noted.began)
    if level and log.isEnabledFor(level):
        told = noted.document(event, code, now - noted.began, reason)
        log.log(level, _words(told), extra={"call": told})
    if noted.span is not None:
        ids = {"job_id": noted.job_id, "correlation_id": noted.correlation_id, "code": code}
        noted.span.note({f"holdfast.{name}": value for name, value in ids.items() if value})
        noted.span.end(code if error is not None and level >= logging.WARNING else None)


def _verdict(
    noted: Noted, error: BaseException | None, seconds: float
) -> tuple[int, str, str | None]:
    """How bad it is, what to call it, and why. What quotes a caller's own words is left out."""
    if error is None:
        slow = seconds > SLOW_SECONDS and not noted.waits
        return (logging.WARNING, "call_slow", None) if slow else (0, "", None)
    if isinstance(error, Unavailable | Corrupt):
        return logging.WARNING, "call_failed", error.message
    if isinstance(error, HoldfastError):
        quotes = isinstance(error, Invalid)
        return logging.DEBUG, "call_refused", None if quotes else error.message
    if isinstance(error, TimeoutError):
        return logging.WARNING, "call_failed", "It took too long."
    if isinstance(error, ConnectError):
        return logging.DEBUG, "call_refused", None
    return logging.ERROR, "call_failed", where(error)


def where(error: BaseException) -> str:
    """What broke, and where in the code. Not what it says: that may quote what is in a job."""
    causes = []
    for one in _chain(error):
        frames = [
            f"{PurePath(frame.f_code.co_filename).name}:{line} in {frame.f_code.co_name}"
            for frame, line in walk_tb(one.__traceback__)
        ]
        causes.append(f"{type(one).__name__} at {' > '.join(frames[-FRAMES_MAX:]) or 'no frame'}")
    return "; after ".join(causes)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and error not in seen and len(seen) < FRAMES_MAX:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__


def _words(told: dict[str, Any]) -> str:
    """The line for people."""
    facts = {name: told[name] for name in ("attempt", "correlation_id", "trace_id") if name in told}
    ids = "".join(f", {name.removesuffix('_id')} {value}" for name, value in facts.items())
    job = f", job {told['job_id']}" if "job_id" in told else ""
    reason = f": {told['reason']}" if "reason" in told else ""
    slow = "slow, " if told["event"] == "call_slow" else ""
    return f"{told['method']} {slow}{told['code']}{job}{ids}, {told['seconds']:.3f} s{reason}"


class Notes:
    """Notes every call of Connect's protocols that the gate lets in: nobody else makes spans."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def on_start(self, ctx: RequestContext[Any, Any]) -> Noted:
        method = f"{ctx.method.service_name}/{ctx.method.name}"
        waits = ctx.method.name in _WAITING
        return begin(method, ctx.request_headers, self._clock.monotonic(), waits=waits)

    async def on_end(
        self, noted: Noted, ctx: RequestContext[Any, Any], error: Exception | None, /
    ) -> None:
        code = "ok" if error is None else "internal"
        if isinstance(error, ConnectError):
            code = error.code.value
        end(noted, code, error, self._clock.monotonic())
