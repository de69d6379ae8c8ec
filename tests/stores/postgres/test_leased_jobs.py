"""The copy of a job that was leased out is a guess: whatever others did to the job is noticed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.core.errors import Conflict, Fenced
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Completion, Grant, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_local
from holdfast.stores import leased_jobs
from holdfast.stores.leased_jobs import CachedJob, LeasedJobCache
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.world import World
from tests.stores.postgres.running_server import fresh_url, postgres_store


@asynccontextmanager
async def two_registries(folder: Path) -> AsyncIterator[tuple[LocalRegistry, LocalRegistry]]:
    """Two processes' worth of registries on one store."""
    url = await fresh_url(folder)
    ours, theirs = await open_local(url), await open_local(url)
    try:
        yield ours, theirs
        assert (await ours.verify()).equal
    finally:
        await ours.close()
        await theirs.close()


async def leased(registry: LocalRegistry) -> Grant:
    await registry.enqueue(JobRequest(spec=Spec()), actor="user:ana")
    [grant] = await registry.claim(["default"], owner="w-1")
    return grant


async def test_an_owner_is_answered_without_reading_its_job_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    fetch = Session.fetch

    async def noted(self: Session, sql: str, *parameters: object) -> object:
        if not sql.startswith("SELECT pg_notify"):  # the notifier sends these when it is time
            said.append(sql)
        return await fetch(self, sql, *parameters)

    async with two_registries(tmp_path) as (ours, _theirs):
        grant = await leased(ours)
        monkeypatch.setattr(Session, "fetch", noted)
        await ours.heartbeat(grant)
        assert (await ours.complete(grant, Success())).state is State.SUCCEEDED
        monkeypatch.setattr(Session, "fetch", fetch)
        assert len(said) == 4  # the time and the commit, twice
        assert not any("FROM world" in sql and "SELECT seq" in sql for sql in said)


async def test_a_completion_beside_a_claim_does_not_read_its_job_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    fetch = Session.fetch

    async def noted(self: Session, sql: str, *parameters: object) -> object:
        said.append(sql)
        return await fetch(self, sql, *parameters)

    async with two_registries(tmp_path) as (ours, _theirs):
        await ours.enqueue_many([JobRequest(spec=Spec(lock="disk"))] * 2, actor="user:ana")
        [first] = await ours.claim(["default"], owner="w-1", limit=2)
        monkeypatch.setattr(Session, "fetch", noted)

        done, [second] = await asyncio.gather(
            ours.complete(first, Success()), ours.claim(["default"], owner="w-1")
        )

        assert done.state is State.SUCCEEDED
        assert second.fencing_token > first.fencing_token
        assert any("claim_4" in sql for sql in said)
        assert not any("lock_jobs_4" in sql for sql in said)


async def test_a_completion_of_an_old_copy_beside_a_claim_is_fenced(tmp_path: Path) -> None:
    async with two_registries(tmp_path) as (ours, theirs):
        old = await leased(ours)
        await theirs.release(old)
        [new] = await theirs.claim(["default"], owner="w-2")
        await theirs.enqueue(JobRequest(spec=Spec()), actor="user:ana")

        [fenced], [other] = await asyncio.gather(
            ours.complete_many([Completion(old, Success())]), ours.claim(["default"], owner="w-1")
        )
        assert isinstance(fenced, Fenced)
        assert other.job_id != new.job_id
        assert (await theirs.complete(new, Success())).state is State.SUCCEEDED


async def test_a_job_that_was_cancelled_elsewhere_is_not_finished_on_an_old_copy(
    tmp_path: Path,
) -> None:
    async with two_registries(tmp_path) as (ours, theirs):
        grant = await leased(ours)
        await theirs.cancel(grant.job_id, actor="user:ana", hard=True)
        with pytest.raises((Fenced, Conflict)):
            await ours.complete(grant, Success())
        assert (await ours.status(grant.job_id)).state is State.CANCELLED


async def test_a_cancel_that_was_asked_for_elsewhere_is_heard_by_the_next_heartbeat(
    tmp_path: Path,
) -> None:
    async with two_registries(tmp_path) as (ours, theirs):
        grant = await leased(ours)
        await theirs.cancel(grant.job_id, actor="user:ana")
        assert (await ours.heartbeat(grant)).cancel is not None


async def test_signs_of_life_given_elsewhere_are_not_overwritten(tmp_path: Path) -> None:
    async with two_registries(tmp_path) as (ours, theirs):
        grant = await leased(ours)
        await ours.heartbeat(grant)  # it runs now, and what follows has no event of its own
        await theirs.heartbeat(grant, checkpoint={"step": 7})
        assert (await ours.heartbeat(grant)).checkpoint == {"step": 7}


async def test_a_newer_owner_is_not_refused_because_of_an_old_copy(tmp_path: Path) -> None:
    async with two_registries(tmp_path) as (ours, theirs):
        old = await leased(ours)
        await theirs.release(old)
        [new] = await theirs.claim(["default"], owner="w-2")
        assert (await ours.complete(new, Success())).state is State.SUCCEEDED
        with pytest.raises(Fenced):
            await ours.complete(old, Success())


async def test_only_so_many_copies_are_kept_and_only_of_leased_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leased_jobs, "CACHED_MAX", 3)

    async with two_registries(tmp_path) as (ours, _theirs):
        await ours.enqueue_many([JobRequest(spec=Spec())] * 5, actor="user:ana")
        grants = await ours.claim(["default"], owner="w-1", limit=5)
        copies = LeasedJobCache()
        copies.keep([CachedJob(n, grant.job, 1) for n, grant in enumerate(grants)])
        assert copies.all_of([grant.job_id for grant in grants]) is None
        kept = copies.all_of([grant.job_id for grant in grants[2:]])
        assert kept is not None
        assert [copy.seq for copy in kept] == [2, 3, 4]
        store = ours._store
        assert isinstance(store, PostgresStore)
        assert store._context.leased_jobs.all_of([grants[4].job_id]) is not None
        await ours.complete(grants[4], Success())
        assert store._context.leased_jobs.all_of([grants[4].job_id]) is None


async def test_a_restore_in_mid_work_leaves_no_copy_behind(tmp_path: Path) -> None:
    from holdfast.testing.fakes import CountingIds, ManualClock

    clock, ids = ManualClock(), CountingIds()
    store = await postgres_store(tmp_path, clock, ids)
    world = World(store, clock, ids)
    await world.enqueue("job-1")
    await world.claim()
    assert store._context.leased_jobs.all_of(["job-1"]) is not None
    await store._open()
    assert store._context.leased_jobs.all_of(["job-1"]) is None
    await store.close()
