"""Owners that should be gone: after a prune, a restore, a move of the file."""

from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.core.errors import Conflict, Fenced, Invalid, Unavailable
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.sdk.backup import backup, restore
from holdfast.sdk.open import open_registry
from holdfast.testing.world import Opener, open_world
from tests.conftest import memory_store, sqlite_store


@pytest.mark.parametrize("opener", [memory_store, sqlite_store])
async def test_the_owner_of_a_pruned_job_cannot_finish_its_namesake(opener: Opener, tmp_path: Path) -> None:
    async with open_world(opener, tmp_path) as world:
        await world.enqueue("nightly")
        zombie = await world.claim("w-1")
        await world.registry.cancel("nightly", actor="user:ana", hard=True)
        world.clock.advance(days=2)
        await world.registry.prune(older_than=timedelta(days=1))
        await world.enqueue("nightly")
        owner = await world.claim("w-2")

        with pytest.raises(Fenced):
            await world.registry.complete(zombie, Success())

        assert owner.fencing_token > zombie.fencing_token
        await world.check()


async def test_the_owner_of_a_job_made_after_the_backup_cannot_finish_its_namesake(
    tmp_path: Path,
) -> None:
    url, fresh = f"sqlite:///{tmp_path / 'jobs.db'}", f"sqlite:///{tmp_path / 'fresh.db'}"
    request = JobRequest(spec=Spec(lock="disk"), request_id="nightly")

    registry = await open_registry(url)
    await backup(url, tmp_path / "copy.db")
    job = await registry.enqueue(request, actor="user:ana")
    zombie = await registry.acquire(job.job_id, owner="w-1")
    await registry.close()
    await restore(tmp_path / "copy.db", fresh)
    registry = await open_registry(fresh)
    await registry.enqueue(request, actor="user:ana")
    owner = await registry.acquire(job.job_id, owner="w-2")

    with pytest.raises(Fenced):
        await registry.complete(zombie, Success())

    assert owner.fencing_token > 2**40
    assert (await registry.verify()).equal
    await registry.close()


async def test_a_store_in_use_is_not_replaced(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"

    registry = await open_registry(url)
    await registry.enqueue(JobRequest(spec=Spec(), job_id="job-1"), actor="user:ana")
    await backup(url, tmp_path / "copy.db")

    with pytest.raises(Conflict, match="in use"):
        await restore(tmp_path / "copy.db", url, force=True)

    await registry.enqueue(JobRequest(spec=Spec(), job_id="job-2"), actor="user:ana")
    await registry.close()
    registry = await open_registry(url)
    assert len((await registry.list_jobs()).jobs) == 2
    await registry.close()


async def test_a_file_that_was_moved_is_written_to_no_more(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"

    registry = await open_registry(url)
    await registry.enqueue(JobRequest(spec=Spec(), job_id="job-1"), actor="user:ana")
    (tmp_path / "jobs.db").rename(tmp_path / "old.db")

    with pytest.raises(Unavailable, match="moved or replaced"):
        await registry.enqueue(JobRequest(spec=Spec(), job_id="job-2"), actor="user:ana")
    with pytest.raises(Invalid, match="but its log is"):
        await open_registry(url)

    await registry.close()
