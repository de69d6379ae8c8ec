"""A world with outputs: any registry, any output store, and jobs that promise something and leave it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.core.errors import Unavailable
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.manifest import Task, encode_task, study
from holdfast.core.outputs import File, OutputPromise
from holdfast.core.spec import Spec
from holdfast.outputs import manifests
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.inspector import LocalInspector
from holdfast.outputs.results import ResultAuthor, Results
from holdfast.outputs.url import open_outputs
from holdfast.outputs.validator import Validator
from holdfast.ports import Digest, Grant, Outputs, Registry
from holdfast.testing.world import World
from tests.conftest import open_on
from tests.outputs.bucket_servers import AZURE, S3, Emulator

MACHINE = "here"
BUNDLE = "sha256:" + "ab" * 32


class FlakyOutputs:
    """A real output store that a test can take down, or have do something in the middle of a read."""

    def __init__(self, inner: Outputs) -> None:
        self.inner = inner
        self.down: str | None = None
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    @property
    def store_id(self) -> str:
        return self.inner.store_id

    @property
    def place(self) -> str:
        return self.inner.place

    async def put(self, path: str, body: bytes) -> None:
        self._check_up()
        await self.inner.put(path, body)

    async def create(self, path: str, body: bytes) -> bool:
        self._check_up()
        return await self.inner.create(path, body)

    async def put_file(self, path: str, source: Path) -> None:
        self._check_up()
        await self.inner.put_file(path, source)

    async def get(self, path: str) -> bytes | None:
        self._check_up()
        return await self.inner.get(path)

    async def get_many(self, paths: Sequence[str]) -> "list[bytes | None]":
        self._check_up()
        if (meanwhile := self.meanwhile) is not None:
            self.meanwhile = None
            await meanwhile()
        return await self.inner.get_many(paths)

    async def digests(self, paths: Sequence[str]) -> "list[Digest | None]":
        self._check_up()
        return await self.inner.digests(paths)

    def read(self, path: str) -> AsyncIterator[bytes]:
        self._check_up()
        return self.inner.read(path)

    def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        self._check_up()
        return self.inner.list(prefix)

    async def delete(self, path: str) -> None:
        self._check_up()
        await self.inner.delete(path)

    async def check_available(self) -> None:
        self._check_up()
        await self.inner.check_available()

    async def close(self) -> None:
        await self.inner.close()

    def _check_up(self) -> None:
        if self.down is not None:
            raise Unavailable(self.down)


class OutputsWorld:
    """A registry, an output store, and jobs that promise outputs."""

    def __init__(self, world: World, outputs: Outputs, folder: Path) -> None:
        self.world = world
        self.registry: Registry = world.registry
        self.clock = world.clock
        self.outputs = FlakyOutputs(outputs)
        self.results = Results(outputs)
        self.folder = folder

    def validator(self, name: str = "v-1", **more: object) -> Validator:
        options = {"machine": MACHINE, "clock": self.clock, **more}
        return Validator(self.registry, self.outputs, name=name, **options)  # type: ignore[arg-type]

    def inspector(self, **more: object) -> LocalInspector:
        """An inspector of this registry; a server looks by itself for what is there already."""
        options = {"machine": MACHINE, "name": "i-1", **more}
        if self.registry is not self.world.local:
            options["submitter"] = LocalInspector(self.world.local, self.outputs, **options)  # type: ignore[arg-type]
        return LocalInspector(self.registry, self.outputs, **options)  # type: ignore[arg-type]

    def tasks(self, sets: int = 2, replicates: int = 3, target: str | None = "prevalence") -> list[Task]:
        """The tasks of a study: 2 x 3 with a target unless told otherwise."""
        return list(
            study(
                bundle=BUNDLE,
                entrypoint="models.seir/baseline",
                parameter_sets=[{"beta": n / 10} for n in range(sets)],
                replicates=replicates,
                targets=[target] if target else [],
                outputs=["table.csv"],
            )
        )

    async def promise(self, tasks: Iterable[Task]) -> OutputPromise:
        """A manifest of these tasks, kept."""
        sha256, entries = await manifests.store_manifest(self.outputs.inner, _lines(tasks))
        return self.promise_of(manifest=sha256, entries=entries)

    def promise_of(self, **fields: object) -> OutputPromise:
        """A promise of what is in this output store."""
        stored = {"store": self.outputs.store_id, "place": self.outputs.place}
        return OutputPromise(**{**stored, **fields})  # type: ignore[arg-type]

    def files(self, *files: str | File) -> OutputPromise:
        """A promise of plain paths."""
        return OutputPromise(files=tuple(File(f) if isinstance(f, str) else f for f in files))

    async def start(self, promise: OutputPromise, job_id: str = "job-1", **more: object) -> Grant:
        """A job that promises this, enqueued and claimed."""
        await self.world.enqueue(job_id, spec=Spec(outputs=promise), **more)
        return await self.registry.acquire(job_id, owner="worker-7")

    async def write(self, grant: Grant | ResultAuthor, tasks: Iterable[Task]) -> None:
        """Leave whole results, as the owner of this grant."""
        writer = grant if isinstance(grant, ResultAuthor) else ResultAuthor(grant.job_id, grant.fencing_token)
        for task in tasks:
            table = f"{task.name},{writer.job_id}\n".encode()
            await self.results.put(task, {"table.csv": table}, writer=writer)

    async def finish(self, grant: Grant, where: str | None = None) -> Job:
        """The handler returns: validating from now on."""
        where = where or f"{MACHINE}:{self.folder}"
        return await self.registry.complete(grant, Success(result=1, where=where))

    async def done(self, tasks: Sequence[Task], written: Sequence[Task], job_id: str = "job-1") -> Job:
        """A job that promised the one and wrote the other, and now waits for its verdict."""
        grant = await self.start(await self.promise(tasks), job_id)
        await self.write(grant, written)
        return await self.finish(grant)

    async def run_resumed(self, job: Job) -> Job:
        """Do exactly what a resuming job promises, as a worker would; it waits for its verdict then."""
        grant = await self.registry.acquire(job.job_id, owner="worker-8")
        await self.write(grant, await self.promised(job))
        return await self.finish(grant)

    async def promised(self, job: Job) -> list[Task]:
        """The tasks in the manifest of a job."""
        assert job.spec.outputs is not None
        assert job.spec.outputs.manifest is not None
        return [task async for task in manifests.read_tasks(self.outputs, job.spec.outputs.manifest)]

    async def files_of(self, task: Task) -> list[str]:
        """Where the files of a result are, its marker last."""
        [(output, _)] = await self.results.validate_many([task])
        assert output.missing is None, "it has not been written"
        found = [name async for name, _ in self.outputs.inner.list(output.path or "")]
        return sorted(found, key=lambda name: name.endswith("result.json"))

    async def lose(self, task: Task) -> None:
        """Delete a result."""
        for path in reversed(await self.files_of(task)):
            await self.outputs.inner.delete(path)

    async def flip(self, task: Task) -> None:
        """Change one bit in a file of a result."""
        path = (await self.files_of(task))[0]
        body = await self.outputs.inner.get(path)
        assert body
        await self.outputs.inner.put(path, bytes([body[0] ^ 1]) + body[1:])

    async def verdicts(self, job_id: str = "job-1") -> list[str]:
        """What was said about the job's outputs, in order."""
        history = await self.registry.history(job_id)
        return [str(event.event_type) for event in history if "found" in event.attributes]


async def _lines(tasks: Iterable[Task]) -> AsyncIterator[bytes]:
    for task in tasks:
        yield encode_task(task)


EMULATORS: dict[str, Emulator] = {"s3": S3, "az": AZURE}
DIRECT = ("memory", "cas", "sqlite", "postgres")
MATRIX = [(one, "directory") for one in (*DIRECT, "server")] + [("memory", one) for one in EMULATORS]
"""Every registry, and every place that outputs may be in."""


async def open_place(place: str, folder: Path) -> Outputs:
    """An empty output store of its own in a place by this name."""
    if place == "directory":
        return await DirectoryOutputs.open(folder / "outputs", create=True)
    return await open_outputs(EMULATORS[place].address(), create=True)


@asynccontextmanager
async def open_outputs_world(registry: str, place: str, folder: Path) -> AsyncIterator[OutputsWorld]:
    """A fresh world: a registry by the name of its store, or at a `server`, and an output store by the
    name of its place."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in EMULATORS[place].environment().items() if place in EMULATORS else ():
            patch.setenv(name, value)
        async with open_on(registry, folder) as world:
            outputs = await open_place(place, folder)
            try:
                yield OutputsWorld(world, outputs, folder)
            finally:
                await outputs.close()
            await world.check()
