"""The simulator's transactional stores and the real one agree: the same random commands, batched and
single, leaves the same answers, states, versions, tokens and events."""

import asyncio
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.event import Event
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Stopped, Success
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import Clock, Grant, Ids, JobRequest, Store
from holdfast.testing.fakes import CountingIds, ManualClock
from holdfast.testing.simulation.invariant_checker import InvariantChecker
from holdfast.testing.simulation.sql_server import SqlServer
from holdfast.testing.simulation.stores import MemoryServer
from holdfast.testing.world import Opener, World, output
from tests.stores.postgres.running_server import postgres_store

COMMANDS = 120
OUTCOMES = (
    Success(),
    Success(result={"loss": 0.25}),
    Failure(message="hiccup"),
    Failure(message="no such model", retryable=False),
    Failure(message="killed", exit_code=137, crash=True),
    Stopped(reason="as asked"),
)


class RandomCommands:
    """Commands drawn from a seed, and everything that was answered to them."""

    def __init__(self, seed: int, world: World) -> None:
        self.random = Random(seed)
        self.world = world
        self.grants: list[Grant] = []
        self.sequences: dict[tuple[str, int], int] = {}
        self.answers: list[object] = []

    async def play(self) -> list[object]:
        for _ in range(COMMANDS):
            verb = self.random.choice(VERBS)
            try:
                answer = await verb(self)
            except HoldfastError as error:
                answer = (type(error).__name__, error.message, error.version)
            self.answers.append((verb.__name__, answer))
        return [*self.answers, *await self._rest()]

    async def _rest(self) -> list[object]:
        page = await self.world.registry.list_jobs(limit=1000)
        ids = [job.job_id for job in page.jobs]
        histories = await self.world.store.histories(ids)
        logs = [(await self.world.store.logs(i, after=None, limit=1000)).events for i in ids]
        counts = sorted((await self.world.registry.counts()).items())
        return [
            page.jobs,
            [[comparable(event) for event in history] for history in histories],
            [[comparable(event) for event in log if event.given_id is None] for log in logs],
            [sorted(map(comparable, log), key=lambda event: event.event_id) for log in logs],
            counts,
        ]

    def spec(self) -> Spec:
        choose = self.random.choice
        return Spec(
            queue=choose(["default", "default", "other"]),
            kind=choose(["echo", "sum"]),
            priority=choose([5, 5, 0]),
            lock=choose([None, None, "disk"]),
            region=choose([None, None, "eu"]),
            delay=choose([None, None, timedelta(seconds=20)]),
            ttl=choose([None, None, None, timedelta(seconds=100)]),
            retry=Retry(max_failures=choose([1, 3]), max_crashes=choose([1, 3])),
        )

    def op(self) -> str:
        """Sometimes an op_id that was used before."""
        return f"op-{self.random.randint(1, 60)}"

    def grant(self) -> Grant | None:
        return self.random.choice(self.grants) if self.grants else None

    async def enqueue(self) -> object:
        requests = [
            JobRequest(spec=self.spec(), request_id=self.random.choice([None, None, self.op()]))
            for _ in range(self.random.choice([1, 1, 7]))
        ]
        return await self.world.registry.enqueue_many(requests, actor="user:ana")

    async def claim(self) -> object:
        got = await self.world.registry.claim(
            self.random.choice([["default"], ["other", "default"]]),
            owner=f"w-{self.random.randint(1, 3)}",
            limit=self.random.choice([1, 1, 5]),
            kinds=self.random.choice([(), ("echo",)]),
            region=self.random.choice([None, "eu", "us"]),
            op_id=self.op(),
        )
        self.grants += got
        return got

    async def together(self) -> object:
        """Several calls that share one commit, among them claims of the same lane."""
        registry = self.world.registry
        grant = self.grant()
        calls: list[Any] = [registry.claim(["default"], owner="w-1", limit=2, op_id=self.op())]
        calls.append(registry.claim(["default"], owner="w-2", op_id=self.op()))
        calls.append(registry.enqueue(JobRequest(spec=self.spec()), actor="user:ben"))
        if grant:
            calls.append(registry.heartbeat(grant))
            calls.append(registry.complete(grant, Success(), op_id=self.op()))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for got in answers[:2]:
            if isinstance(got, list):
                self.grants += got
        return [(type(a).__name__, a.message) if isinstance(a, HoldfastError) else a for a in answers]

    async def heartbeat(self) -> object:
        grant = self.grant()
        return grant and await self.world.registry.heartbeat(grant)

    async def publish(self) -> object:
        if not (grant := self.grant()):
            return None
        key = (grant.job_id, grant.fencing_token)
        self.sequences[key] = first = self.sequences.get(key, 0) + 1
        return await self.world.registry.publish(grant, [output(first, world=self.world)])

    async def complete(self) -> object:
        grant = self.grant()
        outcome = self.random.choice(OUTCOMES)
        return grant and await self.world.registry.complete(grant, outcome, op_id=self.op())

    async def release(self) -> object:
        grant = self.grant()
        return grant and await self.world.registry.release(grant, op_id=self.op())

    async def some_job(self) -> Job | None:
        page = await self.world.registry.list_jobs(limit=1000)
        return self.random.choice(page.jobs) if page.jobs else None

    async def acquire(self) -> object:
        if not (job := await self.some_job()):
            return None
        got = await self.world.registry.acquire(job.job_id, owner="w-9", op_id=self.op())
        self.grants.append(got)
        return got

    async def cancel(self) -> object:
        job = await self.some_job()
        return job and await self.world.registry.cancel(
            job.job_id, actor="user:ana", hard=self.random.random() < 0.5, op_id=self.op()
        )

    async def replay(self) -> object:
        job = await self.some_job()
        return job and await self.world.registry.replay(job.job_id, actor="user:ana", replay_id=self.op())

    async def wait(self) -> object:
        self.world.clock.advance(self.random.choice([1, 15, 61]))
        return await self.world.registry.expire()


VERBS = (
    RandomCommands.enqueue,
    RandomCommands.enqueue,
    RandomCommands.claim,
    RandomCommands.claim,
    RandomCommands.together,
    RandomCommands.heartbeat,
    RandomCommands.publish,
    RandomCommands.complete,
    RandomCommands.complete,
    RandomCommands.release,
    RandomCommands.acquire,
    RandomCommands.cancel,
    RandomCommands.replay,
    RandomCommands.wait,
)


def comparable(event: Event) -> Event:
    """The event without its place in the store's own numbering."""
    return msgspec.structs.replace(event, log_id=None)


def checker(clock: Clock) -> InvariantChecker:
    return InvariantChecker(Random(0), clock.monotonic)


async def dictionaries(folder: Path, clock: Clock, ids: Ids) -> Store:
    return MemoryServer(clock, ids, checker(clock))


async def statements(folder: Path, clock: Clock, ids: Ids) -> Store:
    return SqlServer(clock, ids, checker(clock))  # type: ignore[return-value]


async def played(opener: Opener, folder: Path, seed: int) -> list[object]:
    clock, ids = ManualClock(), CountingIds()
    world = World(await opener(folder, clock, ids), clock, ids)
    found = await RandomCommands(seed, world).play()
    if opener is postgres_store:
        await world.registry.close()
    return found


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 12))]
)
async def test_a_tape_of_commands_leaves_the_same_on_the_simulators_stores_and_on_postgresql(
    seed: int, tmp_path: Path
) -> None:
    simulated = await played(dictionaries, tmp_path, seed)
    written = await played(statements, tmp_path, seed)
    real = await played(postgres_store, tmp_path, seed)
    for one, two, three in zip(simulated, written, real, strict=True):
        assert one == two == three
    assert len(simulated) == COMMANDS + 5
