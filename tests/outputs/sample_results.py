"""Tasks, files and markers of results, and a store that counts calls and announces writes."""

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from holdfast.core.manifest import Task
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.paths import TOKEN_1
from holdfast.outputs.results import ResultAuthor, Results, file_path
from holdfast.ports.outputs import Digest

BUNDLE = "sha256:" + "ab" * 32
ONE = Task(bundle=BUNDLE, entrypoint="models.seir/baseline", params={"beta": 0.3}, seed=7)
OTHER_SCENARIO = msgspec.structs.replace(ONE, entrypoint="models.seir/lockdown")
WHOLE = Task(
    kind="aggregation",
    bundle=BUNDLE,
    entrypoint=ONE.entrypoint,
    params=ONE.params,
    target="targets.covid/deaths",
    seeds=(7, 8),
)
FOLDER = TOKEN_1.path(ONE)
ME = ResultAuthor("job-1", 3)
SOMEBODY = ResultAuthor("job-2", 9)
FILES = {"trace.csv": b"a,b\n1,2\n", "loss.csv": b"0.5\n"}
OLD = {"a": b"old a", "b": b"old b"}
NEW = {"a": b"new a", "b": b"new b"}


class ObservedStore:
    """An output store that counts its calls and announces every write before it is made."""

    def __init__(
        self,
        outputs: DirectoryOutputs,
        before_write: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._outputs = outputs
        self._before_write = before_write
        self.calls: list[tuple[str, int]] = []
        self.store_id, self.place = outputs.store_id, outputs.place

    async def put(self, path: str, body: bytes) -> None:
        if self._before_write is not None:
            await self._before_write(path)
        await self._outputs.put(path, body)

    async def create(self, path: str, body: bytes) -> bool:
        if self._before_write is not None:
            await self._before_write(path)
        return await self._outputs.create(path, body)

    async def put_file(self, path: str, source: Path) -> None:
        await self._outputs.put_file(path, source)

    async def get(self, path: str) -> bytes | None:
        return await self._outputs.get(path)

    async def get_many(self, paths: Sequence[str]) -> "list[bytes | None]":
        self.calls.append(("get_many", len(paths)))
        return await self._outputs.get_many(paths)

    async def digests(self, paths: Sequence[str]) -> "list[Digest | None]":
        self.calls.append(("digests", len(paths)))
        return await self._outputs.digests(paths)

    def read(self, path: str) -> AsyncIterator[bytes]:
        return self._outputs.read(path)

    def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        return self._outputs.list(prefix)

    async def delete(self, path: str) -> None:
        await self._outputs.delete(path)

    async def check_available(self) -> None:
        await self._outputs.check_available()

    async def close(self) -> None:
        await self._outputs.close()


def path_of(name: str, body: bytes, folder: str = FOLDER) -> str:
    return file_path(folder, name, hashlib.sha256(body).hexdigest())


async def missing(results: Results, task: Task = ONE) -> str | None:
    """Why there is no result, which `get` must think as well."""
    [(output, writer)] = await results.validate_many([task])
    assert (await results.get(task) is None) is (output.missing is not None)
    assert (writer is None) is (output.missing is not None)
    assert output.name == task.name
    return output.missing


async def found_at(results: Results, task: Task) -> str | None:
    """The folder of the whole result of a task, in whichever layout."""
    [(output, _)] = await results.validate_many([task])
    return output.path if output.missing is None else None


def marker(*, seed: int = 7, **changes: object) -> bytes:
    task = {"bundle": BUNDLE, "entrypoint": ONE.entrypoint, "params": {"beta": 0.3}, "seed": seed}
    return json.dumps(
        {
            "format": 1,
            "task": task,
            "files": {name: {"size": 1, "sha256": "ab" * 32} for name in FILES},
            "writer": {"job_id": "job-1", "token": 3},
            **changes,
        }
    ).encode()
