"""A job function: a handler, and how jobs that run it are made."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.ports import Request
from holdfast.sdk.background import check_blocking
from holdfast.sdk.calls import Call, check_calls, inherited, one_connection
from holdfast.sdk.handle import Handle, Reach
from holdfast.sdk.job_options import Isolation, Options, configured
from holdfast.sdk.locks import LockName, lock_name
from holdfast.sdk.promising import Wanted, take_wanted
from holdfast.sdk.signature import Function, Signature

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
F_co = TypeVar("F_co", bound=Callable[..., Any], covariant=True)


class JobOptions(Options, total=False):
    """What `configure` takes: the options of a job, and the connection to make it on."""

    connection: object


class JobFunction(Generic[P, R_co, F_co]):
    """A handler that can be enqueued. Called directly it is the plain function.

    `enqueue` blocks until the job is durable; `enqueue_async` is the same for coroutines. Both check
    the arguments against the signature first. Use neither's result to know that the job ran: ask the
    `Handle`.
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
        request: Request,
        reach: Reach,
        *,
        isolation: Isolation = "shared",
        memory_bytes: int | None = None,
        compensate: "Compensation | None" = None,
        lock: LockName | None = None,
        wanted: Wanted | None = None,
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
        self._reach = reach
        self._lock = lock
        self._wanted = wanted
        self._given: Options = given or {}
        self._connection = connection

    @property
    def has_lock(self) -> bool:
        """Whether its jobs have a lock, when they are made by this function."""
        return self._lock is not None or self._request.spec.lock is not None

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that its handler writes by name."""
        return () if self._wanted is None else self._wanted.names

    def __repr__(self) -> str:
        return f"<job {self.kind}{inspect.signature(self.function)}>"

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """The call as a value: checked, not made. It carries the options of this function."""
        request = self._request
        defaults = self._lock.defaults if self._lock else {}
        payload = self.arguments.encode(args, kwargs, defaults)
        lock = request.spec.lock if self._lock is None else self._lock.of(payload)
        spec = replace(request.spec, payload=payload, lock=lock)
        return Call(
            replace(request, spec=spec),
            self.result_type,
            self._wanted,
            self._given,
            self._connection,
        )

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Make a job, and wait until it is durable."""
        return self.enqueue_many([self.call(*args, **kwargs)])[0]

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Make a job, and wait until it is durable. For coroutines."""
        return (await self.enqueue_many_async([self.call(*args, **kwargs)]))[0]

    def enqueue_many(self, calls: Iterable[Call[R_co]]) -> list[Handle[R_co]]:
        """Make many jobs, all checked before any is made, in as few commits as possible.

        The options of this function are those of every call that does not say otherwise itself:
        `resize.configure(queue="bulk").enqueue_many([resize.call("a")])`.
        """
        made = self._own(calls)
        connection = one_connection(made, self._connection)
        if connection is not None:
            check_blocking(connection)
        jobs = self._reach.call(lambda client: client.make(made, connection=connection))
        return [Handle(job, self.result_type, self._reach) for job in jobs]

    async def enqueue_many_async(self, calls: Iterable[Call[R_co]]) -> list[Handle[R_co]]:
        """As `enqueue_many`, for coroutines."""
        made = self._own(calls)
        connection = one_connection(made, self._connection)
        jobs = await self._reach.call_async(
            lambda client: client.make(made, connection=connection), here=connection is not None
        )
        return [Handle(job, self.result_type, self._reach) for job in jobs]

    def configure(self, **options: Unpack[JobOptions]) -> "JobFunction[P, R_co, F_co]":
        """The same function with other options: `resize.configure(delay=60).enqueue(path="a")`.

        With a `connection` in the middle of a transaction of yours on the store's own PostgreSQL
        database, the jobs exist if and only if you commit: a blocking psycopg connection for
        `enqueue`, any of asyncpg's or psycopg's for `enqueue_async`.
        """
        connection = options.pop("connection", self._connection)
        given: Options = {**self._given, **options}  # type: ignore[typeddict-unknown-key]
        lock = self._lock
        if "lock" in options and (lock := lock_name(options["lock"], self.arguments)) is not None:
            options["lock"] = None
        wanted = take_wanted(options, self._wanted, self.kind)
        if "tasks" in given:  # read once, however many jobs are made of them
            given["tasks"] = None if wanted is None else wanted.tasks  # type: ignore[typeddict-item]
        return JobFunction(
            self.function,
            self.arguments,
            configured(self._request, options, self.kind, JobOptions),
            self._reach,
            isolation=self.isolation,
            memory_bytes=self.memory_bytes,
            compensate=self.compensate,
            lock=lock,
            wanted=wanted,
            given=given,
            connection=connection,
        )

    def _own(self, calls: Iterable[Call[R_co]]) -> list[Call[R_co]]:
        """The calls with the options of this function, where they have none of their own."""
        made = check_calls(calls, self.function.__name__)
        for call in made:
            if call.kind != self.kind:
                raise Invalid(
                    f"{self.kind}: this is a call of {call.kind}; make it with that function."
                )
        if not self._given:
            return made
        taking = [inherited(call, self._given) for call in made]
        for name in ("request_id", "job_id"):
            if sum(options.get(name) is not None for options in taking) > 1:
                raise Invalid(
                    f"{self.kind}: a {name} names one job, and here are several: give each its own,"
                    f" {self.function.__name__}.configure({name}=...).call(...)."
                )
        return [self._with(call, options) for call, options in zip(made, taking, strict=True)]

    def _with(self, call: Call[R_co], options: Options) -> Call[R_co]:
        """The call with these options as well."""
        if not options:
            return call
        request = call.request
        given: Options = {**options, **call.given}
        if "lock" in options and self._lock is not None:
            payload = self.arguments.complete(call.payload, self._lock.defaults)
            request = replace(request, spec=replace(request.spec, payload=payload))
            options["lock"] = self._lock.of(payload)
        wanted = take_wanted(options, call.wanted, self.kind)
        request = configured(request, options, self.kind)
        return Call(request, call.result_type, wanted, given, call.connection)


class Compensation(Struct, frozen=True):
    """The function that undoes what a handler did; it takes the same arguments."""

    function: Function
    is_async: bool
    takes_context: bool


def compensation(function: object, handler: Signature) -> Compensation:
    """`function` as a compensation; `Invalid` unless it can be called with the handler's arguments."""
    what = f"{handler.kind}: compensate"
    if not inspect.isfunction(function):
        raise Invalid(f"{what} is a function, not {function!r}.")
    its = Signature(function, what)
    if its.parameters.keys() != handler.parameters.keys():
        wanted, found = (", ".join(s.parameters) or "nothing" for s in (handler, its))
        raise Invalid(f"{what} takes what the handler takes, {wanted}; this one takes {found}.")
    for name, parameter in handler.parameters.items():
        optional = parameter.default is not parameter.empty
        if optional and its.parameters[name].default is parameter.empty:
            raise Invalid(f"{what} needs a default for {name}, as the handler has one.")
    return Compensation(function, inspect.iscoroutinefunction(function), its.takes_context)
