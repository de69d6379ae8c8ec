"""A desk for command tests: a registry in memory, real processes, and a host that keeps no lease."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

from yard import number_in

from holdfast.core.command import Command, encode_command
from holdfast.core.job import Progress
from holdfast.core.spec import Json, Spec
from holdfast.ports import Clock, Grant, Registry, Request
from holdfast.sdk.open import open_registry
from holdfast.system import SystemClock
from holdfast.worker.commands import Commands
from holdfast.worker.executor import Ending
from holdfast.worker.hold import Hold
from holdfast.worker.output import Output
from holdfast.worker.processes import Processes
from holdfast.worker.spool import MemorySpool

T = TypeVar("T")
PATIENCE_SECONDS = 30.0


class Desk:
    """A host that keeps no lease: whatever happens to a hold, a test does to it."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        self.clock: Clock = SystemClock()
        self.registry = registry
        self.folder = folder
        self.processes = Processes(self.clock)
        self.commands = Commands(self.processes, own=os.environ)
        self.spool = MemorySpool()
        self.outputs: dict[Hold, Output] = {}
        self.endings: list[tuple[Hold, Ending]] = []
        self.some = asyncio.Event()

    def output(self, hold: Hold) -> Output:
        if hold not in self.outputs:
            log = self.spool.log(hold)
            self.outputs[hold] = Output(self.registry, self.clock, hold, log)
        return self.outputs[hold]

    def begun(self, hold: Hold) -> None:
        hold.begun_at = self.clock.monotonic()

    def ended(self, hold: Hold, ending: Ending) -> None:
        self.endings.append((hold, ending))
        self.some.set()

    def progress(self, hold: Hold, progress: Progress) -> None: ...

    async def checkpoint(self, hold: Hold, value: Json) -> None: ...

    def trouble(self, why: str) -> None: ...

    async def begin(self, script: str, seconds: float = 60, **more: object) -> Hold:
        """Run a script with a lease of so many seconds that nobody renews."""
        payload = encode_command(Command(argv=("sh", "-c", script)))
        spec = Spec(payload=payload, **more)  # type: ignore[arg-type]
        job = await self.registry.enqueue(Request(spec=spec), actor="user:ana")
        hold = Hold(await self.grant(job.job_id), self.clock.monotonic() + seconds)
        self.commands.run([hold])
        return hold

    async def grant(self, job_id: str) -> Grant:
        return await self.registry.acquire(job_id, owner="w-1")

    async def ending(self, hold: Hold) -> Ending:
        """How the attempt ended; its output is stored by then."""
        while not any(ended is hold for ended, _ in self.endings):
            self.some.clear()
            await self.some.wait()
        if hold in self.outputs:
            await self.outputs[hold].flush()
        [ending] = [ending for ended, ending in self.endings if ended is hold]
        return ending

    async def words(self, hold: Hold) -> bytes:
        page = await self.registry.log(hold.job_id)
        return b"".join(event.data or b"" for event in page.events if event.stream == "stdout")

    def trace(self, name: str = "trace") -> Path:
        return self.folder / name

    async def traced(self, name: str = "trace") -> int:
        """The number that the command has written to the trace."""
        for _ in range(1000):
            if self.trace(name).exists() and self.trace(name).read_text().endswith("\n"):
                break
            await asyncio.sleep(0.01)
        return number_in(self.trace(name))


def at(folder: Path, work: Callable[[Desk], Coroutine[None, None, T]]) -> T:
    async def main() -> T:
        registry = await open_registry("memory://")
        desk = Desk(registry, folder)
        await desk.commands.open(desk)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                result = await work(desk)
            await desk.commands.close()
            assert len({id(hold) for hold, _ in desk.endings}) == len(desk.endings)
            return result
        finally:
            await desk.processes.close()
            for output in desk.outputs.values():
                await output.close()
            await registry.close()

    return asyncio.run(main())
