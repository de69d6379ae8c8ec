"""The shelf: what one attempt puts into the output store, and what it finds there."""

import errno
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.errors import Invalid, NotFound, Unavailable
from holdfast.core.manifest import Task
from holdfast.core.outputs import Promise
from holdfast.outputs.lazily import LazyOutputs
from holdfast.outputs.managed import commit
from holdfast.outputs.manifests import tasks
from holdfast.outputs.results import Result, Results, Writer
from holdfast.ports.outputs import Outputs
from holdfast.sdk.bridge import Bridge
from holdfast.sdk.output_file import OutputFile
from holdfast.sdk.task_handle import TaskHandle

if TYPE_CHECKING:
    from holdfast.sdk.context import Context

TOGETHER = 100
"""How many results are looked for at a time."""
DISK = frozenset({errno.EDQUOT, errno.EIO, errno.ENOSPC, errno.EROFS})
"""What a disk says that is full, or broken."""


class Shelf:
    """Where an attempt leaves what its job has promised."""

    def __init__(
        self, context: "Context", promise: Promise, bridge: Bridge, store: LazyOutputs | None
    ) -> None:
        self.promise = promise
        self.bridge = bridge
        self._context = context
        self._store = store

    async def open(self) -> Outputs:
        """The output store that the job was promised for; `Unavailable` when this worker has another."""
        outputs = await self._store.get() if self._store is not None else None
        if outputs is None:
            raise Unavailable(
                "This worker has no output store: set HOLDFAST_OUTPUTS, or --outputs."
            )
        if outputs.store_id != self.promise.store:
            raise Unavailable(
                f"Its outputs belong into {self.promise.place} ({self.promise.store}); the output store"
                f" of this worker is {outputs.place} ({outputs.store_id})."
            )
        return outputs

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Note what keeps outputs from being kept: a store or a disk that is full or away, not the work."""
        try:
            yield
        except (Unavailable, OSError) as error:
            self.note(error)
            raise

    def note(self, error: BaseException | None) -> None:
        if isinstance(error, Unavailable) or (isinstance(error, OSError) and error.errno in DISK):
            self._context.output_fault = error

    # Outputs by name.

    def file(self, name: str) -> OutputFile:
        promise = self.promise
        again = promise.resume_attempt > 0 and name in self._context.declared
        if name not in promise.names and not again:
            promised = ", ".join(promise.names) or "none by name"
            raise Invalid(
                f"The job has promised no output {name!r:.80}; it has promised {promised}."
            )
        return OutputFile(self, name)

    async def commit(self, name: str, source: Path) -> None:
        """Keep the file as this attempt's output of this name."""
        context = self._context
        context.check_owner()
        with self.kept():
            await commit(await self.open(), context.job_id, context.fencing_token, name, source)

    # Results of tasks.

    def tasks(self) -> Generator[TaskHandle, None, None]:
        self._check_study()
        instead = "async for task in ctx.tasks_async()"
        self.bridge.check_plain(instead)
        batches = self._lacking()
        try:
            while (batch := self.bridge.wait(lambda: _next(batches), instead)) is not None:
                for number, task in batch:
                    self._begin(number)
                    yield TaskHandle(task, self)
        finally:
            self.bridge.later(batches.aclose)
        self._context.progress(self.promise.entries, self.promise.entries)

    async def tasks_async(self) -> AsyncGenerator[TaskHandle, None]:
        self._check_study()
        batches = self._lacking()
        try:
            while (batch := await self.bridge.go(lambda: _next(batches))) is not None:
                for number, task in batch:
                    self._begin(number)
                    yield TaskHandle(task, self)
        finally:
            self.bridge.later(batches.aclose)
        self._context.progress(self.promise.entries, self.promise.entries)

    def _check_study(self) -> None:
        if self.promise.manifest is None:
            raise Invalid("The job has no tasks: make it with configure(tasks=holdfast.study(…)).")

    def _begin(self, number: int) -> None:
        self._context.check()
        self._context.progress(number, self.promise.entries)

    async def _lacking(self) -> AsyncGenerator[list[tuple[int, Task]], None]:
        """The tasks that have no whole result, each with how many come before it."""
        with self.kept():
            outputs = await self.open()
        results, number = Results(outputs), 0
        async with aclosing(_together(tasks(outputs, self.promise.manifest or ""))) as batches:
            async for batch in batches:
                with self.kept():
                    seen = await results.check_many(batch)
                yield [
                    (number + at, task)
                    for at, (task, (output, _)) in enumerate(zip(batch, seen, strict=True))
                    if output.missing is not None
                ]
                number += len(batch)

    async def save(self, task: Task, files: Mapping[str, bytes], error: str | None = None) -> None:
        context = self._context
        context.check_owner()
        writer = Writer(context.job_id, context.fencing_token)
        with self.kept():
            await Results(await self.open()).put(task, files, writer=writer, error=error)

    async def result(self, task: Task) -> Result:
        result = await Results(await self.open()).get(task)
        if result is None:
            raise NotFound(f"There is no whole result of {task.name}.")
        return result


async def _together(found: AsyncIterator[Task]) -> AsyncGenerator[list[Task], None]:
    batch: list[Task] = []
    async for task in found:
        batch.append(task)
        if len(batch) == TOGETHER:
            yield batch
            batch = []
    if batch:
        yield batch


async def _next(
    batches: AsyncGenerator[list[tuple[int, Task]], None],
) -> list[tuple[int, Task]] | None:
    return await anext(batches, None)
