"""A worker's validations in a world of outputs, and what they report."""

import asyncio
from collections.abc import Callable, Coroutine

from holdfast.core.errors import Unavailable
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.outputs.lazy import LazyOutputs
from holdfast.testing.fakes import CountingIds
from holdfast.worker.validation import WorkerValidation
from tests.outputs.outputs_world import MACHINE, OutputsWorld
from tests.worker.live_processes import PATIENCE_SECONDS


class Report:
    def __init__(self) -> None:
        self.said: list[tuple[str, State]] = []
        self.troubles: list[str] = []

    def ended(self, job: Job, seconds: float) -> None:
        self.said.append((job.job_id, job.state))

    def trouble(self, why: str) -> None:
        self.troubles.append(why)


class Counted(LazyOutputs):
    """The output store of the world, and how often it was asked for."""

    def __init__(self, world: OutputsWorld) -> None:
        super().__init__()
        self._outputs = world.outputs
        self.asked = 0
        self.broken: str | None = None

    async def get(self, *, create: bool = False) -> object:  # type: ignore[override]
        self.asked += 1
        if self.broken is not None:
            raise Unavailable(self.broken)
        return self._outputs


class Side:
    """A worker's validations, in a world."""

    def __init__(self, world: OutputsWorld, name: str = "w-1") -> None:
        self.world = world
        self.report = Report()
        self.store = Counted(world)
        self.validating = WorkerValidation(
            world.registry,
            self.store,
            self.report,
            clock=world.clock,
            ids=CountingIds(),
            machine=MACHINE,
            name=name,
        )

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, and those that wait for it go on."""
        await idle()
        self.world.clock.advance(seconds)
        await idle()


async def idle() -> None:
    """Let everybody else on this loop go on, as far as they get without a thread."""
    for _ in range(50):
        await asyncio.sleep(0)


async def until(true: Callable[[], bool] | Callable[[], Coroutine[None, None, bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            answer = true()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.005)


async def state(world: OutputsWorld, job_id: str = "job-1") -> State:
    return (await world.registry.status(job_id)).state


async def tries(world: OutputsWorld, job_id: str = "job-1") -> int:
    check = (await world.registry.status(job_id)).check
    return check.tries if check else 0
