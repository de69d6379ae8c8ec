"""Calls of jobs: from a kind or a command, checked, and with the options that hold for all of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, Unpack, cast

import msgspec

from holdfast.core.errors import Invalid
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.retry import COMMAND_RETRY
from holdfast.core.spec import COMMAND_KIND, Json, Spec
from holdfast.ports import JobRequest
from holdfast.runner.call import Call, not_a_call
from holdfast.runner.json_forms import typed_form
from holdfast.runner.output_promises import take_promised_outputs
from holdfast.sdk.job_options import CommandOptions, Options, with_options
from holdfast.sdk.option_signature import with_options_of

R_co = TypeVar("R_co", covariant=True)


_ALIKE = (("delay", "run_at"), ("request_id", "job_id"), ("trace_id", "traceparent"))
"""Options that set the same thing in two ways: a call that gives one of a pair has set it."""


def make_call(what: Call[Any] | str, arguments: Mapping[str, Json] | None, options: Options) -> Call[Any]:
    """Return the call that `enqueue` was given, or that it makes from a kind and its arguments."""
    if isinstance(what, Call):
        if arguments is not None:
            raise Invalid("A call has its arguments already; pass only the call.")
        if not options:
            return what
        given = {**what.given, **options}
        promised = take_promised_outputs(options, what.promised, what.kind)
        request = with_options(what.request, options, what.kind)
        return Call(request, what.result_type, promised, given, what.connection)
    if not isinstance(what, str):
        raise not_a_call(what, "enqueue takes a call, or a kind and its arguments")
    try:
        forms = {} if arguments is None else typed_form(dict(arguments), arrays=False)
        payload = msgspec.Raw(msgspec.json.encode(forms))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise Invalid(f"{what}: its arguments cannot be written as JSON: {error}.") from error
    promised = take_promised_outputs(options, None, what)
    request = with_options(JobRequest(spec=Spec(kind=what, payload=payload)), options, what)
    return Call(request, promised=promised)


def check_calls(calls: Iterable[Call[R_co]], function: str = "f") -> list[Call[R_co]]:
    """Return the calls that `enqueue_many` was given; raises `Invalid` for anything that is not a call.
    `function` is the name for the example in the message."""
    if isinstance(calls, Call):
        raise Invalid("enqueue_many takes a list of calls: enqueue_many([call]).")
    checked = list(calls)
    for one in checked:
        if not isinstance(one, Call):
            raise not_a_call(one, "enqueue_many takes calls", function)
    return checked


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


def inherited_options(call: Call[object], given: Options) -> Options:
    """Return those of the options for all calls that this call does not set itself."""
    own = {*call.given}
    for alike in _ALIKE:
        if own.intersection(alike):
            own.update(alike)
    return cast("Options", {name: value for name, value in given.items() if name not in own})


@with_options_of(CommandOptions, Options)
def command(argv: Sequence[str], **options: Unpack[CommandOptions]) -> Call[Any]:
    """Return the call of a job that runs a command, without a shell.

    The job fails with its first failed attempt, unless `retry` says otherwise.
    """
    if isinstance(argv, str):
        raise Invalid("A command is a list of words, such as ['sh', '-c', 'a | b'].")
    words = ProcessSpec(
        argv=tuple(argv),
        env=dict(options.pop("env", {})),
        cwd=options.pop("cwd", None),
        secrets=tuple(options.pop("secrets", ())),
        pty=options.pop("pty", False),
        memory_bytes=options.pop("memory", None),
    )
    spec = Spec(payload=encode_process_spec(words), retry=COMMAND_RETRY)
    promised = take_promised_outputs(options, None, COMMAND_KIND)
    rest: Options = options  # those of any job are left
    return Call(with_options(JobRequest(spec=spec), rest, COMMAND_KIND, CommandOptions), promised=promised)
