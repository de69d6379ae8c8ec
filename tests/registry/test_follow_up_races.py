"""Two processes at one job: whoever comes second, a success has its follow-ups and a cancel has none."""

import asyncio
from pathlib import Path

import pytest

from holdfast.core.derived_ids import follow_up_id
from holdfast.core.errors import HoldfastError
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant, JobRequest, Store
from holdfast.registry.local import LocalRegistry
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.fakes import ManualClock
from holdfast.testing.world import World, open_world
from tests.conftest import STORES

WISHES = [JobRequest(spec=Spec(kind="mail", lock="disk")), JobRequest(spec=Spec(kind="bill"))]
ROUNDS = range(10, 200)
"""As many as it takes until both have won, and some were decided on what had changed since."""


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_cancel_and_a_success_that_race_leave_both_or_neither(store: str, tmp_path: Path) -> None:
    async with open_world(STORES[store], tmp_path) as owner:
        other = await STORES[store](tmp_path, ManualClock(), owner.ids)
        registry = LocalRegistry(other, owner.ids)
        won: set[bool] = set()
        try:
            for n in range(ROUNDS.stop):
                won |= await race(owner, registry, n)
                if n >= ROUNDS.start and len(won) == 2 and decided_again(owner.store, other):
                    break
        finally:
            await registry.close()
        assert won == {True, False}
        assert decided_again(owner.store, other)
        await owner.check()


def decided_again(*stores: Store) -> bool:
    """SQLite has one writer at a time, and nothing to decide again."""
    return any(not isinstance(store, PostgresStore) or store.retries for store in stores)


async def race(owner: World, other: LocalRegistry, n: int) -> set[bool]:
    """Let both end the same jobs; answers whether a success won, and whether a cancel did."""
    requests = [JobRequest(spec=Spec(queue=f"queue-{n}"), job_id=f"job-{n}-{m}") for m in range(4)]
    await owner.registry.enqueue_many(requests, actor="user:ana")
    grants = await owner.registry.claim([f"queue-{n}"], owner="worker-7", limit=4)

    async def end(grant: Grant) -> None:
        ends = [
            owner.registry.complete(grant, Success(), follow_ups=WISHES),
            other.cancel(grant.job_id, actor="user:ana", hard=True),
        ]
        await asyncio.gather(*ends[:: 1 - n % 2 * 2], return_exceptions=True)

    await asyncio.gather(*map(end, grants))
    won = set()
    for grant in grants:
        job = await other.status(grant.job_id)
        made = await other.status_many([follow_up_id(grant.job_id, 1, m) for m in range(2)])
        won.add(job.state is State.SUCCEEDED)
        assert job.state in (State.SUCCEEDED, State.CANCELLED)
        assert [one is not None for one in made] == [job.state is State.SUCCEEDED] * 2
    return won


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_one_completion_sent_by_two_makes_its_follow_ups_once(store: str, tmp_path: Path) -> None:
    async with open_world(STORES[store], tmp_path) as owner:
        other = LocalRegistry(await STORES[store](tmp_path, ManualClock(), owner.ids), owner.ids)
        try:
            await repeat(owner, other)
        finally:
            await other.close()


async def repeat(owner: World, other: LocalRegistry) -> None:
    for n in range(20):
        await owner.enqueue(f"job-{n}", queue=f"queue-{n}")
        [grant] = await owner.registry.claim([f"queue-{n}"], owner="worker-7")

        answers = await asyncio.gather(
            *(
                one.complete(grant, Success(), op_id=f"op-{n}", follow_ups=WISHES)
                for one in (owner.registry, other, owner.registry)
            ),
            return_exceptions=True,
        )

        assert not any(isinstance(answer, HoldfastError) for answer in answers), answers
        assert len((await other.list_jobs(limit=1000)).jobs) == 3 * (n + 1)
    await owner.check()
