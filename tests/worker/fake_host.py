"""The host of an executor of commands: a registry in memory, and leases that are never renewed."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.core.job import Progress
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.spec import Json, Spec
from holdfast.ports import Clock, Grant, JobRequest, Registry
from holdfast.sdk.open import open_registry
from holdfast.system import SystemClock
from holdfast.worker.command_executor import CommandExecutor
from holdfast.worker.executor import EndedJob, Ending
from holdfast.worker.held_job import HeldJob
from holdfast.worker.output import AttemptOutput
from holdfast.worker.processes import Processes
from holdfast.worker.spool import MemorySpool
from tests.worker.live_processes import number_in


class FakeHost:
    """A host that renews no lease: what happens to a held job, the test does."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        self.clock: Clock = SystemClock()
        self.registry = registry
        self.folder = folder
        self.processes = Processes(self.clock)
        self.commands = CommandExecutor(self.processes, own=os.environ)
        self.spool = MemorySpool()
        self.outputs: dict[HeldJob, AttemptOutput] = {}
        self.endings: list[tuple[HeldJob, Ending]] = []
        self.told: Callable[[int], None] = lambda _: None
        """Called with the number of endings whenever some are told."""
        self.some = asyncio.Event()

    def output(self, hold: HeldJob) -> AttemptOutput:
        if hold not in self.outputs:
            log = self.spool.log(hold)
            self.outputs[hold] = AttemptOutput(self.registry, self.clock, hold, log)
        return self.outputs[hold]

    def begun(self, holds: Sequence[HeldJob]) -> None:
        for hold in holds:
            hold.begun_at = self.clock.monotonic()

    def ended(self, endings: Sequence[EndedJob]) -> None:
        self.endings += endings
        self.told(len(endings))
        self.some.set()

    def progress(self, hold: HeldJob, progress: Progress) -> None: ...

    async def checkpoint(self, hold: HeldJob, value: Json) -> None: ...

    def trouble(self, why: str) -> None: ...

    async def begin(self, script: str, seconds: float = 60, **more: object) -> HeldJob:
        """Run a script with a lease of this many seconds that is never renewed."""
        payload = encode_process_spec(ProcessSpec(argv=("sh", "-c", script)))
        spec = Spec(payload=payload, **more)  # type: ignore[arg-type]
        job = await self.registry.enqueue(JobRequest(spec=spec), actor="user:ana")
        hold = HeldJob(await self.grant(job.job_id), self.clock.monotonic() + seconds)
        self.commands.run([hold])
        return hold

    async def grant(self, job_id: str) -> Grant:
        return await self.registry.acquire(job_id, owner="w-1")

    async def ending(self, hold: HeldJob) -> Ending:
        """How the attempt ended; its output is stored by then."""
        while not any(ended is hold for ended, _ in self.endings):
            self.some.clear()
            await self.some.wait()
        if hold in self.outputs:
            await self.outputs[hold].flush()
        [ending] = [ending for ended, ending in self.endings if ended is hold]
        return ending

    async def words(self, hold: HeldJob) -> bytes:
        page = await self.registry.logs(hold.job_id)
        return b"".join(event.data or b"" for event in page.events if event.stream == "stdout")

    def trace(self, name: str = "trace") -> Path:
        return self.folder / name

    async def traced(self, name: str = "trace") -> int:
        """The number that the command has written to the trace."""
        return await asyncio.to_thread(number_in, self.trace(name))


@asynccontextmanager
async def open_host(folder: Path) -> AsyncIterator[FakeHost]:
    registry = await open_registry("memory://")
    host = FakeHost(registry, folder)
    await host.commands.open(host)
    try:
        yield host
        await host.commands.close()
        assert len({id(hold) for hold, _ in host.endings}) == len(host.endings)
    finally:
        await host.processes.close()
        for output in host.outputs.values():
            await output.close()
        await registry.close()
