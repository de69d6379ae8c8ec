"""A task of a study, in the hand of its handler."""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING

from holdfast.core.errors import Invalid
from holdfast.core.manifest import Task
from holdfast.outputs.results import Result

if TYPE_CHECKING:
    from holdfast.sdk.shelf import Shelf


class TaskHandle:
    """A task in the hand of its handler: what to compute (`kind`, `params`, `seed`; for an aggregation
    `target` and `seeds`), and where its result goes. Whatever waits has two forms, as in the context."""

    def __init__(self, task: Task, shelf: "Shelf") -> None:
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
        self._shelf = shelf

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def save(self, files: Mapping[str, bytes]) -> None:
        """Keep the result: when this returns it is stored, whole, and counts. For plain functions."""
        instead = "await task.save_async(files)"
        self._shelf.bridge.wait(lambda: self._shelf.save(self.task, files), instead)

    async def save_async(self, files: Mapping[str, bytes]) -> None:
        """As `save`, for coroutines."""
        await self._shelf.bridge.go(lambda: self._shelf.save(self.task, files))

    def fail(self, why: str) -> None:
        """Keep that there is no result, and why. It counts as missing; the next attempt tries again."""
        instead = "await task.fail_async(why)"
        self._shelf.bridge.wait(lambda: self._shelf.save(self.task, {}, str(why)), instead)

    async def fail_async(self, why: str) -> None:
        """As `fail`, for coroutines."""
        await self._shelf.bridge.go(lambda: self._shelf.save(self.task, {}, str(why)))

    def results(self) -> Iterator[Result]:
        """The results of the replicates that an aggregation is made of, one at a time; `NotFound` when
        there is none of one. Each has its `task`, and its `files` by name."""
        for one in self._replicates():
            instead = "async for result in task.results_async()"
            yield self._shelf.bridge.wait(lambda one=one: self._shelf.result(one), instead)  # type: ignore[misc]

    async def results_async(self) -> AsyncIterator[Result]:
        """As `results`, for coroutines."""
        for one in self._replicates():
            yield await self._shelf.bridge.go(lambda one=one: self._shelf.result(one))  # type: ignore[misc]

    def _replicates(self) -> list[Task]:
        if self.kind != "aggregation":
            raise Invalid(
                f"{self.name} is no aggregation: it is made of nothing but its parameters."
            )
        return [
            Task(bundle=self.bundle, entrypoint=self.entrypoint, params=self.params, seed=seed)
            for seed in self.seeds
        ]
