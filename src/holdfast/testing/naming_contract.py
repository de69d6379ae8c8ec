"""The contract of a store, listings by what a person calls a job: a part of its id, or its name."""

import pytest
from msgspec.structs import replace

from holdfast.core.access import Principal, Scope
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobFilter, JobRequest
from holdfast.testing.world import Opener, World, in_world

_TIMED = (
    "019a9c3e-1f2b-7a3c-9b01-c0ffee12ab34",
    "019a9c3e-1f2b-7a3c-9b02-decade56ab34",
    "019a9c3f-0000-7000-8000-facade78cd56",
)


class NamingContract:
    open: Opener

    @in_world
    async def test_a_job_is_found_by_the_beginning_of_its_id(self, world: World) -> None:
        for job_id in (*_TIMED, "nightly-1", "nightly-2", "Nightly-3", "night"):
            await world.enqueue(job_id)

        assert await _ids(world, short_id="019a9c3f") == [_TIMED[2]]
        assert await _ids(world, short_id="019a9c3e-") == [*_TIMED[:2]]
        assert await _ids(world, short_id="nightly") == ["nightly-1", "nightly-2"]
        assert await _ids(world, short_id="nightly-2") == ["nightly-2"]
        assert await _ids(world, short_id="nightly-22") == []

    @in_world
    async def test_a_job_is_found_by_the_end_of_an_id_in_the_order_of_time(self, world: World) -> None:
        for job_id in (
            *_TIMED,
            f"cached-{_TIMED[0]}",
            "6b5face9-b4b7-81fc-bcba-775bf0c77de5",
            "report-facade78cd56",
            "01-of-a-queue",
        ):
            await world.enqueue(job_id)

        assert await _ids(world, short_id="78cd56") == [_TIMED[2]]
        assert await _ids(world, short_id="of-a-queue") == []
        assert await _ids(world, short_id="ab34") == [*_TIMED[:2], f"cached-{_TIMED[0]}"]
        assert await _ids(world, short_id="f0c77de5") == []

    @in_world
    async def test_no_character_of_a_short_id_means_more_than_itself(self, world: World) -> None:
        for job_id in ("a_b-1234", "axb-1234", "a.b-1234"):
            await world.enqueue(job_id)

        assert await _ids(world, short_id="a_b-") == ["a_b-1234"]
        assert await _ids(world, short_id="a.b-") == ["a.b-1234"]
        assert await _ids(world, short_id="%%%%") == []
        assert await _ids(world, short_id="****") == []

    @pytest.mark.parametrize("newest", [False, True])
    @in_world
    async def test_jobs_of_a_short_id_come_in_pages_and_pass_the_other_filters(
        self, world: World, newest: bool
    ) -> None:
        for n in range(5):
            await world.enqueue(f"part-{n}", queue="q" if n % 2 else "default")
        await world.registry.cancel("part-1", actor="user:ana")

        seen, cursor = list[str](), None
        for _ in range(3):
            which = JobFilter(short_id="part")
            page = await world.store.list_jobs(which, after=cursor, limit=2, newest=newest)
            seen += [job.job_id for job in page.jobs]
            cursor = page.next

        assert cursor is None
        assert seen == sorted((f"part-{n}" for n in range(5)), reverse=newest)
        assert await _ids(world, short_id="part", queue="q") == ["part-1", "part-3"]
        assert await _ids(world, short_id="part", states=(State.CANCELLED,)) == ["part-1"]

    @in_world
    async def test_a_viewer_finds_only_the_jobs_it_may_know_of(self, world: World) -> None:
        for queue in ("a", "b"):
            spec = replace(Spec(), queue=queue, name="same")
            await world.registry.enqueue(JobRequest(spec=spec, job_id=f"job-of-{queue}"), actor="user:ana")
        viewer = Principal("k", frozenset({Scope.OBSERVE}), ("a",), (), key_id="0" * 12)

        assert await _ids(world, short_id="job-of", viewer=viewer) == ["job-of-a"]
        assert await _ids(world, name="same", viewer=viewer) == ["job-of-a"]

    @in_world
    async def test_jobs_are_found_by_their_name(self, world: World) -> None:
        names = ("nightly", "nightly 2", 'a "b" \\ é%_', None, "nightly")
        for n, name in enumerate(names):
            labels = {"name": "nightly"} if name is None else {"long": "x" * 200, "longer": "y" * 200}
            await world.enqueue(f"job-{n}", name=name, labels=labels)
        await world.registry.cancel("job-4", actor="user:ana")

        assert await _ids(world, name="nightly") == ["job-0", "job-4"]
        assert await _ids(world, name='a "b" \\ é%_') == ["job-2"]
        assert await _ids(world, name="nightly", states=(State.CANCELLED,)) == ["job-4"]
        assert await _ids(world, name="night") == []


async def _ids(world: World, **which: object) -> list[str]:
    found = await world.store.list_jobs(JobFilter(**which), after=None, limit=10)  # type: ignore[arg-type]
    backwards = await world.store.list_jobs(JobFilter(**which), after=None, limit=10, newest=True)  # type: ignore[arg-type]
    ids = [job.job_id for job in found.jobs]
    assert [job.job_id for job in backwards.jobs] == ids[::-1]
    assert found.next is None
    return ids
