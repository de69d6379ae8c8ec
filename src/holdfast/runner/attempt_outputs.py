"""The outputs of one attempt: what its handler stores, and what it finds stored."""

import errno
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol

from holdfast.core.errors import Invalid, NotFound, Unavailable
from holdfast.core.manifest import Task
from holdfast.core.outputs import OutputPromise
from holdfast.outputs.lazy import LazyOutputs
from holdfast.outputs.managed import commit
from holdfast.outputs.manifests import read_task_batches
from holdfast.outputs.results import Result, ResultAuthor, Results
from holdfast.ports.outputs import Outputs
from holdfast.runner.bridge import Bridge
from holdfast.runner.task_handle import TaskHandle
from holdfast.runner.temp_files import TempFiles

BATCH_TASKS = 100
"""How many results are looked up at a time."""
DISK_ERRORS = frozenset({errno.EDQUOT, errno.EIO, errno.ENOSPC, errno.EROFS})
"""The errors of a disk that is full, or broken."""

_temp_files = TempFiles()


class Attempt(Protocol):
    """The attempt that outputs are written for; a `Context`."""

    job_id: str
    fencing_token: int
    declared: tuple[str, ...]
    output_fault: Exception | None

    def check_owner(self) -> None: ...

    def check(self) -> None: ...

    def progress(self, done: int, total: int | None = None, message: str | None = None) -> None: ...


class AttemptOutputs:
    """What the job has promised, as one attempt stores it."""

    def __init__(
        self, attempt: Attempt, promise: OutputPromise, bridge: Bridge, store: LazyOutputs | None
    ) -> None:
        self.promise = promise
        self.bridge = bridge
        self._attempt = attempt
        self._store = store

    async def open(self) -> Outputs:
        """Return the output store of the job's promise; `Unavailable` when this worker has another."""
        outputs = await self._store.get() if self._store is not None else None
        if outputs is None:
            raise Unavailable("This worker has no output store: set HOLDFAST_OUTPUTS, or --outputs.")
        if outputs.store_id != self.promise.store:
            raise Unavailable(
                f"The outputs of this job belong in {self.promise.place} ({self.promise.store}); the"
                f" output store of this worker is {outputs.place} ({outputs.store_id})."
            )
        return outputs

    @contextmanager
    def recording_faults(self) -> Iterator[None]:
        """Record an error of the store or the disk: the machine has failed then, not the handler."""
        try:
            yield
        except (Unavailable, OSError) as error:
            self.record_fault(error)
            raise

    def record_fault(self, error: BaseException | None) -> None:
        if isinstance(error, Unavailable) or (isinstance(error, OSError) and error.errno in DISK_ERRORS):
            self._attempt.output_fault = error

    # Outputs by name.

    def file(self, name: str) -> "OutputFile":
        """Return the output of this name, to be written; `Invalid` if the job has not promised it."""
        promise = self.promise
        # A resumed job promises only what is missing; its handler still writes everything it declares.
        again = promise.resume_attempt > 0 and name in self._attempt.declared
        if name not in promise.names and not again:
            promised = ", ".join(promise.names) or "none by name"
            raise Invalid(f"The job has promised no output {name!r:.80}; it has promised {promised}.")
        return OutputFile(self, name)

    async def commit(self, name: str, source: Path) -> None:
        """Store the file as the output of this name, under the token of this attempt."""
        attempt = self._attempt
        attempt.check_owner()
        with self.recording_faults():
            await commit(await self.open(), attempt.job_id, attempt.fencing_token, name, source)

    # Results of tasks.

    def tasks(self) -> Generator[TaskHandle, None, None]:
        self._check_study()
        instead = "async for task in ctx.tasks_async()"
        self.bridge.check_plain(instead)
        batches = self._missing()
        try:
            while (batch := self.bridge.wait(lambda: _next(batches), instead)) is not None:
                for number, task in batch:
                    self._begin(number)
                    yield TaskHandle(task, self)
        finally:
            self.bridge.later(batches.aclose)
        self._attempt.progress(self.promise.entries, self.promise.entries)

    async def tasks_async(self) -> AsyncGenerator[TaskHandle, None]:
        self._check_study()
        batches = self._missing()
        try:
            while (batch := await self.bridge.go(lambda: _next(batches))) is not None:
                for number, task in batch:
                    self._begin(number)
                    yield TaskHandle(task, self)
        finally:
            self.bridge.later(batches.aclose)
        self._attempt.progress(self.promise.entries, self.promise.entries)

    def _check_study(self) -> None:
        if self.promise.manifest is None:
            raise Invalid("The job has no tasks: enqueue it with configure(tasks=holdfast.study(…)).")

    def _begin(self, number: int) -> None:
        self._attempt.check()
        self._attempt.progress(number, self.promise.entries)

    async def _missing(self) -> AsyncGenerator[list[tuple[int, Task]], None]:
        """Yield the tasks without a complete result, each with the number of tasks before it."""
        with self.recording_faults():
            outputs = await self.open()
        results, number = Results(outputs), 0
        batches = read_task_batches(outputs, self.promise.manifest or "", BATCH_TASKS)
        async with aclosing(batches):
            async for batch in batches:
                with self.recording_faults():
                    found = await results.validate_many(batch)
                yield [
                    (number + at, task)
                    for at, (task, (output, _)) in enumerate(zip(batch, found, strict=True))
                    if output.missing is not None
                ]
                number += len(batch)

    async def save(self, task: Task, files: Mapping[str, bytes], error: str | None = None) -> None:
        attempt = self._attempt
        attempt.check_owner()
        writer = ResultAuthor(attempt.job_id, attempt.fencing_token)
        with self.recording_faults():
            await Results(await self.open()).put(task, files, writer=writer, error=error)

    async def result(self, task: Task) -> Result:
        result = await Results(await self.open()).get(task)
        if result is None:
            raise NotFound(f"There is no complete result of {task.name}.")
        return result


class OutputFile:
    """An output being written: `with ctx.output(name) as file`, or `async with` in coroutines.

    `file` is an ordinary binary file, and `file.name` its path, for code that writes to a path. On leaving
    it is committed: complete, checksummed, under the token of this attempt. After an exception nothing is.
    """

    def __init__(self, outputs: AttemptOutputs, name: str) -> None:
        self._outputs = outputs
        self._name = name

    def __enter__(self) -> BinaryIO:
        self._outputs.bridge.check_plain("async with ctx.output(name) as file")
        return self._open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._outputs.record_fault(error)  # the disk of the temporary file may be full
        try:
            if kind is None and self._is_promised():
                self._outputs.bridge.wait(self._commit, "async with ctx.output(name) as file")
        finally:
            _temp_files.remove(self._file)

    async def __aenter__(self) -> BinaryIO:
        return self._open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._outputs.record_fault(error)
        try:
            if kind is None and self._is_promised():
                await self._outputs.bridge.go(self._commit)
        finally:
            _temp_files.remove(self._file)

    def _open(self) -> BinaryIO:
        with self._outputs.recording_faults():
            self._file = _temp_files.new(self._name)
        return self._file

    def _is_promised(self) -> bool:
        """Whether the job still needs it: a job that resumes another does not store again what is there."""
        return self._name in self._outputs.promise.names

    async def _commit(self) -> None:
        with self._outputs.recording_faults():
            self._file.close()
        await self._outputs.commit(self._name, Path(self._file.name))


async def _next(
    batches: AsyncGenerator[list[tuple[int, Task]], None],
) -> list[tuple[int, Task]] | None:
    return await anext(batches, None)
