"""Misbehaving users of the registry: owners that ignore their leases, and impatient clients."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from random import Random  # noqa: TID251  # seeded: the same chance every time
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import HoldfastError, Unavailable
from holdfast.core.event import Event
from holdfast.core.lifecycle import HandoffStep, Outcome, Stopped
from holdfast.core.state import State
from holdfast.ports import Clock, EventPage, Grant, Ids, JobFilter, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.testing.simulation.downstream import Downstream
from holdfast.testing.simulation.output_store import FakeOutputStore
from holdfast.testing.simulation.planned_follow_ups import compensated, follow_ups_of
from holdfast.testing.simulation.planned_requests import EXECUTOR
from holdfast.testing.simulation.simulated_work import ending

T = TypeVar("T")

AGAIN = 0.5


class Actor:
    """A user of the registry that sends a request a few times under one op_id."""

    def __init__(self, name: str, registry: LocalRegistry, clock: Clock, ids: Ids, chance: Random) -> None:
        self.name = name
        self.registry = registry
        self.clock = clock
        self.ids = ids
        self.chance = chance
        self.output_store: FakeOutputStore | None = None

    async def retry(self, ask: Callable[[], Awaitable[T]], tries: int = 4) -> T | None:
        """Call again while the store is unavailable; None if it was refused, or after the last try."""
        for _ in range(tries):
            try:
                return await ask()
            except Unavailable:
                await self.clock.sleep(self.chance.uniform(0.05, 1.0))
            except HoldfastError:
                return None
        return None

    async def complete(self, grant: Grant, end: Outcome, op_id: str) -> None:
        """Report an outcome, with the follow-ups and the outputs of the attempt."""
        if self.output_store is not None:
            self.output_store.write_outputs(grant, self.chance)
        await self.retry(
            lambda: self.registry.complete(
                grant,
                end,
                op_id=op_id,
                compensated=compensated(grant, end),
                follow_ups=follow_ups_of(grant),
            )
        )


class Owner(Actor):
    """An owner that claims jobs and ignores when its leases end."""

    def __init__(self, *args: object, downstream: Downstream) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._downstream = downstream

    async def run(self, busy: Callable[[], bool]) -> None:
        while busy():
            op_id, limit = self.ids.new(), self.chance.randint(1, 3)
            interval = timedelta(seconds=1) if self.chance.random() < 0.2 else None
            executor = EXECUTOR if self.chance.random() < 0.2 else None
            grants = await self.retry(
                lambda op_id=op_id, limit=limit, interval=interval, executor=executor: self.registry.claim(  # type: ignore[misc]
                    ["default"],
                    owner=self.name,
                    limit=limit,
                    op_id=op_id,
                    heartbeat_interval=interval,
                    executor=executor,
                    timed=True,
                )
            )
            for grant in grants or ():
                asyncio.get_running_loop().create_task(self._own(grant))
            await self.clock.sleep(self.chance.uniform(0.2, 3.0))

    async def _own(self, grant: Grant) -> None:
        lease = grant.job.spec.lease.total_seconds()
        for number in range(1, self.chance.randint(1, 5)):
            await self.clock.sleep(self.chance.uniform(0.05, 0.7) * lease)
            self._downstream.write(grant)
            with suppress(HoldfastError):
                await self._act(grant, number)
        await self._finish(grant)
        if self.chance.random() < 0.3:  # a copy of an old request, delivered late
            await self.clock.sleep(self.chance.uniform(0.5, 2) * lease)
            self._downstream.write(grant)
            with suppress(HoldfastError):
                await self._act(grant, 99)

    async def _act(self, grant: Grant, number: int) -> None:
        """Send a heartbeat or an event, or nothing."""
        draw = self.chance.random()
        if draw < 0.5:
            await self.registry.heartbeat(grant)
        elif draw < 0.75:
            event = Event(
                event_type=WorkerEventType.CUSTOM,
                event_class=EventClass.WORKER,
                occurred_at=self.clock.now(),
                sequence=number,
            )
            await self.registry.publish(grant, [event])
        elif draw < 0.85:
            await self.registry.aggregate(grant, op_id=self.ids.new())

    async def _finish(self, grant: Grant) -> None:
        op_id, draw = self.ids.new(), self.chance.random()
        if draw < 0.15:
            return
        if draw < 0.3:
            await self.retry(lambda: self.registry.release(grant, op_id=op_id, reason="tired"))
            return
        end = Stopped(reason="as asked") if draw < 0.35 else ending(self.chance).outcome
        times = 2 if draw > 0.8 else 1
        await asyncio.gather(*(self.complete(grant, end, op_id) for _ in range(times)))
        await self._report_again(grant, end)

    async def _report_again(self, grant: Grant, end: Outcome) -> None:
        """Report the end again, sometimes under a new op_id with another outcome."""
        memory = Random(f"{grant.job_id}/{grant.fencing_token}/again")  # changes no other chance
        if memory.random() < AGAIN:
            said = end if memory.random() < AGAIN else ending(memory).outcome
            await self.complete(grant, said, self.ids.new())


class Journal:
    """The events that a reader has read, and its cursor; both survive the reader."""

    def __init__(self) -> None:
        self.cursor: str | None = None
        self.seen: set[str] = set()

    def read(self, page: EventPage) -> None:
        self.cursor = page.cursor
        self.seen.update(event.event_id for event in page.events)


class Client(Actor):
    """A client that submits its requests, each as often as it takes, and interferes with other jobs."""

    async def submit(self, requests: list[JobRequest]) -> None:
        for request in requests:
            await self.clock.sleep(self.chance.uniform(0.0, 1.2))
            await self.retry(lambda r=request: self._enqueue(r), tries=50)  # type: ignore[misc]
            if request.register:
                await self._hand_over(request.job_id or "")
            if self.chance.random() < 0.2:
                other = replace(request, spec=replace(request.spec, payload=msgspec.Raw(b"0")))
                again = self.chance.choice((request, other))
                await self.retry(lambda r=again: self._enqueue(r))  # type: ignore[misc]

    async def _enqueue(self, request: JobRequest) -> object:
        return await self.registry.enqueue(request, actor=f"user:{self.name}")

    async def _hand_over(self, job_id: str) -> None:
        """Give a registered job to its executor; a restarted client begins anew."""
        last = HandoffStep.REFUSED if self.chance.random() < 0.2 else HandoffStep.DONE
        for step in (HandoffStep.BEGIN, last):
            await self.retry(
                lambda step=step: self.registry.handoff(  # type: ignore[misc]
                    job_id, step, actor=f"user:{self.name}", op_id=f"{job_id}-{step}"
                ),
                tries=50,
            )

    async def follow(self, journal: Journal, busy: Callable[[], bool]) -> None:
        """Read events from the cursor of the journal on, and sometimes record one."""
        while busy():
            await self.clock.sleep(self.chance.uniform(0.2, 2.0))
            page = await self.retry(lambda: self.registry.events(after=journal.cursor, limit=20))
            if page is not None:
                journal.read(page)
            if self.chance.random() < 0.2:
                said = Event(
                    event_type="invoice_sent",
                    event_class=EventClass.EXTERNAL,
                    occurred_at=self.clock.now(),
                    given_id=f"invoice-{self.chance.randrange(8)}",
                    job_id=self.chance.choice((None, "job-0", "job-1")),
                )
                await self.retry(lambda said=said: self.registry.record([said]))  # type: ignore[misc]

    async def interfere(self, busy: Callable[[], bool]) -> None:
        """Cancel, replay, read and acquire jobs, until the faults are over."""
        while busy():
            await self.clock.sleep(self.chance.uniform(0.3, 2.5))
            page = await self.retry(lambda: self.registry.list_jobs(JobFilter(), limit=50))
            if page is None or not page.jobs:
                continue
            job = self.chance.choice(page.jobs)
            with suppress(HoldfastError):
                await self.registry.status(job.job_id)
            draw = self.chance.random()
            if draw < 0.25:
                await self._cancel(job.job_id, hard=draw < 0.08)
            elif draw < 0.65 and job.ended and job.state is not State.SUCCEEDED:
                await self._replay(job.job_id)
            elif draw < 0.8:
                await self._take(job.job_id)

    async def _cancel(self, job_id: str, *, hard: bool) -> None:
        op_id = self.ids.new()
        await self.retry(
            lambda: self.registry.cancel(job_id, op_id=op_id, actor=f"user:{self.name}", hard=hard)
        )

    async def _replay(self, job_id: str) -> None:
        replay_id = self.chance.choice((self.ids.new(), "again"))
        for _ in range(self.chance.randint(1, 2)):
            await self.retry(
                lambda: self.registry.replay(job_id, actor=f"user:{self.name}", replay_id=replay_id)
            )

    async def _take(self, job_id: str) -> None:
        op_id = self.ids.new()
        grant = await self.retry(lambda: self.registry.acquire(job_id, op_id=op_id, owner=self.name))
        if grant is not None and self.chance.random() < 0.7:
            await self.complete(grant, ending(self.chance).outcome, self.ids.new())
