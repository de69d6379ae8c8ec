"""A task of a study, as a handler gets it."""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Protocol

from holdfast.core.errors import Invalid
from holdfast.core.manifest import Task
from holdfast.outputs.results import Result
from holdfast.runner.bridge import Bridge


class TaskResults(Protocol):
    """Where the results of tasks are stored and read; `AttemptOutputs`."""

    bridge: Bridge

    async def save(self, task: Task, files: Mapping[str, bytes], error: str | None = None) -> None: ...

    async def result(self, task: Task) -> Result: ...


class TaskHandle:
    """A task that a handler works on: what to compute (`kind`, `params`, `seed`; for an aggregation
    `target` and `seeds`), and where its result goes. A method that waits has two forms, as in `Context`."""

    def __init__(self, task: Task, results: TaskResults) -> None:
        self.task = task
        self.name = task.name
        self.kind = task.kind
        self.bundle = task.bundle
        self.entrypoint = task.entrypoint
        self.params = task.params
        self.seed = task.seed
        self.outputs = task.outputs
        self.target = task.target
        self.seeds = task.seeds
        self._results = results

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def save(self, files: Mapping[str, bytes]) -> None:
        """Store the result; when this returns, it is complete and counts. For plain functions."""
        instead = "await task.save_async(files)"
        self._results.bridge.wait(lambda: self._results.save(self.task, files), instead)

    async def save_async(self, files: Mapping[str, bytes]) -> None:
        """As `save`, for coroutines."""
        await self._results.bridge.go(lambda: self._results.save(self.task, files))

    def fail(self, why: str) -> None:
        """Record that there is no result, and why. It counts as missing; the next attempt tries again."""
        instead = "await task.fail_async(why)"
        self._results.bridge.wait(lambda: self._results.save(self.task, {}, str(why)), instead)

    async def fail_async(self, why: str) -> None:
        """As `fail`, for coroutines."""
        await self._results.bridge.go(lambda: self._results.save(self.task, {}, str(why)))

    def results(self) -> Iterator[Result]:
        """Yield the results of the replicates that an aggregation is made of; `NotFound` when one has no
        result. Each has its `task`, and its `files` by name."""
        for one in self._replicates():
            instead = "async for result in task.results_async()"
            yield self._results.bridge.wait(lambda one=one: self._results.result(one), instead)  # type: ignore[misc]

    async def results_async(self) -> AsyncIterator[Result]:
        """As `results`, for coroutines."""
        for one in self._replicates():
            yield await self._results.bridge.go(lambda one=one: self._results.result(one))  # type: ignore[misc]

    def _replicates(self) -> list[Task]:
        if self.kind != "aggregation":
            raise Invalid(f"{self.name} is not an aggregation: it is made of its parameters alone.")
        return [
            Task(bundle=self.bundle, entrypoint=self.entrypoint, params=self.params, seed=seed)
            for seed in self.seeds
        ]
