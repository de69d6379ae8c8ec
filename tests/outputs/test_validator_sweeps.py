"""Sweeps: which jobs a validator takes by itself, and when."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import EventType
from holdfast.core.errors import Denied, NotFound, Unavailable
from holdfast.core.job import Job
from holdfast.core.outputs import ValidationProgress
from holdfast.core.state import State
from holdfast.outputs import unvalidated_jobs, validator
from holdfast.outputs.validator import is_due
from holdfast.ports import JobPage
from holdfast.testing.fakes import EPOCH
from tests.outputs.outputs_world import OutputsWorld


async def test_what_nobody_can_see_says_so_once_and_after_a_minute(world: OutputsWorld) -> None:
    await world.finish(await world.start(world.files("a")), where="gone:/home")
    sweeping = world.validator()

    world.clock.advance(59)
    await sweeping.sweep()
    early = (await world.registry.status("job-1")).check
    for _ in range(5):
        world.clock.advance(300)
        await sweeping.sweep()

    assert early is not None
    assert early.reason is None
    check = (await world.registry.status("job-1")).check
    assert check is not None
    assert check.tries == 1
    assert "files on gone" in (check.reason or "")
    facts = (await world.registry.logs("job-1")).events
    assert [e.event_type for e in facts].count(EventType.OUTPUTS_UNSEEN) == 1


@pytest.mark.parametrize(
    ("check", "seconds", "expected"),
    [
        (None, 14, False),
        (None, 15, True),
        (ValidationProgress(next_at=EPOCH), 0, True),
        (ValidationProgress(next_at=EPOCH, until=EPOCH), 0, True),
        (ValidationProgress(), 0, True),
    ],
)
async def test_a_job_is_due_when_its_time_has_come(
    world: OutputsWorld, check: ValidationProgress | None, seconds: float, expected: bool
) -> None:
    job = await world.finish(await world.start(world.files("a")))
    now = job.updated_at

    world.clock.advance(seconds)

    assert is_due(replace(job, check=check), world.clock.now()) is expected
    if check is not None and check.next_at is not None:
        later = replace(check, next_at=now + timedelta(hours=23))
        assert not is_due(replace(job, check=later), world.clock.now())
        looked_at = replace(check, until=now + timedelta(seconds=59), by="validator:x")
        assert not is_due(replace(job, check=looked_at), world.clock.now())
    assert not is_due(replace(job, state=State.SUCCEEDED, check=check), world.clock.now())


async def test_a_sweep_takes_what_is_due_and_leaves_the_rest(world: OutputsWorld) -> None:
    (world.folder / "a").write_bytes(b"a")
    for n in range(3):
        await world.finish(await world.start(world.files("a"), f"early-{n}"))
    world.clock.advance(10)
    await world.finish(await world.start(world.files("a"), "late"))
    sweeping = world.validator()

    assert await sweeping.sweep() == 0
    world.clock.advance(5)
    assert await sweeping.sweep(limit=2) == 2
    assert await sweeping.sweep(limit=2) == 1
    assert (await world.registry.status("late")).state is State.VALIDATING
    world.clock.advance(10)
    assert await sweeping.sweep() == 1


async def test_many_partial_jobs_cost_a_page_a_sweep_and_all_have_their_turn(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validator, "_PAGE", 3)
    monkeypatch.setattr(unvalidated_jobs, "NEWEST", 3)
    (world.folder / "a").write_bytes(b"a")
    sweeping = world.validator()
    for n in range(8):
        promise = world.files("a", "never" if n < 4 else "b")
        await sweeping.validate(await world.finish(await world.start(promise, f"job-{n}")))
    (world.folder / "b").write_bytes(b"b")
    read: list[int] = []
    real = world.registry.list_jobs

    async def counted(*arguments: object, **more: object) -> JobPage:
        page = await real(*arguments, **more)  # type: ignore[arg-type]
        read.append(len(page.jobs))
        return page

    monkeypatch.setattr(world.registry, "list_jobs", counted)
    world.clock.advance(5 * 60)
    done = [await sweeping.sweep() for _ in range(4)]

    assert sum(done) == 8
    assert max(read) <= 3
    counts = await world.registry.counts()
    assert (counts.get(State.SUCCEEDED), counts.get(State.PARTIAL_SUCCESS)) == (4, 4)


async def test_neither_undecided_nor_partial_jobs_take_every_sweep(world: OutputsWorld) -> None:
    (world.folder / "a").write_bytes(b"a")
    sweeping = world.validator()
    await sweeping.validate(await world.finish(await world.start(world.files("a", "b"), "partial")))
    for n in range(4):
        await world.finish(await world.start(world.files("a"), f"undecided-{n}"))
    (world.folder / "b").write_bytes(b"b")
    world.clock.advance(300)

    await sweeping.sweep(limit=1)
    await sweeping.sweep(limit=1)

    counts = await world.registry.counts()
    assert (counts[State.SUCCEEDED], counts[State.VALIDATING]) == (2, 3)


async def test_what_is_wrong_with_one_job_leaves_the_others_alone(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world.folder / "a").write_bytes(b"a")
    for name in ("forbidden", "gone", "good"):
        await world.finish(await world.start(world.files("a"), name))
    real = world.registry.report_validation

    async def look(job_id: str, **more: object) -> Job:
        if job_id == "forbidden":
            raise Denied("not your queue")
        if job_id == "gone":
            raise NotFound("pruned")
        return await real(job_id, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(world.registry, "report_validation", look)
    world.clock.advance(15)

    with pytest.raises(Denied):
        await world.validator().sweep()

    assert (await world.registry.status("good")).state is State.SUCCEEDED


async def test_a_job_that_was_forgotten_meanwhile_is_nothing_to_speak_of(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.finish(await world.start(world.files("a")))

    async def look(job_id: str, **more: object) -> Job:
        raise NotFound("pruned")

    monkeypatch.setattr(world.registry, "report_validation", look)
    world.clock.advance(15)

    assert await world.validator().sweep() == 0


async def test_a_registry_that_does_not_answer_ends_the_sweep(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        await world.finish(await world.start(world.files("a"), name))
    asked: list[str] = []

    async def look(job_id: str, **more: object) -> Job:
        asked.append(job_id)
        raise Unavailable("the registry is down")

    monkeypatch.setattr(world.registry, "report_validation", look)
    world.clock.advance(15)

    with pytest.raises(Unavailable):
        await world.validator().sweep()

    assert asked == ["a"]
