"""A call: a job that is checked and ready to be made, as a value."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, NoReturn, TypedDict, TypeVar, Unpack, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.command import Command, encode_command
from holdfast.core.errors import Invalid
from holdfast.core.limits import check_id
from holdfast.core.retry import COMMAND_RETRY, Retry
from holdfast.core.spec import COMMAND_KIND, Json, Spec, check_spec
from holdfast.core.trace import check_trace
from holdfast.ports import Request
from holdfast.sdk.durations import Duration, duration
from holdfast.sdk.promising import Leaving, Wanted, take_wanted
from holdfast.sdk.signature import located
from holdfast.sdk.unknown_options import unknown_option

R_co = TypeVar("R_co", covariant=True)


class Options(Leaving, total=False):
    """What may be said about one job. Durations are a timedelta or seconds.

    `title` is for people; `request_id` makes a request idempotent in its queue; `job_id` names the job
    itself; `delay` and `run_at` say when it may begin; `ttl` when it is given up.

    `outputs` and `tasks` are what it has to leave behind before it counts as succeeded: names that a
    handler writes with `ctx.output(name)`, or paths that a command writes; and the tasks of a study, which
    a handler gets from `ctx.tasks()`. If the results of all tasks are there already, nothing runs: the
    job is `cached-…` and has succeeded.
    """

    queue: str
    title: str | None
    priority: int
    delay: Duration | None
    run_at: datetime | None
    lock: str | None
    region: str | None
    lease: Duration
    timeout: Duration | None
    ttl: Duration | None
    retry: Retry
    labels: Mapping[str, str]
    request_id: str | None
    job_id: str | None
    correlation_id: str | None
    trace_id: str | None
    traceparent: str | None


class Call(Struct, Generic[R_co], frozen=True):
    """One job to make: its arguments have been checked. Nothing has happened yet.

    `given` are the options that `configure` was given for it: they win over those of whatever it is
    made by. `connection` is the one to make it on.
    """

    request: Request
    result_type: Any = Any
    wanted: Wanted | None = None
    given: Options = {}
    connection: object = None

    @property
    def spec(self) -> Spec:
        return self.request.spec

    @property
    def kind(self) -> str:
        return self.request.spec.kind

    @property
    def payload(self) -> msgspec.Raw:
        return self.request.spec.payload

    @property
    def request_id(self) -> str | None:
        return self.request.request_id


class _Given(TypedDict, total=False):
    """The options as a request holds them."""

    queue: str
    name: str | None
    priority: int
    delay: timedelta | None
    run_at: datetime | None
    lock: str | None
    region: str | None
    lease: timedelta
    timeout: timedelta | None
    ttl: timedelta | None
    retry: Retry
    labels: dict[str, str]
    request_id: str | None
    job_id: str | None
    correlation_id: str | None
    trace_id: str | None
    traceparent: str | None


_DURATIONS = ("delay", "lease", "timeout", "ttl")
_IDS = ("request_id", "job_id", "correlation_id", "trace_id", "traceparent")
_ALIKE = (("delay", "run_at"), ("request_id", "job_id"), ("trace_id", "traceparent"))
"""Options that say the same thing in two ways: whoever gives one has said it."""


def configured(
    request: Request, options: Options, what: str, known: type[Options] = Options
) -> Request:
    """The request with other options; `Invalid`, beginning with `what`, when one is wrong. What the job
    is to leave behind has been taken from them: `take_wanted`. `known` are those that might be given."""
    given = _given(options, what, known)
    ids = {name: given.pop(name) for name in _IDS if name in given}
    for name, value in ids.items():
        if value is not None:
            check_id(value, f"{what}: {name}")
    request = replace(request, spec=checked_spec(replace(request.spec, **given), what), **ids)
    check_trace(request.trace_id, request.traceparent)
    if request.request_id is not None and request.job_id is not None:
        raise Invalid(
            f"{what}: give a request_id or a job_id, not both: each says which job it is."
        )
    return request


def _given(options: Options, what: str, known: type[Options]) -> dict[str, Any]:
    given: dict[str, Any] = {**options}
    if unknown := given.keys() - Options.__annotations__.keys():
        raise unknown_option(min(unknown), known.__annotations__, what)
    if "title" in given:
        given["name"] = given.pop("title")
    for name in _DURATIONS:
        if given.get(name) is not None:
            given[name] = duration(given[name], f"{what}: {name}")
    if given.get("delay") is not None:
        given.setdefault("run_at", None)
    if given.get("run_at") is not None:
        given.setdefault("delay", None)
    try:
        return dict(msgspec.convert(given, _Given))
    except msgspec.ValidationError as error:
        raise Invalid(f"{what}: {located(str(error))}.") from error


def checked_spec(spec: Spec, what: str) -> Spec:
    try:
        return check_spec(spec)
    except Invalid as error:
        raise Invalid(f"{what}: {error.message}") from error


def prepared(
    what: Call[Any] | str, arguments: Mapping[str, Json] | None, options: Options
) -> Call[Any]:
    """The call that `enqueue` was asked for."""
    if isinstance(what, Call):
        if arguments is not None:
            raise Invalid("A call has its arguments already; give it alone.")
        if not options:
            return what
        given: Options = {**what.given, **options}
        wanted = take_wanted(options, what.wanted, what.kind)
        request = configured(what.request, options, what.kind)
        return Call(request, what.result_type, wanted, given, what.connection)
    if not isinstance(what, str):
        raise not_a_call(what, "enqueue takes a call, or a kind and its arguments")
    try:
        payload = msgspec.Raw(msgspec.json.encode({} if arguments is None else dict(arguments)))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise Invalid(f"{what}: its arguments cannot be written as JSON: {error}.") from error
    wanted = take_wanted(options, None, what)
    request = configured(Request(spec=Spec(kind=what, payload=payload)), options, what)
    return Call(request, wanted=wanted)


def check_calls(calls: Iterable[Call[R_co]], function: str = "f") -> list[Call[R_co]]:
    """The calls that `enqueue_many` was asked for; `Invalid` if one of them is none. `function` is the
    name to show one with."""
    if isinstance(calls, Call):
        raise Invalid("enqueue_many takes a list of calls: enqueue_many([call]).")
    made = list(calls)
    for one in made:
        if not isinstance(one, Call):
            raise not_a_call(one, "enqueue_many takes calls", function)
    return made


def not_a_call(given: object, takes: str, function: str = "f") -> Invalid:
    """The error for what was given in place of a call, with how that is written."""
    name = getattr(given, "__name__", function)
    return Invalid(f"{takes}, not {given!r:.80}: pass {name}.call({_arguments(given)}).")


def _arguments(given: object) -> str:
    """How a call of these arguments is written."""
    if isinstance(given, Mapping):
        words = ", ".join(f"{name}={value!r}" for name, value in given.items())
    elif isinstance(given, tuple | list):
        words = ", ".join(map(repr, given))
    else:
        words = "..." if callable(given) else repr(given)
    return words if len(words) < 80 else "..."


def one_connection(calls: Iterable[Call[object]], connection: object) -> object:
    """The connection that these calls are to be made on, `connection` if they name none; `Invalid` for
    several: they are made in one commit."""
    named = [call.connection for call in calls]
    for one in named:
        if one is not None and connection is None:
            connection = one if all(other is one for other in named) else _several()
        elif one is not None and one is not connection:
            _several()
    return connection


def _several() -> NoReturn:
    raise Invalid(
        "These calls are to be made on different connections, and all at once: make those of each"
        " connection by themselves."
    )


def inherited(call: Call[object], given: Options) -> Options:
    """Those of the options given for all calls about which this one says nothing itself."""
    said = {*call.given}
    for alike in _ALIKE:
        if said.intersection(alike):
            said.update(alike)
    return cast("Options", {name: value for name, value in given.items() if name not in said})


class CommandOptions(Options, total=False):
    """What may be said about one command, beside what may be said about any job.

    It is run in `cwd`, or where the worker is. `secrets` are names of variables in the worker's own
    environment. `pty` gives it a terminal; `memory` is its limit, in bytes. Its `outputs` are paths, from
    where it runs, or a `holdfast.File` that says more of one.
    """

    cwd: str | None
    env: Mapping[str, str]
    secrets: Iterable[str]
    pty: bool
    memory: int | None


def command(argv: Sequence[str], **options: Unpack[CommandOptions]) -> Call[Any]:
    """The call of a job that runs a command, as it is, without a shell.

    The job fails with its first failure, unless `retry` says otherwise.
    """
    if isinstance(argv, str):
        raise Invalid("A command is a list of words, such as ['sh', '-c', 'a | b'].")
    words = Command(
        argv=tuple(argv),
        env=dict(options.pop("env", {})),
        cwd=options.pop("cwd", None),
        secrets=tuple(options.pop("secrets", ())),
        pty=options.pop("pty", False),
        memory_bytes=options.pop("memory", None),
    )
    spec = Spec(payload=encode_command(words), retry=COMMAND_RETRY)
    wanted = take_wanted(options, None, COMMAND_KIND)
    rest: Options = options  # what is left is said of any job
    return Call(configured(Request(spec=spec), rest, COMMAND_KIND, CommandOptions), wanted=wanted)
