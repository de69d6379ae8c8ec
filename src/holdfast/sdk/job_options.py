"""The options of jobs: what may be set on one job, on one command, and on all jobs of a function.

A field of `Spec` that users may set is declared here once, in the TypedDict of those who may set it. A
field that is neither declared nor in `NOT_OPTIONS` fails at import. How an option is checked follows from
the field."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, TypedDict, get_args

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import fields, replace

from holdfast.core.durations import Duration, parse_duration
from holdfast.core.errors import Invalid
from holdfast.core.limits import check_id
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.spec import Spec, check_spec
from holdfast.core.trace import check_trace
from holdfast.ports import JobRequest
from holdfast.runner.output_promises import OutputOptions
from holdfast.runner.signature import located

Isolation: TypeAlias = Literal["shared", "process"]


class SpecOptions(TypedDict, total=False):
    """Options of a single job and of all jobs of a function. Durations are a timedelta, seconds, or a text
    such as 5m, 1h30m or PT5M. Without a value (None) for `lease`, `retry` or `labels`, these stay as they
    are."""

    queue: str
    """The queue that workers claim it from; `default` by default."""
    priority: int
    """From 0, which comes first, to 9; 5 by default."""
    lock: str | None
    """Jobs with the same lock run one after the other. In `@app.job` it may contain arguments:
    `order-{order_id}`."""
    region: str | None
    """Only workers of this region claim it."""
    lease: Duration | None
    """How long its worker may be silent before another one takes it over; the worker renews it meanwhile. A
    minute by default."""
    timeout: Duration | None
    """How long one attempt may take."""
    ttl: Duration | None
    """How long after its creation it is given up, if it has not ended."""
    retry: Retry | None
    """When a failed attempt is tried again, and how often."""
    labels: Mapping[str, str] | None
    """Names and values to find it by."""


class Options(SpecOptions, OutputOptions, total=False):
    """The options of one job. Durations are a timedelta, seconds, or a text such as 5m or 1h30m.

    `name` is for people, who find the job by it; `request_id` makes a request idempotent in its queue;
    `job_id` is the id of the job itself; `delay` and `run_at` say when it may begin; `ttl` when it is given
    up.

    `outputs` and `tasks` are what the job has to leave behind before it counts as succeeded: names that a
    handler writes with `ctx.output(name)`, or paths that a command writes; and the tasks of a study, which
    a handler gets from `ctx.tasks()`. If the results of all tasks exist already, nothing runs: the job is
    `cached-…` and has succeeded.
    """

    name: str | None
    """A name for people, who find the job by it."""
    delay: Duration | None
    """It may begin only after this time."""
    run_at: datetime | None
    """It may begin only at this moment, which has a time zone."""
    request_id: str | None
    """Sent again in its queue, the same request returns the same job: it is made once."""
    job_id: str | None
    """The id of the job itself; a UUID by default."""
    correlation_id: str | None
    """Ties jobs and events together that belong to one cause."""
    trace_id: str | None
    """The trace that it belongs to, without a span."""
    traceparent: str | None
    """The span that caused it, as in W3C Trace Context."""


class CommandOptions(Options, total=False):
    """The options of one command, in addition to those of any job.

    The command runs in `cwd`, or in the folder of the worker. `secrets` are names of variables in the
    worker's own environment. `pty` gives the command a terminal; `memory` is its limit, in bytes. Its
    `outputs` are paths, relative to where it runs, or a `holdfast.File` with a count, size or checksum.
    """

    cwd: str | None
    """The folder that it runs in; by default that of the worker."""
    env: Mapping[str, str]
    """Its variables, in addition to `PATH`, `HOME`, the locale and little else of the worker."""
    secrets: Iterable[str]
    """Names of variables in the worker's own environment: it sees them, and no output shows them."""
    pty: bool
    """Whether it gets a terminal."""
    memory: int | None
    """How many bytes of memory it may use."""


class FunctionOptions(TypedDict, total=False):
    """The options of a function that are not options of its jobs."""

    kind: str | None
    """What its jobs are called in the queue; by default the name of the function."""
    version: int
    """Raised when old code cannot run new jobs: it becomes a part of the kind."""
    max_failures: int | None
    """`retry` with this many failures."""
    max_crashes: int | None
    """`retry` with this many lost workers."""
    isolation: Isolation
    """`shared`: threads or coroutines of one process; `process`: each attempt has a process of its own."""
    memory: int | None
    """How many bytes an attempt may use, with a process of its own."""


class DecoratorOptions(SpecOptions, FunctionOptions, total=False):
    """The options of `@app.job`. Durations are a timedelta, seconds, or a text such as 5m or 1h30m.

    The `kind` is by default the name of the function, with its `version` behind it; `isolation="process"`
    gives each attempt a process of its own, which may use `memory` bytes. A function that fails is tried ten
    times, after waits of up to 5 s, 10 s, 20 s and so on, 15 minutes at most: for about 20 minutes, and never
    more than 36. `retry` sets other waits, and `max_failures`, `max_crashes` and `on_exhausted` refine them:
    `max_failures=1` never tries again, and `retry=Retry(backoff="30s", backoff_max="1h"), max_failures=50`
    does for about a day. `compensate` undoes what was done, with the same arguments, when the last attempt
    has failed. Jobs with the same `lock` run one after the other; its name may contain arguments:
    `lock="order-{order_id}"`. `outputs` are names that the handler has to write with `ctx.output(name)`: the
    job has succeeded when every one of them was found complete.
    """

    on_exhausted: OnExhausted | Literal["dead_letter", "fail", "timeout"] | None
    """How its jobs end when a budget is used up; see `Retry`."""
    compensate: Callable[..., object] | None
    """A function with the same arguments that undoes what was done, when the last attempt has failed."""
    outputs: Sequence[str] | None
    """Names that the handler has to write with `ctx.output(name)`."""


NOT_OPTIONS = frozenset(
    {
        *("kind", "payload"),  # the function or command itself, and its arguments
        *("outputs", "promised_outputs"),  # made from the options `outputs` and `tasks`
        *("executor", "replayed_from", "resumed_from"),  # set by the registry and by servers
        *("register", "submitted_by", "found", "spec"),  # of a request
    }
)
"""The fields of `Spec` and `Request` that are not options of a job."""
_FIELDS = {one.name: one for one in (*fields(Spec), *fields(JobRequest)) if one.name not in NOT_OPTIONS}
_NAMES = {*_FIELDS, *OutputOptions.__annotations__}
if wrong := _NAMES ^ {*Options.__annotations__}:
    raise TypeError(f"Fields of Spec or Request and options differ: {', '.join(sorted(wrong))}.")

_Values = msgspec.defstruct("_Values", [(name, one.type | UnsetType, UNSET) for name, one in _FIELDS.items()])
"""The options as the fields of a request hold them: what checks their types."""
_DURATIONS = [n for n, one in _FIELDS.items() if timedelta in (one.type, *get_args(one.type))]
_AS_BEFORE = [
    name
    for name, hint in SpecOptions.__annotations__.items()
    if type(None) in get_args(hint) and type(None) not in get_args(_FIELDS[name].type)
]
"""Options for which None means: as it is."""


def with_options(
    request: JobRequest, options: Options, what: str, known: type[Options] = Options
) -> JobRequest:
    """Return the request with these options; raises `Invalid`, beginning with `what`, for a wrong one.
    `outputs` and `tasks` are not among them (`take_promised_outputs`). `known` are the options that the
    caller could give."""
    values = _values(options, what, known)
    spec = {name: value for name, value in values.items() if name in Spec.__struct_fields__}
    ids = {name: value for name, value in values.items() if name not in spec}
    for name, value in ids.items():
        if value is not None:
            check_id(value, f"{what}: {name}")
    request = replace(request, spec=_checked(replace(request.spec, **spec), what), **ids)
    check_trace(request.trace_id, request.traceparent)
    if request.request_id is not None and request.job_id is not None:
        raise Invalid(f"{what}: give a request_id or a job_id, not both: each identifies the job.")
    return request


def _values(options: Options, what: str, known: type[Options]) -> dict[str, Any]:
    given: dict[str, Any] = {**options}
    if unknown := given.keys() - Options.__annotations__.keys():
        raise unknown_option(min(unknown), known.__annotations__, what)
    given = {n: value for n, value in given.items() if value is not None or n not in _AS_BEFORE}
    for name in _DURATIONS:
        if given.get(name) is not None:
            given[name] = parse_duration(given[name], f"{what}: {name}")
    if isinstance(given.get("retry"), Retry):
        given["retry"] = parsed_retry(given["retry"], what)
    if given.get("delay") is not None:
        given.setdefault("run_at", None)
    if given.get("run_at") is not None:
        given.setdefault("delay", None)
    try:
        values = msgspec.convert(given, _Values)
    except msgspec.ValidationError as error:
        raise Invalid(f"{what}: {located(str(error))}.") from error
    return {name: getattr(values, name) for name in given}


def parsed_retry(retry: Retry, what: str) -> Retry:
    """Return the budgets with their durations as timedeltas, however they were given."""
    names = ("backoff", "backoff_max")
    return replace(retry, **{n: parse_duration(getattr(retry, n), f"{what}: retry: {n}") for n in names})


def _checked(spec: Spec, what: str) -> Spec:
    try:
        return check_spec(spec)
    except Invalid as error:
        raise Invalid(f"{what}: {error.message}") from error


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
    "title": "name",
}
"""Names of the same options in other libraries, in the decorator and on the command line."""


def unknown_option(option: str, known: Collection[str], what: str) -> Invalid:
    """Return the error for an unknown option, with the probable one and all that exist."""
    meant, within = _ELSEWHERE.get(option), option
    while meant is not None and meant not in known:
        within = meant
        meant = _ELSEWHERE.get(within)
    if meant == "retry":
        meant = f"retry=Retry({within}=...)"
    close = [meant] if meant else get_close_matches(option, known, 1)
    hint = f" Did you mean {close[0]}?" if close else ""
    names = ", ".join(sorted(known))
    return Invalid(f"{what}: there is no option {option}.{hint} There are: {names}.")
