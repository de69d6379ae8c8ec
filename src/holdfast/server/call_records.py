"""Call records: what is known about each call, for its span and for its line in the log."""

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
from holdfast.ports import Clock, Grant, JobRequest
from holdfast.registry.job_requests import with_trace
from holdfast.wire.verbs import VERBS

log = logging.getLogger("holdfast.server")

SLOW_SECONDS = 1.0
_WAITING = frozenset(verb.rpc for verb in VERBS if verb.waits) | {
    *("DequeueJob", "PublishJobEvents", "StreamJobEvents")
}
"""The methods that may take long: they wait by design, or read the whole store."""

FRAMES_MAX = 8


class CallRecord:
    """What is known about a call. Jobs that it makes belong to the trace `traceparent`."""

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

    def __init__(self, method: str, traceparent: str | None, began: float, *, waits: bool = False) -> None:
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

    def log_fields(self, event: str, code: str, seconds: float, reason: str | None) -> dict[str, Any]:
        """Return the call as a log record, with the field names of a worker's log."""
        fields = {
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
        return {name: value for name, value in fields.items() if value is not None}


current_call: ContextVar[CallRecord | None] = ContextVar("holdfast_call", default=None)
"""The record of the current call."""


def caller_trace(headers: Mapping[str, str]) -> str | None:
    """Return the trace of the caller, from the header `traceparent`. A malformed one is ignored."""
    given = headers.get("traceparent")
    return None if given is None else traceparent_of(given)


def record_job(job: Job) -> Job:
    """Record that the current call is about this job; return the job."""
    if (call := current_call.get()) is not None:
        call.job_id, call.correlation_id = job.job_id, job.correlation
        call.trace_id = job.trace_id or call.trace_id
    return job


def record_owner(grant: Grant) -> Grant:
    """Record that the current call is by the owner of this attempt; return the grant."""
    if (call := current_call.get()) is not None:
        call.job_id, call.attempt = grant.job_id, grant.attempt
    return grant


def record_failure(error: BaseException, method: str) -> None:
    """Record the error of the current call. Outside of a call it is logged at once."""
    call = current_call.get()
    if call is None:
        end_call(CallRecord(method, None, 0.0), "failed", error, 0.0)
    else:
        call.error = error


def in_caller_trace(request: JobRequest) -> JobRequest:
    """Return the request in the trace of its caller, unless it names a trace itself."""
    call = current_call.get()
    return request if call is None else with_trace(request, call.traceparent)


def begin_call(method: str, headers: Mapping[str, str], now: float, *, waits: bool) -> CallRecord:
    """Begin the record of a call; `now` is monotonic. `method` is a name of ours, never a path from the
    request. A call that `waits` by design is never logged as slow."""
    call = CallRecord(method, caller_trace(headers), now, waits=waits)
    if tracing.should_start(call.traceparent):
        call.span = tracing.start_span(method, "server", call.traceparent, {})
        call.traceparent = call.span.traceparent
        call.trace_id = trace_id_of(call.traceparent)
    tracing.attach_context(call.traceparent)
    current_call.set(call)
    return call


def end_call(call: CallRecord, code: str, error: BaseException | None, now: float) -> None:
    """Log the call and end its span. `error` is what was raised, if something was; an error that was
    recorded by `record_failure` takes precedence."""
    error, call.error = call.error or error, None  # else they would keep each other alive
    if isinstance(error, HoldfastError):
        call.job_id = error.job_id or call.job_id
        call.correlation_id = error.correlation_id or call.correlation_id
        call.trace_id = error.trace_id or call.trace_id
    level, event, reason = _classify(call, error, now - call.began)
    if level and log.isEnabledFor(level):
        fields = call.log_fields(event, code, now - call.began, reason)
        log.log(level, _line(fields), extra={"call": fields})
    if call.span is not None:
        ids = {"job_id": call.job_id, "correlation_id": call.correlation_id, "code": code}
        call.span.set_attributes({f"holdfast.{name}": value for name, value in ids.items() if value})
        call.span.end(code if error is not None and level >= logging.WARNING else None)


def _classify(call: CallRecord, error: BaseException | None, seconds: float) -> tuple[int, str, str | None]:
    """Return the log level, the event and the reason. A message with the caller's data is left out."""
    if error is None:
        slow = seconds > SLOW_SECONDS and not call.waits
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
    return logging.ERROR, "call_failed", error_location(error)


def error_location(error: BaseException) -> str:
    """Return the types and places of an error and its causes. Their messages may quote data of a job."""
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


def _line(fields: dict[str, Any]) -> str:
    """Return the log line for people."""
    named = {name: fields[name] for name in ("attempt", "correlation_id", "trace_id") if name in fields}
    ids = "".join(f", {name.removesuffix('_id')} {value}" for name, value in named.items())
    job = f", job {fields['job_id']}" if "job_id" in fields else ""
    reason = f": {fields['reason']}" if "reason" in fields else ""
    slow = "slow, " if fields["event"] == "call_slow" else ""
    return f"{fields['method']} {slow}{fields['code']}{job}{ids}, {fields['seconds']:.3f} s{reason}"


class CallRecorder:
    """Records every call of Connect's protocols that `Authentication` admits: others get no span."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def on_start(self, ctx: RequestContext[Any, Any]) -> CallRecord:
        method = f"{ctx.method.service_name}/{ctx.method.name}"
        waits = ctx.method.name in _WAITING
        return begin_call(method, ctx.request_headers, self._clock.monotonic(), waits=waits)

    async def on_end(
        self, call: CallRecord, ctx: RequestContext[Any, Any], error: Exception | None, /
    ) -> None:
        code = "ok" if error is None else "internal"
        if isinstance(error, ConnectError):
            code = error.code.value
        end_call(call, code, error, self._clock.monotonic())
