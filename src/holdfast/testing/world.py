"""The world of a test: one store, its registry, a manual clock, and counted ids."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

from msgspec.structs import replace

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.job import Failure, Job, ResourceLock
from holdfast.core.lifecycle import Change
from holdfast.core.limits import OUTPUT_ATTEMPT_BYTES_MAX
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import ById, Clock, Grant, Ids, JobRequest, Registry, Store, Work
from holdfast.registry.local import LocalRegistry
from holdfast.testing.contract_tests import contract_test
from holdfast.testing.fakes import CountingIds, ManualClock

Opener = Callable[[Path, Clock, Ids], Awaitable[Store]]

LEASE = timedelta(seconds=60)
TRANSIENT = Failure(message="the network hiccuped", code="TransientError")
PERMANENT = Failure(message="no such model", code="PermanentError", retryable=False)


class World:
    """The fixture of a test. `registry` is `local`, unless it is reached through a server."""

    def __init__(
        self,
        store: Store,
        clock: ManualClock,
        ids: CountingIds,
        *,
        local: LocalRegistry | None = None,
        registry: Registry | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.ids = ids
        self.local = local or LocalRegistry(store, ids)
        self.local.start_counting()
        self.registry: Registry = registry or self.local

    async def enqueue(self, job_id: str | None = None, *, spec: Spec = Spec(), **more: object) -> Job:
        request = JobRequest(spec=replace(spec, **more), job_id=job_id)
        return await self.registry.enqueue(request, actor="user:ana")

    async def claim(self, owner: str = "worker-7", **more: object) -> Grant:
        """Return one grant from the default queue, which must have a ready job."""
        [grant] = await self.registry.claim(["default"], owner=owner, **more)  # type: ignore[arg-type]
        return grant

    async def lapse(self, seconds: float = 61) -> None:
        """Let a default lease expire, and expire the job."""
        self.clock.advance(seconds)
        await self.registry.expire()

    async def types(self, job_id: str) -> list[str]:
        return [str(event.event_type) for event in await self.registry.history(job_id)]

    async def check(self) -> None:
        """Assert that every job equals the fold of its log, and that each transition has one event."""
        verification = await self.registry.verify()
        assert verification.equal, verification.mismatches


def patient(max_failures: int = 5, **more: object) -> Retry:
    return Retry(max_failures=max_failures, **more)  # type: ignore[arg-type]


def output(sequence: int, text: str = "", *, world: World, stream: str = "stdout") -> Event:
    """Return an output event as a worker sends it."""
    return Event(
        event_type=WorkerEventType.OUTPUT,
        event_class=EventClass.WORKER,
        occurred_at=world.clock.now(),
        sequence=sequence,
        stream=stream,
        data=(text or f"line {sequence}\n").encode(),
    )


async def fill(store: Store, job_id: str, left: int) -> None:
    """Set the published bytes of the attempt so that this many are left of its quota."""

    def decide(
        job: Job | None, now: datetime, resource: ResourceLock | None = None, floor: int = 0
    ) -> Change:
        assert job is not None
        return Change(job, replace(job, published_bytes=OUTPUT_ATTEMPT_BYTES_MAX - left))

    await store.transact([Work(ById(job_id), decide)])


@asynccontextmanager
async def open_world(opener: Opener, folder: Path) -> AsyncIterator[World]:
    clock, ids = ManualClock(), CountingIds()
    world = World(await opener(folder, clock, ids), clock, ids)
    try:
        yield world
    finally:
        await world.registry.close()


in_world = contract_test(lambda contract, folder: open_world(contract.open, folder))
"""Makes a coroutine a test of a store contract, with a fresh world as its first argument."""
