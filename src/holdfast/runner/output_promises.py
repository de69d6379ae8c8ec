"""The outputs that a job promises: from the options of a call to the promise in its spec."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypedDict

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.core.manifest import Task, encode_task
from holdfast.core.outputs import File, OutputPromise, check_promise
from holdfast.core.spec import COMMAND_KIND, Spec, check_spec
from holdfast.ports.outputs import Outputs

NO_OUTPUT_STORE = (
    "There is no output store to keep outputs in: set HOLDFAST_OUTPUTS, or write App(outputs=…), such as"
    " s3://bucket/results or a folder that every worker sees."
)


class OutputOptions(TypedDict, total=False):
    """The options for the outputs of one job."""

    outputs: Sequence[str | File] | None
    """What it has to leave behind before it counts as succeeded: names for `ctx.output(name)`, or paths that
    a command writes."""
    tasks: Iterable[Task] | None
    """The tasks of a study, for `ctx.tasks()`."""


class OutputLocation(Struct, frozen=True):
    """Where outputs will be: the id of the store, its URL for display, and how a manifest is stored there.
    A server chooses its own store: then both are None here."""

    store_manifest: Callable[[AsyncIterator[bytes]], Awaitable[tuple[str, int]]]
    store: str | None = None
    url: str | None = None


def location_of(outputs: Outputs) -> OutputLocation:
    from holdfast.outputs.manifests import store_manifest

    return OutputLocation(partial(store_manifest, outputs), outputs.store_id, outputs.place)


class StudyTasks:
    """The tasks of a study, read once: every job that is created from them promises the same manifest."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks = tasks
        self._manifest: tuple[str | None, str, int] | None = None
        self._storing = asyncio.Lock()

    async def store_manifest(self, location: OutputLocation) -> tuple[str, int]:
        """Store the manifest there; return its sha256 and its number of entries."""
        async with self._storing:
            if self._manifest is None or self._manifest[0] != location.store:
                if self._manifest is not None and iter(self._tasks) is self._tasks:
                    raise Invalid("These tasks were read already: give a list, or create them again.")
                self._manifest = (location.store, *await location.store_manifest(self._lines()))
        return self._manifest[1], self._manifest[2]

    async def _lines(self) -> AsyncIterator[bytes]:
        for number, task in enumerate(self._tasks):
            if not isinstance(task, Task):
                raise Invalid(f"Task {number + 1} is {task!r:.80}; holdfast.study makes tasks.")
            yield encode_task(task)


class PromisedOutputs(Struct, frozen=True, kw_only=True):
    """The outputs that a job promises, before their store is known."""

    names: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    tasks: StudyTasks | None = None

    @property
    def stored(self) -> bool:
        """Whether any of them will be in an output store."""
        return bool(self.names) or self.tasks is not None

    async def in_spec(self, spec: Spec, location: OutputLocation | None) -> Spec:
        """Return the spec of a job that promises them; the location is given when they are `stored`."""
        promise = OutputPromise(names=self.names, files=self.files)
        if location is not None:
            promise = replace(promise, store=location.store, place=location.url)
            if self.tasks is not None:
                manifest, entries = await self.tasks.store_manifest(location)
                promise = replace(promise, manifest=manifest, entries=entries)
        promised = replace(spec, outputs=promise, promised_outputs=promise.count)
        return promised if self.stored and promise.store is None else check_spec(promised)


def take_promised_outputs(
    options: OutputOptions, before: PromisedOutputs | None, kind: str
) -> PromisedOutputs | None:
    """Remove `outputs` and `tasks` from the options of a job, and return the outputs that it promises by
    them; without these options, `before`. `Invalid`, beginning with the kind, when they are wrong."""
    if "outputs" not in options and "tasks" not in options:
        return before
    promised = before or PromisedOutputs()
    if "outputs" in options:
        given = options.pop("outputs") or ()
        names, files = _names_and_files(given, kind)
        promised = replace(promised, names=names, files=files)
    if "tasks" in options:
        tasks = options.pop("tasks")
        promised = replace(promised, tasks=None if tasks is None else _tasks(tasks, kind))
    return promised if promised.files or promised.stored else None


def _names_and_files(given: Sequence[str | File], kind: str) -> tuple[tuple[str, ...], tuple[File, ...]]:
    try:
        listed = msgspec.convert(given, tuple[str | File, ...])
    except msgspec.ValidationError as error:
        raise Invalid(
            f'{kind}: outputs is a list of names, such as ["model.bin"], not {given!r:.80}.'
        ) from error
    if kind == COMMAND_KIND:
        files = tuple(File(one) if isinstance(one, str) else one for one in listed)
        return (), _checked(OutputPromise(files=files), kind).files
    if any(isinstance(one, File) for one in listed):
        raise Invalid(f"{kind}: plain paths are for commands; a function writes ctx.output(name).")
    names = tuple(one for one in listed if isinstance(one, str))
    return _checked(OutputPromise(names=names, store="any"), kind).names, ()


def _checked(promise: OutputPromise, kind: str) -> OutputPromise:
    if not promise.count:
        return promise
    try:
        return check_promise(promise, plain=kind == COMMAND_KIND)
    except Invalid as error:
        raise Invalid(f"{kind}: {error.message}") from error


def _tasks(given: object, kind: str) -> StudyTasks:
    if isinstance(given, StudyTasks):
        return given
    if isinstance(given, str | bytes | Task) or not isinstance(given, Iterable):
        raise Invalid(f"{kind}: tasks are what holdfast.study makes, not {given!r:.80}.")
    return StudyTasks(given)
