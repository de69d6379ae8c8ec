"""A call: the checked request for one job, as a value."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, NoReturn, TypeVar, Unpack, cast

import msgspec
from msgspec import Struct

from holdfast.core.command import Command, encode_command
from holdfast.core.errors import Invalid
from holdfast.core.retry import COMMAND_RETRY
from holdfast.core.spec import COMMAND_KIND, Json, Spec
from holdfast.ports import Request
from holdfast.sdk.job_options import CommandOptions, Options, configured
from holdfast.sdk.promising import Wanted, take_wanted

R_co = TypeVar("R_co", covariant=True)


class Call(Struct, Generic[R_co], frozen=True):
    """One job to create: its arguments have been checked, and nothing has been sent yet.

    `given` are the options that `configure` was given for it: they win over the options of the function that
    enqueues it. `connection` is the database connection to create it on.
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


_ALIKE = (("delay", "run_at"), ("request_id", "job_id"), ("trace_id", "traceparent"))
"""Options that set the same thing in two ways: a call that gives one of a pair has set it."""


def prepared(
    what: Call[Any] | str, arguments: Mapping[str, Json] | None, options: Options
) -> Call[Any]:
    """Return the call that `enqueue` was given, or that it makes of a kind and its arguments."""
    if isinstance(what, Call):
        if arguments is not None:
            raise Invalid("A call has its arguments already; pass only the call.")
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
    """Return the calls that `enqueue_many` was given; raises `Invalid` for anything that is not a call.
    `function` is the name for the example in the message."""
    if isinstance(calls, Call):
        raise Invalid("enqueue_many takes a list of calls: enqueue_many([call]).")
    made = list(calls)
    for one in made:
        if not isinstance(one, Call):
            raise not_a_call(one, "enqueue_many takes calls", function)
    return made


def not_a_call(given: object, takes: str, function: str = "f") -> Invalid:
    """Return the error for a value in the place of a call, with how the call is written."""
    name = getattr(given, "__name__", function)
    return Invalid(f"{takes}, not {given!r:.80}: pass {name}.call({_arguments(given)}).")


def _arguments(given: object) -> str:
    """How a call with these arguments is written."""
    if isinstance(given, Mapping):
        words = ", ".join(f"{name}={value!r}" for name, value in given.items())
    elif isinstance(given, tuple | list):
        words = ", ".join(map(repr, given))
    else:
        words = "..." if callable(given) else repr(given)
    return words if len(words) < 80 else "..."


def one_connection(calls: Iterable[Call[object]], connection: object) -> object:
    """Return the connection to create these calls on: their own, else `connection`. Raises `Invalid` for more
    than one: all calls are created in one commit."""
    named = [call.connection for call in calls]
    for one in named:
        if one is not None and connection is None:
            connection = one if all(other is one for other in named) else _several()
        elif one is not None and one is not connection:
            _several()
    return connection


def _several() -> NoReturn:
    raise Invalid(
        "These calls name different connections, but one commit creates them all: enqueue the calls of"
        " each connection separately."
    )


def inherited(call: Call[object], given: Options) -> Options:
    """Return those of the options for all calls that this call does not set itself."""
    said = {*call.given}
    for alike in _ALIKE:
        if said.intersection(alike):
            said.update(alike)
    return cast("Options", {name: value for name, value in given.items() if name not in said})


def command(argv: Sequence[str], **options: Unpack[CommandOptions]) -> Call[Any]:
    """Return the call of a job that runs a command, without a shell.

    The job fails with its first failed attempt, unless `retry` says otherwise.
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
    rest: Options = options  # those of any job are left
    return Call(configured(Request(spec=spec), rest, COMMAND_KIND, CommandOptions), wanted=wanted)
