"""The app: a place for handlers, and the store their jobs live in."""

import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, get_args, overload

import msgspec
from msgspec.structs import replace

from holdfast.core.errors import Conflict, Invalid
from holdfast.core.limits import check_id
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.spec import COMMAND_KIND, Spec
from holdfast.ports import Request
from holdfast.sdk.async_client import AsyncClient, Opener
from holdfast.sdk.background import Background
from holdfast.sdk.caller import chosen_url
from holdfast.sdk.context import Context
from holdfast.sdk.job_options import (
    DecoratorOptions,
    FunctionOptions,
    Isolation,
    Options,
    configured,
    unknown_option,
)
from holdfast.sdk.jobs import JobFunction, JobOptions, compensation
from holdfast.sdk.locks import lock_name
from holdfast.sdk.open import open_registry
from holdfast.sdk.outputs import chosen_outputs
from holdfast.sdk.promising import Leaving, take_wanted
from holdfast.sdk.signature import Function, Signature, located

P = ParamSpec("P")
R = TypeVar("R")

MEMORY_BYTES_MIN = 16 * 1024 * 1024


class App:
    """Handlers, by kind, and the store of their jobs.

        app = holdfast.App("sqlite:///jobs.db")

        @app.job(max_failures=3)
        async def resize(ctx: holdfast.Context, path: str, width: int = 100) -> dict[str, int]: ...

        resize.enqueue(path="a.png")

    Nothing has to be opened or closed: the store is opened with the first job and closed at exit.
    `outputs` is where the outputs that jobs promise are kept (see `chosen_outputs` for what it is if it is
    not given): a folder that every worker sees, or a bucket, such as s3://bucket/results.
    """

    def __init__(self, url: str | None = None, *, outputs: str | None = None) -> None:
        self._url = url
        self._outputs = outputs
        self.reach = Background(self._client)
        """The way to the store, for blocking callers and for coroutines."""
        self.opener: Opener = open_registry
        """What makes a registry of a URL; a test may put its own here before the first use."""
        self.jobs: dict[str, JobFunction[..., Any, Any]] = {}

    def __repr__(self) -> str:
        return f"<holdfast app with {', '.join(self.jobs) or 'no jobs'}>"

    def _client(self) -> AsyncClient:
        return AsyncClient(self.url, outputs=self._outputs, opener=self.opener)

    @property
    def url(self) -> str:
        """The store: as given, else HOLDFAST_STORE, else of holdfast.toml, else the default."""
        return chosen_url(self._url)

    @url.setter
    def url(self, url: str) -> None:
        if self.reach.open:
            raise Conflict("The store of this app is in use already; set the URL before first use.")
        self._url = url

    @property
    def outputs(self) -> str | None:
        """The output store: as given, else HOLDFAST_OUTPUTS, else of holdfast.toml, else beside the file
        of the store; None for none."""
        return chosen_outputs(self.url, self._outputs)

    @outputs.setter
    def outputs(self, url: str | None) -> None:
        if self.reach.open:
            raise Conflict("The store of this app is in use already; set the URL before first use.")
        self._outputs = url

    @contextmanager
    def keeping(self, outputs: str) -> Iterator[None]:
        """Inside, this is its output store, whatever was given: for tests."""
        before, self._outputs = self._outputs, outputs
        try:
            yield
        finally:
            self._outputs = before

    @property
    def job(self) -> "JobDecorator":
        """Makes a function a job: `@app.job`, or `@app.job(queue="images", max_failures=3)`."""
        return JobDecorator(self, {})

    def close(self) -> None:
        """Close the store, if it is open. It is opened again when it is needed again."""
        self.reach.close()

    def add(self, function: Function, options: DecoratorOptions) -> JobFunction[..., Any, Any]:
        """Make `function` a job of this app; `job` is the decorator for it."""
        made = _job(function, options, self.reach)
        if made.kind in self.jobs:
            raise Invalid(
                f"{made.kind}: this app has a job of that kind already; give this one another name, or"
                " another version."
            )
        self.jobs[made.kind] = made
        return made


class _FunctionValues(FunctionOptions, total=False):
    """The options that `_job` itself evaluates, as their values are checked."""

    on_exhausted: OnExhausted | None
    retry: Retry | None


class _Anything:
    """A type that only a parameter for anything at all accepts."""


class JobDecorator:
    """What `app.job` is. The parameters a caller gives are the function's own without its context.

    Two kinds of functions the type checker leaves alone: one whose first parameter takes anything
    (`object`), for it could be a context, and one with a context and `Any` in its annotations, which mypy
    cannot tell from one without. Their arguments are checked when they are enqueued, as everybody's are.
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
    def __call__(self, *function: Any, **options: Any) -> Any:
        chosen: DecoratorOptions = {**self._options, **options}  # type: ignore[typeddict-item]
        if function:
            return self._app.add(function[0], chosen)
        return JobDecorator(self._app, chosen)


def _job(
    function: Function, options: DecoratorOptions, background: Background
) -> JobFunction[..., Any, Any]:
    rest: dict[str, Any] = {**options}
    what = getattr(function, "__name__", "job")
    if unknown := rest.keys() - DecoratorOptions.__annotations__.keys():
        raise _unknown(min(unknown), what)
    undo = rest.pop("compensate", None)
    own: dict[str, Any] = {
        name: rest.pop(name) for name in _FunctionValues.__annotations__ if name in rest
    }
    try:
        own = dict(msgspec.convert(own, _FunctionValues))
    except msgspec.ValidationError as error:
        raise Invalid(f"{what}: {located(str(error))}.") from error
    kind = _kind(function, own.get("name"), own.get("version", 1))
    arguments = Signature(function, kind)
    if (lock := lock_name(rest.get("lock"), arguments)) is not None:
        del rest["lock"]
    wanted = take_wanted(cast("Leaving", rest), None, kind)
    given: Options = {name: value for name, value in rest.items() if value is not None}  # type: ignore[assignment]
    template = Request(spec=Spec(kind=kind, payload=msgspec.Raw(b"{}"), retry=_retry(own)))
    isolation: Isolation = own.get("isolation", "shared")
    return JobFunction(
        function,
        arguments,
        configured(template, given, kind),
        background,
        isolation=isolation,
        memory_bytes=_memory(own.get("memory"), isolation, kind),
        compensate=None if undo is None else compensation(undo, arguments),
        lock=lock,
        wanted=wanted,
    )


def _unknown(option: str, what: str) -> Invalid:
    if option in JobOptions.__annotations__:
        return Invalid(
            f"{what}: {option} is said of one job, not of all: {what}.configure({option}=...)."
        )
    return unknown_option(option, DecoratorOptions.__annotations__, what)


def _kind(function: Function, name: str | None, version: int) -> str:
    if not inspect.isfunction(function):
        raise Invalid(f"A job is made of a function, not of {function!r}.")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise Invalid(
            f"{function.__name__}: a job returns one value; this function yields. Use ctx.emit or"
            " ctx.progress for what happens on the way."
        )
    if name is None:
        name = function.__name__
        if name == "<lambda>":
            raise Invalid("A lambda has no name to call its jobs by: say app.job(name=...).")
    check_id(name, "The name of a job")
    if name == COMMAND_KIND or ":" in name:
        raise Invalid(
            f"A job cannot be called {name}: {COMMAND_KIND} is taken by commands, and a colon parts"
            " the name from the version."
        )
    if version < 1:
        raise Invalid(f"{name}: versions are counted from 1, not from {version}.")
    return name if version == 1 else f"{name}:{version}"


def _retry(own: dict[str, Any]) -> Retry:
    finer = {name: own[name] for name in Retry.__struct_fields__ if own.get(name) is not None}
    return replace(own.get("retry") or Retry(), **finer)


def _memory(memory: int | None, isolation: Isolation, kind: str) -> int | None:
    if memory is None:
        return None
    if isolation != get_args(Isolation)[1]:
        raise Invalid(f'{kind}: memory is the limit of a process: say isolation="process" as well.')
    if memory < MEMORY_BYTES_MIN:
        raise Invalid(f"{kind}: memory is given in bytes, at least {MEMORY_BYTES_MIN:,}.")
    return memory
