"""A call: the checked request for one job, as a value."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from holdfast.core.errors import Invalid
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.runner.output_promises import PromisedOutputs

R_co = TypeVar("R_co", covariant=True)


class Call(Struct, Generic[R_co], frozen=True, gc=False):
    """One job to create: its arguments have been checked, and nothing has been sent yet.

    `given` are the options that `configure` was given for it: they win over the options of the function that
    enqueues it. `connection` is the database connection to create it on.
    """

    request: JobRequest
    """The job as it will be enqueued."""
    result_type: Any = Any
    promised: PromisedOutputs | None = None
    given: Mapping[str, Any] = {}
    connection: object = None
    """The caller's database connection that it is created on."""

    @property
    def spec(self) -> Spec:
        """What is asked for."""
        return self.request.spec

    @property
    def kind(self) -> str:
        """What runs it."""
        return self.request.spec.kind

    @property
    def payload(self) -> msgspec.Raw:
        """Its arguments, as JSON."""
        return self.request.spec.payload

    @property
    def request_id(self) -> str | None:
        """The id by which a repeated request is known."""
        return self.request.request_id


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
