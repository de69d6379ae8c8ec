"""The app: handlers by kind, and the store of their jobs."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, get_args, overload

import msgspec
from msgspec.structs import replace

from holdfast.core.durations import Duration
from holdfast.core.errors import Conflict, Invalid
from holdfast.core.limits import check_id
from holdfast.core.retry import FUNCTION_RETRY, OnExhausted, Retry
from holdfast.core.spec import COMMAND_KIND, Spec
from holdfast.outputs.lazy import LazyOutputs
from holdfast.ports import JobRequest
from holdfast.runner.context import Context
from holdfast.runner.output_promises import OutputOptions, take_promised_outputs
from holdfast.runner.signature import Function, Signature, located
from holdfast.sdk.async_client import AsyncClient, Opener
from holdfast.sdk.background import BackgroundClient
from holdfast.sdk.defaults import chosen_url
from holdfast.sdk.importable import is_interactive
from holdfast.sdk.job_function import JobFunction, JobOptions, compensation
from holdfast.sdk.job_options import (
    DecoratorOptions,
    FunctionOptions,
    Isolation,
    Options,
    parsed_retry,
    unknown_option,
    with_options,
)
from holdfast.sdk.lock_pattern import lock_pattern
from holdfast.sdk.open import open_registry
from holdfast.sdk.option_signature import with_options_of
from holdfast.sdk.output_store import chosen_outputs, lazy_outputs

if TYPE_CHECKING:
    from holdfast.sdk.app_worker import AppWorker
    from holdfast.sdk.work_report import WorkSummary

P = ParamSpec("P")
R = TypeVar("R")

MEMORY_BYTES_MIN = 16 * 1024 * 1024


class App:
    """Handlers, by kind, and the store of their jobs.

        app = holdfast.App("sqlite:///jobs.db")

        @app.job(max_failures=3)
        async def resize(ctx: holdfast.Context, path: str, width: int = 100) -> dict[str, int]: ...

        resize.enqueue(path="a.png")

    Nothing has to be opened or closed: the store is opened by the first job and closed at exit. `outputs`
    is the store of the outputs that jobs promise: a folder that every worker sees, or a bucket, such as
    s3://bucket/results; by default as `chosen_outputs` says.
    """

    def __init__(self, url: str | None = None, *, outputs: str | None = None) -> None:
        self._url = url
        self._outputs = outputs
        self.background = BackgroundClient(self.client)
        """The client of this app, for blocking callers and for coroutines."""
        self.opener: Opener = open_registry
        """Opens the registry behind a URL; a test may set its own before the first use."""
        self.jobs: dict[str, JobFunction[..., Any, Any]] = {}

    def __repr__(self) -> str:
        return f"<holdfast app with {', '.join(self.jobs) or 'no jobs'}>"

    def client(self) -> AsyncClient:
        """Return a new client of the store of this app, to be opened with `async with`."""
        return AsyncClient(self.url, outputs=self._outputs, opener=self.opener)

    @property
    def url(self) -> str:
        """The URL of the store: as given, else HOLDFAST_STORE, else in holdfast.toml, else the default."""
        return chosen_url(self._url)

    @url.setter
    def url(self, url: str) -> None:
        if self.background.open:
            raise Conflict("The store of this app is in use already; set the URL before first use.")
        self._url = url

    @property
    def outputs(self) -> str | None:
        """The URL of the output store: as given, else HOLDFAST_OUTPUTS, else in holdfast.toml, else beside
        the file of the store; None if there is none."""
        return chosen_outputs(self.url, self._outputs)

    @outputs.setter
    def outputs(self, url: str | None) -> None:
        if self.background.open:
            raise Conflict("The store of this app is in use already; set the URL before first use.")
        self._outputs = url

    def output_store(self) -> LazyOutputs:
        """Return the output store, to be opened when it is needed. For the code that runs handlers."""
        return lazy_outputs(self.url, self._outputs)

    @contextmanager
    def using_outputs(self, outputs: str) -> Iterator[None]:
        """A context in which this is the output store of the app. For tests."""
        before, self._outputs = self._outputs, outputs
        try:
            yield
        finally:
            self._outputs = before

    @property
    def job(self) -> "JobDecorator":
        """The decorator that makes a function a job: `@app.job`, or `@app.job(queue="images")`."""
        return JobDecorator(self, {})

    def close(self) -> None:
        """Close the store, if it is open. The next use opens it again."""
        self.background.close()

    def work(
        self,
        *,
        queues: Iterable[str] | None = None,
        concurrency: int | None = None,
        drain: bool = False,
        leave: Duration = 10,
    ) -> "WorkSummary":
        """Run jobs of this app here, until stopped (Ctrl-C); with `drain`, until its queues are empty. Return
        what was done. For a script or a notebook; `holdfast worker` is the same as a program.

        `queues` are those of its functions, and `default`, unless given; `concurrency` is how many jobs run
        at the same time.
        Functions of a module run in processes of their own, those of a script or a notebook in threads of
        this process. A worker that is stopped lets running jobs end for `leave`, then gives them back.
        """
        worker = self._worker(queues=queues, concurrency=concurrency, drain=drain, leave=leave)
        return worker.start().wait()

    async def work_async(
        self,
        *,
        queues: Iterable[str] | None = None,
        concurrency: int | None = None,
        drain: bool = False,
        leave: Duration = 10,
    ) -> "WorkSummary":
        """As `work`, for coroutines. One that is cancelled lets the worker leave first."""
        worker = self._worker(queues=queues, concurrency=concurrency, drain=drain, leave=leave)
        await asyncio.to_thread(worker.start)
        return await worker.wait_async()

    def worker(
        self,
        *,
        queues: Iterable[str] | None = None,
        concurrency: int | None = None,
        leave: Duration = 10,
    ) -> "AppWorker":
        """A worker in the background while a block runs: `with app.worker():`, or `async with`. At the end
        running jobs have `leave` to end, then they are given back. The options are those of `work`."""
        return self._worker(queues=queues, concurrency=concurrency, drain=False, leave=leave)

    def _worker(
        self, *, queues: Iterable[str] | None, concurrency: int | None, drain: bool, leave: Duration
    ) -> "AppWorker":
        from holdfast.sdk.app_worker import AppWorker, worker_settings  # few programs run one

        settings = worker_settings(self, queues=queues, concurrency=concurrency, drain=drain, leave=leave)
        return AppWorker(self, settings, slots_given=concurrency is not None)

    def add(self, function: Function, options: DecoratorOptions) -> JobFunction[..., Any, Any]:
        """Make `function` a job of this app, as the decorator `job` does."""
        job = _job(function, options, self.background)
        if (there := self.jobs.get(job.kind)) is not None and not _is_written_again(there, job):
            raise Invalid(
                f"{job.kind}: this app has a job of that kind already; give this one another name, or"
                " another version."
            )
        self.jobs[job.kind] = job
        return job


def _is_written_again(there: JobFunction[..., Any, Any], job: JobFunction[..., Any, Any]) -> bool:
    """Whether a cell of a notebook was run again: what it defines takes the place of what it had defined."""
    places = {(one.function.__module__, one.function.__qualname__) for one in (there, job)}
    return is_interactive() and places == {("__main__", job.function.__qualname__)}


class _FunctionValues(FunctionOptions, total=False):
    """The options that `_job` itself evaluates, as their values are checked."""

    on_exhausted: OnExhausted | None
    retry: Retry | None


class _Anything:
    """A type that only a parameter for anything at all accepts."""


class JobDecorator:
    """The type of `app.job`. A job takes the parameters of its function without the context.

    The type checker does not check the arguments of two kinds of functions: one whose first parameter takes
    anything (`object`), since it could be a context, and one with a context and `Any` in its annotations,
    which mypy cannot tell from one without. Arguments are checked when a job is enqueued in any case.
    """

    def __init__(self, app: App, options: DecoratorOptions) -> None:
        self._app = app
        self._options = options

    @overload
    def __call__(
        self, function: Callable[Concatenate[_Anything, P], Coroutine[Any, Any, R]], /
    ) -> JobFunction[..., R, Callable[..., Coroutine[Any, Any, R]]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[_Anything, P], R], /
    ) -> JobFunction[..., R, Callable[..., R]]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> JobFunction[P, R, Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> JobFunction[P, R, Callable[Concatenate[Context, P], R]]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> JobFunction[P, R, Callable[P, Coroutine[Any, Any, R]]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> JobFunction[P, R, Callable[P, R]]: ...
    @overload
    def __call__(self, **options: Unpack[DecoratorOptions]) -> "JobDecorator": ...
    @with_options_of(DecoratorOptions)
    def __call__(self, *function: Any, **options: Any) -> Any:
        """Make a function a job, or return the decorator with these options."""
        chosen: DecoratorOptions = {**self._options, **options}  # type: ignore[typeddict-item]
        if function:
            return self._app.add(function[0], chosen)
        return JobDecorator(self._app, chosen)


def _job(
    function: Function, options: DecoratorOptions, background: BackgroundClient
) -> JobFunction[..., Any, Any]:
    rest: dict[str, Any] = {**options}
    what = getattr(function, "__name__", "job")
    if unknown := rest.keys() - DecoratorOptions.__annotations__.keys():
        raise _unknown(min(unknown), what)
    hook = rest.pop("compensate", None)
    own: dict[str, Any] = {name: rest.pop(name) for name in _FunctionValues.__annotations__ if name in rest}
    try:
        own = dict(msgspec.convert(own, _FunctionValues))
    except msgspec.ValidationError as error:
        raise Invalid(f"{what}: {located(str(error))}.") from error
    kind = _kind(function, own.get("kind"), own.get("version", 1))
    arguments = Signature(function, kind)
    if (lock := lock_pattern(rest.get("lock"), arguments)) is not None:
        del rest["lock"]
    promised = take_promised_outputs(cast("OutputOptions", rest), None, kind)
    given: Options = {name: value for name, value in rest.items() if value is not None}  # type: ignore[assignment]
    template = JobRequest(spec=Spec(kind=kind, payload=msgspec.Raw(b"{}"), retry=_retry(own, kind)))
    isolation: Isolation = own.get("isolation", "shared")
    return JobFunction(
        function,
        arguments,
        with_options(template, given, kind),
        background,
        isolation=isolation,
        memory_bytes=_memory(own.get("memory"), isolation, kind),
        compensate=None if hook is None else compensation(hook, arguments),
        lock=lock,
        promised=promised,
    )


def _unknown(option: str, what: str) -> Invalid:
    if option == "name":
        return Invalid(
            f"{what}: a name is of one job: {what}.configure(name=...). What all its jobs are called is their"
            " kind: @app.job(kind=...)."
        )
    if option in JobOptions.__annotations__:
        return Invalid(
            f"{what}: {option} is an option of one job, not of all: {what}.configure({option}=...)."
        )
    return unknown_option(option, DecoratorOptions.__annotations__, what)


def _kind(function: Function, name: str | None, version: int) -> str:
    if not inspect.isfunction(function):
        raise Invalid(f"A job is made from a function, not from {function!r}.")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise Invalid(
            f"{function.__name__}: a job returns one value; this function yields. Use ctx.emit or"
            " ctx.progress to report what happens on the way."
        )
    if name is None:
        name = function.__name__
        if name == "<lambda>":
            raise Invalid("A lambda has no name for its jobs: write app.job(kind=...).")
    check_id(name, "The kind of a job")
    if name == COMMAND_KIND or ":" in name:
        raise Invalid(
            f"A job cannot be called {name}: {COMMAND_KIND} is reserved for commands, and a colon"
            " separates the name from the version."
        )
    if version < 1:
        raise Invalid(f"{name}: versions are counted from 1, not from {version}.")
    return name if version == 1 else f"{name}:{version}"


def _retry(own: dict[str, Any], what: str) -> Retry:
    given: Retry | None = own.get("retry")
    refined = {name: own[name] for name in Retry.__struct_fields__ if own.get(name) is not None}
    retry = FUNCTION_RETRY if given is None else parsed_retry(given, what)
    return replace(retry, **refined) if refined else retry


def _memory(memory: int | None, isolation: Isolation, kind: str) -> int | None:
    if memory is None:
        return None
    if isolation != get_args(Isolation)[1]:
        raise Invalid(f'{kind}: memory is the limit of a process: write isolation="process" as well.')
    if memory < MEMORY_BYTES_MIN:
        raise Invalid(f"{kind}: memory is given in bytes, at least {MEMORY_BYTES_MIN:,}.")
    return memory
