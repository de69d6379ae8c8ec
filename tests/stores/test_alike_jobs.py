"""Which jobs the SQL stores decide on once."""

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from holdfast.core.job import Job, ResourceLock
from holdfast.core.lifecycle import Change, Claim, decide
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest, Ready, Work
from holdfast.testing.world import World, open_world
from tests.conftest import STORES

MANY = 12


@pytest.fixture(params=["sqlite", "postgres"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(STORES[request.param], tmp_path) as world:
        yield world
        await world.check()


async def decisions(world: World, specs: list[Spec]) -> int:
    """Claim jobs of these specs; return how often that took a decision."""
    requests = [JobRequest(spec=spec) for spec in specs]
    made = await world.registry.enqueue_many(requests, actor="user:ana")
    command = Claim(op_id="claim", owner="w", actor="worker:w")
    decided = 0

    def counted(job: Job | None, now: datetime, lock: ResourceLock | None = None, floor: int = 0) -> Change:
        nonlocal decided
        decided += 1
        change = decide(command, job, now, lock, floor)
        assert isinstance(change, Change)
        return change

    selection = Ready(queues=("default",), op_id="claim", limit=len(specs))
    [claimed] = await world.store.transact([Work(selection, counted, command)])
    assert [d.after.spec for d in claimed if isinstance(d, Change)] == [job.spec for job in made]
    return decided


async def test_payloads_names_and_labels_are_each_jobs_own(world: World) -> None:
    payloads = [msgspec.Raw(b'{"n":%d}' % n) for n in range(MANY)]
    specs = [
        Spec(payload=payload, name=f"run {n}", labels={"n": str(n % 5)}) for n, payload in enumerate(payloads)
    ]

    assert await decisions(world, [*specs, Spec(), *specs]) == 1


async def test_all_other_terms_make_a_difference(world: World) -> None:
    specs = [Spec(kind=kind, region=region) for kind in ("fit", "load") for region in (None, "eu")]

    assert await decisions(world, specs * MANY) == len(specs)
