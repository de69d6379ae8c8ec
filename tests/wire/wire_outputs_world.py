"""A server with an output store, a worker that leaves outputs in it, and a store whose time stands still."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.access import Scope
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.manifest import Task, encode_task, study
from holdfast.core.outputs import Promise
from holdfast.core.spec import Spec
from holdfast.outputs import managed
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.lazily import Opening
from holdfast.outputs.results import Results, Writer
from holdfast.ports import Outputs, Registry, Request
from holdfast.registry.local import LocalRegistry
from holdfast.server.context import Settings
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from holdfast.wire.remote import RemoteRegistry
from holdfast.wire.remote_inspector import RemoteInspector
from wire_world import Served, serving

QUEUE = "sweeps"
BUNDLE = "sha256:" + "ab" * 32
STRANGER_STORE = "01a1e3f3-ff07-75f4-8058-764b47a97e9b"


def tasks(count: int = 3) -> list[Task]:
    sets = [{"beta": number / 10} for number in range(count)]
    return list(study(bundle=BUNDLE, entrypoint="models.seir/baseline", parameter_sets=sets))


async def lines(some: Sequence[Task]) -> AsyncIterator[bytes]:
    for task in some:
        yield encode_task(task)


class Scene(Struct, frozen=True):
    """The server, what is behind it, and somebody who calls it."""

    served: Served
    registry: LocalRegistry
    clock: ManualClock
    outputs: Outputs
    remote: RemoteRegistry
    inspector: RemoteInspector
    opening: Opening

    async def key(self, name: str, *scopes: Scope) -> RemoteRegistry:
        """Somebody with a key; close it, or the test says that something is left."""
        _, text = await self.registry.create_key(name=name, scopes=scopes, actor="user:root")
        return self.served.remote(text)

    async def enqueue(self, promise: Promise, *, by: Registry | None = None, **spec: object) -> Job:
        asked = replace(Spec(kind="report", queue=QUEUE, outputs=promise), **spec)
        return await (by or self.remote).enqueue(Request(spec=asked), actor="user:ana")

    def promise(self, *names: str) -> Promise:
        return Promise(names=names, store=self.outputs.store_id)

    async def run(
        self, job: Job, *written: str, where: str | None = None, by: Registry | None = None
    ) -> Job:
        """Claim the job, leave these outputs, and end."""
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
            await Results(self.outputs).put(task, files, writer=Writer(job_id=job_id, token=1))


Body = Callable[[Scene], Coroutine[None, None, None]]


@asynccontextmanager
async def scene(
    folder: Path, settings: Settings, shown: Outputs | None, served_by: Opening | None = None
) -> AsyncIterator[Scene]:
    clock, ids = ManualClock(), SystemIds()
    registry = LocalRegistry(MemoryStore(clock, ids), ids)
    outputs = await DirectoryOutputs.open(folder / "outputs", create=True)

    async def opening(_: bool) -> Outputs | None:
        return shown or await DirectoryOutputs.open(folder / "outputs", create=True)

    async def again(_: bool) -> Outputs | None:
        return await DirectoryOutputs.open(folder / "outputs", create=True)

    async with serving(registry, settings, served_by or opening) as served:
        remote = served.remote()
        yield Scene(served, registry, clock, outputs, remote, RemoteInspector(remote.link), again)
        await remote.close()
    assert (await registry.verify()).equal
    await registry.close()
    await outputs.close()


def play(
    folder: Path,
    body: Body,
    *,
    keys: bool = False,
    shown: Outputs | None = None,
    opening: Opening | None = None,
) -> None:
    """Run it against a server with an output store of its own, or the one that is `shown`, or `opening`'s."""

    async def main() -> None:
        settings = Settings(keys=keys, poll_seconds=0.0)
        async with scene(folder, settings, shown, opening) as here:
            await body(here)

    asyncio.run(main())
