"""Owners that should be gone: after a prune, a restore, a move of the file."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from conftest import Run, memory_store, sqlite_store
from holdfast.core.errors import Conflict, Fenced, Invalid, Unavailable
from holdfast.core.job import Failure, Job, Progress
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Request
from holdfast.sdk.backup import backup, restore
from holdfast.sdk.open import open_registry
from holdfast.testing.world import Opener, World, output, play


@pytest.mark.parametrize("opener", [memory_store, sqlite_store])
def test_the_owner_of_a_pruned_job_cannot_finish_its_namesake(
    opener: Opener, tmp_path: Path
) -> None:
    async def body(world: World) -> None:
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

    play(opener, tmp_path, body)


def test_the_owner_of_a_job_made_after_the_backup_cannot_finish_its_namesake(
    tmp_path: Path,
) -> None:
    url, fresh = f"sqlite:///{tmp_path / 'jobs.db'}", f"sqlite:///{tmp_path / 'fresh.db'}"
    request = Request(spec=Spec(lock="disk"), request_id="nightly")

    async def main() -> None:
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

    asyncio.run(main())


def test_a_store_in_use_is_not_replaced(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"

    async def main() -> None:
        registry = await open_registry(url)
        await registry.enqueue(Request(spec=Spec(), job_id="job-1"), actor="user:ana")
        await backup(url, tmp_path / "copy.db")

        with pytest.raises(Conflict, match="in use"):
            await restore(tmp_path / "copy.db", url, force=True)

        await registry.enqueue(Request(spec=Spec(), job_id="job-2"), actor="user:ana")
        await registry.close()
        registry = await open_registry(url)
        assert len((await registry.list_jobs()).jobs) == 2
        await registry.close()

    asyncio.run(main())


def test_a_file_that_was_moved_is_written_to_no_more(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"

    async def main() -> None:
        registry = await open_registry(url)
        await registry.enqueue(Request(spec=Spec(), job_id="job-1"), actor="user:ana")
        (tmp_path / "jobs.db").rename(tmp_path / "old.db")

        with pytest.raises(Unavailable, match="moved or replaced"):
            await registry.enqueue(Request(spec=Spec(), job_id="job-2"), actor="user:ana")
        with pytest.raises(Invalid, match="but its log is"):
            await open_registry(url)

        await registry.close()

    asyncio.run(main())


def test_a_call_after_the_close_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        registry = await open_registry(f"sqlite:///{tmp_path / 'jobs.db'}")
        await registry.close()

        with pytest.raises(Unavailable, match="closed"):
            await registry.get("job-1")

    asyncio.run(main())


def test_megabytes_are_watched_to_their_end(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await world.enqueue("job-1")
        grant = await world.claim()
        for batch in range(20):
            events = [output(batch * 10 + n, "x" * 60_000, world=world) for n in range(1, 11)]
            await world.registry.publish(grant, events)
        await world.registry.complete(grant, Success())

        seen = [event async for event in world.registry.watch("job-1")]

        assert sum(len(event.data or b"") for event in seen) == 200 * 60_000
        assert seen[-1].event_type == "job_succeeded"

    play(sqlite_store, tmp_path, body)


def test_what_could_not_be_read_back_is_never_written(run: Run) -> None:
    async def body(world: World) -> None:
        await world.enqueue("job-1")
        grant = await world.claim()
        broken = Failure(message="x", stage="training")  # type: ignore[arg-type]

        for call in (
            world.registry.heartbeat(grant, progress=Progress(done=0.5)),  # type: ignore[arg-type]
            world.registry.complete(grant, broken),
            world.registry.complete(grant, Success(), op_id="x" * 5_000_000),
            world.enqueue("job-2", promised_outputs=1.5),
            world.registry.cancel("job-1", actor="ana"),
        ):
            with pytest.raises(Invalid):
                await call

        assert (await world.registry.get("job-1")).state is State.ASSIGNED

    run(body)


def test_a_caller_that_has_left_claims_nothing(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await world.enqueue("job-1")
        busy = [asyncio.create_task(world.enqueue(f"other-{n}", queue="other")) for n in range(3)]
        await asyncio.sleep(0)
        leaver = asyncio.create_task(world.registry.acquire("job-1", owner="leaver"))
        await asyncio.sleep(0)
        leaver.cancel()
        await asyncio.gather(*busy, leaver, return_exceptions=True)

        job: Job = await world.registry.get("job-1")

        assert job.state is State.QUEUED

    play(sqlite_store, tmp_path, body)


def test_a_payload_with_spaces_around_is_the_same_request(tmp_path: Path) -> None:
    import msgspec

    async def body(world: World) -> None:
        registry = world.registry
        spec = Spec(payload=msgspec.Raw(b' {"a": 1}\n'))
        request = Request(spec=spec, request_id="r")

        first = await registry.enqueue(request, actor="user:ana")
        again = await registry.enqueue(request, actor="user:ana")

        assert again.job_id == first.job_id

    play(sqlite_store, tmp_path, body)
