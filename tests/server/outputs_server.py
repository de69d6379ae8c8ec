"""A server with an output store, a worker that writes outputs to it, and a store whose time stands still."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.access import Scope
from holdfast.core.errors import Denied, Unavailable
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.manifest import Task, encode_task, study
from holdfast.core.outputs import OutputPromise
from holdfast.core.spec import Spec
from holdfast.outputs import managed
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.lazy import OpenOutputs
from holdfast.outputs.results import ResultAuthor, Results
from holdfast.ports import JobRequest, Outputs, Registry
from holdfast.registry.local import LocalRegistry
from holdfast.server.context import ServerSettings
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from holdfast.wire.remote import RemoteRegistry
from holdfast.wire.remote_inspector import RemoteInspector
from tests.server.running_server import RunningServer, serving

QUEUE = "sweeps"
BUNDLE = "sha256:" + "ab" * 32
HELD_SECONDS = 30.0
STRANGER_STORE = "01a1e3f3-ff07-75f4-8058-764b47a97e9b"


def tasks(count: int = 3) -> list[Task]:
    sets = [{"beta": number / 10} for number in range(count)]
    return list(study(bundle=BUNDLE, entrypoint="models.seir/baseline", parameter_sets=sets))


async def lines(some: Sequence[Task]) -> AsyncIterator[bytes]:
    for task in some:
        yield encode_task(task)


class OutputsServer(Struct, frozen=True):
    """The server, the stores behind it, and a client."""

    server: RunningServer
    registry: LocalRegistry
    clock: ManualClock
    outputs: Outputs
    remote: RemoteRegistry
    inspector: RemoteInspector
    opening: OpenOutputs

    async def key(self, name: str, *scopes: Scope) -> RemoteRegistry:
        """Return a client with a new key; the test must close it."""
        _, text = await self.registry.create_key(name=name, scopes=scopes, actor="user:root")
        return self.server.remote(text)

    async def enqueue(self, promise: OutputPromise, *, by: Registry | None = None, **spec: object) -> Job:
        asked = replace(Spec(kind="report", queue=QUEUE, outputs=promise), **spec)
        return await (by or self.remote).enqueue(JobRequest(spec=asked), actor="user:ana")

    def promise(self, *names: str) -> OutputPromise:
        return OutputPromise(names=names, store=self.outputs.store_id)

    async def run(self, job: Job, *written: str, where: str | None = None, by: Registry | None = None) -> Job:
        """Claim the job, write these outputs, and complete it."""
        registry = by or self.remote
        grant = await registry.acquire(job.job_id, owner="w-7")
        for name in written:
            await self._write(job.job_id, grant.fencing_token, name)
        return await registry.complete(grant, Success(where=where))

    async def _write(self, job_id: str, token: int, name: str) -> None:
        source = Path(self.outputs.place.removeprefix("file://")).parent / f"{name}.draft"
        await asyncio.to_thread(source.write_bytes, name.encode())
        await managed.commit(self.outputs, job_id, token, name, source)

    async def put(self, job_id: str, *some: Task) -> None:
        for task in some:
            files = {"curve.csv": b"1,2\n"}
            await Results(self.outputs).put(task, files, writer=ResultAuthor(job_id=job_id, token=1))


@asynccontextmanager
async def open_outputs_server(
    folder: Path,
    *,
    keys: bool = False,
    shown: Outputs | None = None,
    opening: OpenOutputs | None = None,
) -> AsyncIterator[OutputsServer]:
    """A server with an output store of its own, or the one that is `shown`, or `opening`'s."""
    settings = ServerSettings(keys=keys, poll_seconds=0.0)
    clock, ids = ManualClock(), SystemIds()
    registry = LocalRegistry(MemoryStore(clock, ids), ids)
    outputs = await DirectoryOutputs.open(folder / "outputs", create=True)

    async def open_it(_: bool) -> Outputs | None:
        return shown or await DirectoryOutputs.open(folder / "outputs", create=True)

    async def again(_: bool) -> Outputs | None:
        return await DirectoryOutputs.open(folder / "outputs", create=True)

    async with serving(registry, settings, opening or open_it) as served:
        remote = served.remote()
        yield OutputsServer(
            served, registry, clock, outputs, remote, RemoteInspector(remote.connection), again
        )
        await remote.close()
    assert (await registry.verify()).equal
    await registry.close()
    await outputs.close()


class HeldOutputs(DirectoryOutputs):
    """An output store that a test can make unavailable, or slow."""

    away = False
    refused = False
    begun: asyncio.Event
    go_on: asyncio.Event
    closed = 0

    @classmethod
    async def make(cls, folder: Path) -> "HeldOutputs":
        made = await cls.open(folder / "outputs", create=True)
        assert isinstance(made, HeldOutputs)
        made.begun, made.go_on = asyncio.Event(), asyncio.Event()
        made.go_on.set()
        return made

    async def check_available(self) -> None:
        if self.refused:
            raise Denied("We are not let in at s3://secret")
        await super().check_available()

    async def get_many(self, paths: Sequence[str]) -> "list[bytes | None]":
        if self.refused:
            raise Denied("We are not let in at s3://secret")
        if self.away:
            raise Unavailable("nfs://secret-host does not answer")
        self.begun.set()
        async with asyncio.timeout(HELD_SECONDS):
            await self.go_on.wait()
        return await super().get_many(paths)

    async def close(self) -> None:
        self.closed += 1
        await super().close()
