"""Promising: what a job is to leave behind, from what its maker says to what its spec holds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypedDict

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.core.manifest import Task, encode_task
from holdfast.core.outputs import File, Promise, check_promise
from holdfast.core.spec import COMMAND_KIND, Spec, check_spec
from holdfast.ports.outputs import Outputs


class Leaving(TypedDict, total=False):
    """What may be said about what one job is to leave behind."""

    outputs: Sequence[str | File] | None
    tasks: Iterable[Task] | None


class Place(Struct, frozen=True):
    """Where outputs will be: which store, where it is, and how a manifest gets there. At a server that
    names its own, it has no name here."""

    keep: Callable[[AsyncIterator[bytes]], Awaitable[tuple[str, int]]]
    store: str | None = None
    shown: str | None = None


def place_of(outputs: Outputs) -> Place:
    from holdfast.outputs.manifests import keep

    return Place(partial(keep, outputs), outputs.store_id, outputs.place)


class Tasks:
    """The tasks of a study, read once: a job that is made again of them promises the same manifest."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks = tasks
        self._kept: tuple[str | None, str, int] | None = None
        self._keeping = asyncio.Lock()

    async def keep(self, place: Place) -> tuple[str, int]:
        """Keep the manifest in this place: its sha256, and how many entries it has."""
        async with self._keeping:
            if self._kept is None or self._kept[0] != place.store:
                if self._kept is not None and iter(self._tasks) is self._tasks:
                    raise Invalid("These tasks were read already: give a list, or make them anew.")
                self._kept = (place.store, *await place.keep(self._lines()))
        return self._kept[1], self._kept[2]

    async def _lines(self) -> AsyncIterator[bytes]:
        for number, task in enumerate(self._tasks):
            if not isinstance(task, Task):
                raise Invalid(f"Task {number + 1} is {task!r:.80}; holdfast.study makes tasks.")
            yield encode_task(task)


class Wanted(Struct, frozen=True, kw_only=True):
    """What a job is to leave behind, before it is known in which store."""

    names: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    tasks: Tasks | None = None

    @property
    def stored(self) -> bool:
        """Whether any of it will be in an output store."""
        return bool(self.names) or self.tasks is not None

    async def promised(self, spec: Spec, place: Place | None) -> Spec:
        """The spec of a job that promises it; a place is given when it is `stored`."""
        promise = Promise(names=self.names, files=self.files)
        if place is not None:
            promise = replace(promise, store=place.store, place=place.shown)
            if self.tasks is not None:
                manifest, entries = await self.tasks.keep(place)
                promise = replace(promise, manifest=manifest, entries=entries)
        promised = replace(spec, outputs=promise, promised_outputs=promise.count)
        return promised if self.stored and promise.store is None else check_spec(promised)


def take_wanted(options: Leaving, before: Wanted | None, kind: str) -> Wanted | None:
    """Take `outputs` and `tasks` from the options of a job: what it is to leave behind by them, else as
    `before`. `Invalid`, beginning with the kind, when they are wrong."""
    if "outputs" not in options and "tasks" not in options:
        return before
    wanted = before or Wanted()
    if "outputs" in options:
        given = options.pop("outputs") or ()
        names, files = _named(given, kind)
        wanted = replace(wanted, names=names, files=files)
    if "tasks" in options:
        tasks = options.pop("tasks")
        wanted = replace(wanted, tasks=None if tasks is None else _tasks(tasks, kind))
    return wanted if wanted.files or wanted.stored else None


def _named(given: Sequence[str | File], kind: str) -> tuple[tuple[str, ...], tuple[File, ...]]:
    try:
        listed = msgspec.convert(given, tuple[str | File, ...])
    except msgspec.ValidationError as error:
        raise Invalid(
            f'{kind}: outputs is a list of names, such as ["model.bin"], not {given!r:.80}.'
        ) from error
    if kind == COMMAND_KIND:
        files = tuple(File(one) if isinstance(one, str) else one for one in listed)
        return (), _checked(Promise(files=files), kind).files
    if any(isinstance(one, File) for one in listed):
        raise Invalid(f"{kind}: plain paths are for commands; a function writes ctx.output(name).")
    names = tuple(one for one in listed if isinstance(one, str))
    return _checked(Promise(names=names, store="any"), kind).names, ()


def _checked(promise: Promise, kind: str) -> Promise:
    if not promise.count:
        return promise
    try:
        return check_promise(promise, plain=kind == COMMAND_KIND)
    except Invalid as error:
        raise Invalid(f"{kind}: {error.message}") from error


def _tasks(given: object, kind: str) -> Tasks:
    if isinstance(given, Tasks):
        return given
    if isinstance(given, str | bytes | Task) or not isinstance(given, Iterable):
        raise Invalid(f"{kind}: tasks are what holdfast.study makes, not {given!r:.80}.")
    return Tasks(given)
