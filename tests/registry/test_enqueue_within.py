"""Jobs in the caller's own transaction: they exist if and only if it is committed."""

from pathlib import Path

import asyncpg
import pytest

from holdfast.core.errors import Invalid
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.testing.world import World, open_world
from tests.conftest import STORES
from tests.stores.postgres.running_server import fresh_url


@pytest.mark.parametrize("store", ["memory", "cas", "sqlite"])
async def test_a_store_without_transactions_of_yours_says_so(store: str, tmp_path: Path) -> None:
    async with open_world(STORES[store], tmp_path) as world:
        with pytest.raises(Invalid, match="Only a postgresql:// store"):
            await world.registry.enqueue(JobRequest(spec=Spec()), actor="user:ana", connection=object())
        assert await world.registry.counts() == {}


@pytest.mark.parametrize("commits", [True, False])
async def test_many_jobs_exist_if_and_only_if_you_commit(tmp_path: Path, commits: bool) -> None:
    async with open_world(STORES["postgres"], tmp_path) as world:
        url = await fresh_url(tmp_path)
        connection = await asyncpg.connect(url.partition("?")[0])
        transaction = connection.transaction()
        await transaction.start()
        requests = [JobRequest(spec=Spec()) for _ in range(1_500)]
        made = await world.registry.enqueue_many(requests, actor="user:ana", connection=connection)
        assert await world.registry.counts() == {}
        await (transaction.commit() if commits else transaction.rollback())
        await connection.close()
        assert sum((await world.registry.counts()).values()) == (1_500 if commits else 0)
        [first] = await world.store.get([made[0].job_id])
        assert first == (made[0] if commits else None)


async def test_a_store_without_a_connection_of_yours_commits_at_once(world: World) -> None:
    job = await world.registry.enqueue(JobRequest(spec=Spec()), actor="user:ana", connection=None)
    assert await world.store.get([job.job_id]) == [job]
