"""A job function: a handler, and how jobs that run it are enqueued."""

import functools
import inspect
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.ports import JobRequest
from holdfast.runner.call import Call
from holdfast.runner.output_promises import PromisedOutputs, take_promised_outputs
from holdfast.runner.signature import Function, Signature
from holdfast.sdk.caller_connection import blocking_connection
from holdfast.sdk.handle import ClientAccess, Handle, handles
from holdfast.sdk.job_calls import check_calls, inherited_options, one_connection
from holdfast.sdk.job_options import Isolation, Options, with_options
from holdfast.sdk.lock_pattern import LockPattern, lock_pattern
from holdfast.sdk.option_signature import with_options_of

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
F_co = TypeVar("F_co", bound=Callable[..., Any], covariant=True)


class JobOptions(Options, total=False):
    """What `configure` takes: the options of a job, and the connection to create it on."""

    connection: object


class JobFunction(Generic[P, R_co, F_co]):
    """A handler whose jobs can be enqueued. Called directly, it is the plain function.

    `enqueue` blocks until the job is durable; `enqueue_async` is the same for coroutines. Both check the
    arguments against the signature first, and return a `Handle`, by which you learn how the job ended.
    """

    kind: str
    function: Function
    is_async: bool
    takes_context: bool
    arguments: Signature
    result_type: Any
    isolation: Isolation
    memory_bytes: int | None
    compensate: "Compensation | None"

    if TYPE_CHECKING:

        @property
        def __call__(self) -> F_co: ...

    else:

        def __call__(self, *args: object, **kwargs: object) -> object:
            return self.function(*args, **kwargs)

    def __init__(
        self,
        function: Function,
        arguments: Signature,
        request: JobRequest,
        access: ClientAccess,
        *,
        isolation: Isolation = "shared",
        memory_bytes: int | None = None,
        compensate: "Compensation | None" = None,
        lock: LockPattern | None = None,
        promised: PromisedOutputs | None = None,
        given: Options | None = None,
        connection: object = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.kind = arguments.kind
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self.takes_context = arguments.takes_context
        self.arguments = arguments
        self.result_type = arguments.result_type
        self.isolation = isolation
        self.memory_bytes = memory_bytes
        self.compensate = compensate
        self._request = request
        self._access = access
        self._lock = lock
        self._promised = promised
        self._given: Options = given or {}
        self._connection = connection

    @property
    def has_lock(self) -> bool:
        """Whether jobs that this function enqueues have a lock."""
        return self._lock is not None or self._request.spec.lock is not None

    @property
    def queue(self) -> str:
        """The queue that its jobs are enqueued in."""
        return self._request.spec.queue

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs that its handler writes."""
        return () if self._promised is None else self._promised.names

    def __repr__(self) -> str:
        return f"<job {self.kind}{inspect.signature(self.function)}>"

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """Return the call as a value: checked, not enqueued. It has the options of this function."""
        request = self._request
        defaults = self._lock.defaults if self._lock else {}
        payload = self.arguments.encode(args, kwargs, defaults)
        lock = request.spec.lock if self._lock is None else self._lock.of(payload)
        spec = replace(request.spec, payload=payload, lock=lock)
        return Call(
            replace(request, spec=spec),
            self.result_type,
            self._promised,
            self._given,
            self._connection,
        )

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Create a job, and wait until it is durable."""
        return self.enqueue_many([self.call(*args, **kwargs)])[0]

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Create a job, and wait until it is durable. For coroutines."""
        return (await self.enqueue_many_async([self.call(*args, **kwargs)]))[0]

    def enqueue_many(self, calls: Iterable[Call[R_co]]) -> list[Handle[R_co]]:
        """Create many jobs, all checked before any is created, in as few commits as possible.

        The options of this function hold for every call that does not set them itself:
        `resize.configure(queue="bulk").enqueue_many([resize.call("a")])`.
        """
        configured_calls = self._configured(calls)
        connection = one_connection(configured_calls, self._connection)
        if connection is not None:
            connection = blocking_connection(connection)
        jobs = self._access.call(lambda client: client.create_jobs_on(connection, configured_calls))
        return handles(jobs, repeat(self.result_type), self._access)

    async def enqueue_many_async(self, calls: Iterable[Call[R_co]]) -> list[Handle[R_co]]:
        """As `enqueue_many`, for coroutines."""
        configured_calls = self._configured(calls)
        connection = one_connection(configured_calls, self._connection)
        jobs = await self._access.call_async(
            lambda client: client.create_jobs(configured_calls, connection=connection),
            here=connection is not None,
        )
        return handles(jobs, repeat(self.result_type), self._access)

    @with_options_of(JobOptions, Options)
    def configure(self, **options: Unpack[JobOptions]) -> "JobFunction[P, R_co, F_co]":
        """Return the same function with other options: `resize.configure(delay=60).enqueue(path="a")`.

        With a `connection` to the store's own PostgreSQL database that is in a transaction, the jobs exist
        if and only if you commit. It is one of psycopg (3) or asyncpg, a connection or session of SQLAlchemy
        on one of them, or one of Django on psycopg; `enqueue` takes only those that block.
        """
        connection = options.pop("connection", self._connection)
        given: Options = {**self._given, **options}  # type: ignore[typeddict-unknown-key]
        lock = self._lock
        if "lock" in options and (lock := lock_pattern(options["lock"], self.arguments)) is not None:
            options["lock"] = None
        promised = take_promised_outputs(options, self._promised, self.kind)
        if "tasks" in given:  # read once for all jobs
            given["tasks"] = None if promised is None else promised.tasks  # type: ignore[typeddict-item]
        return JobFunction(
            self.function,
            self.arguments,
            with_options(self._request, options, self.kind, JobOptions),
            self._access,
            isolation=self.isolation,
            memory_bytes=self.memory_bytes,
            compensate=self.compensate,
            lock=lock,
            promised=promised,
            given=given,
            connection=connection,
        )

    def _configured(self, calls: Iterable[Call[R_co]]) -> list[Call[R_co]]:
        """Return the calls with the options of this function, where they do not set them themselves."""
        checked = check_calls(calls, self.function.__name__)
        for call in checked:
            if call.kind != self.kind:
                raise Invalid(f"{self.kind}: this is a call of {call.kind}; enqueue it with that function.")
        if not self._given:
            return checked
        options_of = [inherited_options(call, self._given) for call in checked]
        for name in ("request_id", "job_id"):
            if sum(options.get(name) is not None for options in options_of) > 1:
                raise Invalid(
                    f"{self.kind}: a {name} names one job, and these are several: give each its own,"
                    f" {self.function.__name__}.configure({name}=...).call(...)."
                )
        return [self._with(call, options) for call, options in zip(checked, options_of, strict=True)]

    def _with(self, call: Call[R_co], options: Options) -> Call[R_co]:
        """Return the call with these options as well."""
        if not options:
            return call
        request = call.request
        given = {**options, **call.given}
        if "lock" in options and self._lock is not None:
            payload = self.arguments.complete(call.payload, self._lock.defaults)
            request = replace(request, spec=replace(request.spec, payload=payload))
            options["lock"] = self._lock.of(payload)
        promised = take_promised_outputs(options, call.promised, self.kind)
        request = with_options(request, options, self.kind)
        return Call(request, call.result_type, promised, given, call.connection)


class Compensation(Struct, frozen=True):
    """The function that undoes the work of a handler; it takes the same arguments."""

    function: Function
    is_async: bool
    takes_context: bool


def compensation(function: object, handler: Signature) -> Compensation:
    """Return `function` as a compensation; `Invalid` unless it takes the arguments of the handler."""
    what = f"{handler.kind}: compensate"
    if not inspect.isfunction(function):
        raise Invalid(f"{what} is a function, not {function!r}.")
    signature = Signature(function, what)
    if signature.parameters.keys() != handler.parameters.keys():
        expected, found = (", ".join(one.parameters) or "nothing" for one in (handler, signature))
        raise Invalid(f"{what} takes what the handler takes, {expected}; this one takes {found}.")
    for name, parameter in handler.parameters.items():
        optional = parameter.default is not parameter.empty
        if optional and signature.parameters[name].default is parameter.empty:
            raise Invalid(f"{what} needs a default for {name}, as the handler has one.")
    return Compensation(function, inspect.iscoroutinefunction(function), signature.takes_context)
