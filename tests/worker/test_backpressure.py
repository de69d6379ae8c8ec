"""A function that writes more than the store takes is slowed, never cut, and can still be stopped."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.ports import Grant, Registry
from holdfast.runner import RUNNER_ARGV
from holdfast.sdk.open import open_registry
from holdfast.worker.executor import Ending
from holdfast.worker.function_executor import FunctionExecutor
from holdfast.worker.held_job import HeldJob
from holdfast.worker.output import AttemptOutput
from holdfast.worker.spool import AttemptHeader, FileAttemptLog
from tests.worker.fake_host import FakeHost
from tests.worker.fake_runner import claim_job
from tests.worker.function_workers import HEAD

APP = """
@app.job
def floods(ctx: holdfast.Context, lines: int):
    for n in range(lines):
        print(f"{n:06d}" + "x" * 65_000)
        Path(os.environ["AT"]).write_text(str(n + 1))
        time.sleep(0.001)
        ctx.check()

@app.job
def tells(ctx: holdfast.Context, lines: int):
    for n in range(lines):
        ctx.emit("line", n=n, text="x" * 60_000)
        Path(os.environ["AT"]).write_text(str(n + 1))
        time.sleep(0.001)
        ctx.check()

@app.job
async def naps():
    while not Path(os.environ["AT"] + ".morning").exists():
        await asyncio.sleep(0.01)
    return "rested"
"""
UNSENT_BYTES = 256 * 1024
HEARD_BYTES = 3 * 1024 * 1024
"""What a deaf worker may have: what may wait, and what was read or on its way in frames by then."""

LINES = 200


class SlowStore:
    """A registry that publishes nothing before `open` is set."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.open = asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._registry, name)

    async def publish(self, grant: Grant, events: Sequence[Event]) -> Job:
        await self.open.wait()
        return await self._registry.publish(grant, events)


class FunctionHost(FakeHost):
    """A host of functions whose store is slow, with a spool in files."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        super().__init__(registry, folder)
        self.store = SlowStore(registry)
        self.troubles: list[str] = []

    def trouble(self, why: str) -> None:
        self.troubles.append(why)

    def output(self, hold: HeldJob) -> AttemptOutput:
        if hold not in self.outputs:
            log = FileAttemptLog(self.folder / hold.job_id, AttemptHeader(hold.job_id, 1, 1))
            store: Registry = self.store  # type: ignore[assignment]
            self.outputs[hold] = AttemptOutput(store, self.clock, hold, log)
        return self.outputs[hold]

    async def start(self, functions: FunctionExecutor, kind: str, **payload: object) -> HeldJob:
        document = msgspec.Raw(msgspec.json.encode(payload))
        hold = await claim_job(self.registry, kind, payload=document)
        functions.run([hold])
        return hold

    async def over(self, hold: HeldJob) -> Ending:
        """How it ended, whether its output is stored or not."""
        while not (found := [ending for ended, ending in self.endings if ended is hold]):
            self.some.clear()
            await self.some.wait()
        return found[0]

    def spooled(self, hold: HeldJob) -> int:
        return (self.folder / hold.job_id).stat().st_size

    async def still(self) -> int:
        """How far the handler is, once it gets no further."""
        seen = self.at()
        while True:
            await asyncio.sleep(0.4)
            if seen == self.at() > 0:
                return seen
            seen = self.at()

    def at(self) -> int:
        """How many lines the handler has printed."""
        path = self.folder / "at"
        return int(path.read_text() or 0) if path.exists() else 0

    async def lines(self, hold: HeldJob) -> list[bytes]:
        events = await self.events(hold)
        return b"".join(event.data or b"" for event in events if event.stream).splitlines()

    async def events(self, hold: HeldJob) -> list[Event]:
        """All events of it that are stored."""
        await self.outputs[hold].flush()
        found: list[Event] = []
        cursor = None
        while (page := await self.registry.logs(hold.job_id, after=cursor)).events:
            found += page.events
            cursor = page.cursor
        return found


@asynccontextmanager
async def open_function_host(folder: Path) -> AsyncIterator[tuple[FunctionHost, FunctionExecutor]]:
    (folder / "plant.py").write_text(HEAD + APP)
    registry = await open_registry("memory://")
    host = FunctionHost(registry, folder)
    paths = f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    env = {**os.environ, "PYTHONPATH": paths, "AT": str(folder / "at")}
    functions = FunctionExecutor(host.processes, "plant:app", runner_argv=RUNNER_ARGV, slots=2, env=env)
    try:
        await functions.load()
        await functions.open(host)
        yield host, functions
    finally:
        await functions.close()
        await host.processes.close()
        for output in host.outputs.values():
            await output.close()
        await registry.close()


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.worker.output.UNSENT_BYTES_MAX", UNSENT_BYTES)


async def test_a_flood_is_slowed_while_the_store_is_away_and_nothing_of_it_is_lost(
    tmp_path: Path,
) -> None:
    async with open_function_host(tmp_path) as (host, functions):
        hold = await host.start(functions, "floods", lines=LINES)
        assert await host.still() < LINES
        assert host.spooled(hold) < UNSENT_BYTES + HEARD_BYTES

        host.store.open.set()

        assert await host.ending(hold) == Ending()
        lines = await host.lines(hold)
        assert [int(line[:6]) for line in lines] == list(range(LINES))
        assert host.troubles == []


async def test_a_flood_of_events_is_slowed_as_output_is_and_nothing_of_it_is_lost(
    tmp_path: Path,
) -> None:
    async with open_function_host(tmp_path) as (host, functions):
        hold = await host.start(functions, "tells", lines=LINES)
        assert await host.still() < LINES
        assert host.spooled(hold) < UNSENT_BYTES + HEARD_BYTES

        host.store.open.set()

        assert await host.ending(hold) == Ending()
        told = [event.attributes for event in await host.events(hold) if event.sequence]
        assert [one["data"]["n"] for one in told] == list(range(LINES))  # type: ignore[index]
        assert host.troubles == []


@pytest.mark.parametrize("how", [HeldJob.time_out, HeldJob.give_back])
async def test_a_flood_that_waits_for_the_store_can_be_stopped_without_its_neighbour(
    tmp_path: Path, how: Callable[..., None]
) -> None:
    async with open_function_host(tmp_path) as (host, functions):
        hold = await host.start(functions, "floods", lines=LINES)
        neighbour = await host.start(functions, "naps")
        printed = await host.still()
        how(hold, *(("leaving",) if how is HeldJob.give_back else ()))
        await host.over(hold)

        assert [ended for ended, _ in host.endings] == [hold]
        (tmp_path / "at.morning").touch()
        assert (await host.over(neighbour)).result == b'"rested"'
        host.store.open.set()
        lines = await host.lines(hold)
        assert printed <= len(lines) < LINES
        assert [int(line[:6]) for line in lines] == list(range(len(lines)))
        assert neighbour.released is None
