"""bulk: one command on many jobs, planned and run through the verbs."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.core.bulk import BulkEffect, BulkPlan, BulkResult, BulkVerb, JobSelection
from holdfast.core.catalogue import ReasonCode
from holdfast.core.errors import Invalid, NotFound, Unavailable
from holdfast.core.lifecycle import Success
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Work
from holdfast.ports.store import Decision
from holdfast.registry import bulk, local
from holdfast.registry.bulk import REASONS_MAX, BulkReport, count_planned, plan_bulk, run_bulk
from holdfast.stores.memory import MemoryStore
from holdfast.testing.fakes import CountingIds, ManualClock
from holdfast.testing.world import PERMANENT, TRANSIENT, World

ACTOR = "user:ana"


async def planned(world: World, verb: BulkVerb, *job_ids: str, **which: object) -> BulkPlan:
    options = {name: which.pop(name) for name in ("again", "force", "reason") if name in which}
    selection = JobSelection(job_ids=job_ids, **which)  # type: ignore[arg-type]
    return await plan_bulk(world.registry, world.ids, verb, selection, **options)  # type: ignore[arg-type]


async def run(world: World, plan: BulkPlan) -> list[BulkResult]:
    return [one async for results in run_bulk(world.registry, plan, actor=ACTOR) for one in results]


def effects(results: Sequence[BulkResult]) -> dict[str, str]:
    return {one.job_id: one.effect for one in results}


async def failed(world: World, *job_ids: str) -> None:
    for job_id in job_ids:
        await world.enqueue(job_id)
        grant = await world.registry.acquire(job_id, owner="worker-7")
        await world.registry.complete(grant, PERMANENT)


async def test_a_filter_cancels_what_matches_and_nothing_else(world: World) -> None:
    await world.enqueue("mine", spec=Spec(queue="bulk", kind="fit", labels={"run": "1"}))
    await world.enqueue("queue", spec=Spec(queue="other", kind="fit", labels={"run": "1"}))
    await world.enqueue("kind", spec=Spec(queue="bulk", kind="load", labels={"run": "1"}))
    await world.enqueue("label", spec=Spec(queue="bulk", kind="fit", labels={"run": "2"}))
    plan = await planned(world, BulkVerb.CANCEL, queue="bulk", kind="fit", labels={"run": "1"}, reason="seed")

    assert await count_planned(world.registry, plan) == 1
    assert effects(await run(world, plan)) == {"mine": BulkEffect.DONE}
    assert (await world.registry.status("mine")).reason == "seed"
    assert await world.registry.counts() == {"queued": 3, "cancelled": 1}
    await world.check()


async def test_jobs_made_after_the_plan_are_none_of_it(world: World) -> None:
    await world.enqueue("old")
    plan = await planned(world, BulkVerb.CANCEL)
    world.clock.advance(1)
    await world.enqueue("new")

    assert effects(await run(world, plan)) == {"old": BulkEffect.DONE}
    assert (await world.registry.status("new")).state is State.QUEUED


async def test_since_is_the_end_of_what_has_ended_and_the_creation_of_what_lives(world: World) -> None:
    await world.enqueue("early")
    await failed(world, "failed-early")
    await world.enqueue("failed-late")
    world.clock.advance(100)
    since = world.clock.now()
    await world.enqueue("late")
    grant = await world.registry.acquire("failed-late", owner="worker-7")
    await world.registry.complete(grant, PERMANENT)

    cancel = await run(world, await planned(world, BulkVerb.CANCEL, since=since))
    replay = await run(world, await planned(world, BulkVerb.REPLAY, since=since, states=(State.FAILED,)))

    assert effects(cancel) == {"late": BulkEffect.DONE}
    assert effects(replay) == {"failed-late": BulkEffect.DONE}


async def test_a_page_with_none_of_the_plan_is_not_its_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE_ITEMS_MAX", 1)
    await failed(world, "early")
    world.clock.advance(100)
    since = world.clock.now()
    await failed(world, "late")

    plan = await planned(world, BulkVerb.REPLAY, since=since)

    assert await count_planned(world.registry, plan) == 1
    assert effects(await run(world, plan)) == {"late": BulkEffect.DONE}


async def test_each_job_is_done_was_so_or_says_why_not(world: World) -> None:
    for job_id in ("waits", "gone", "held", "asked"):
        await world.enqueue(job_id)
    await world.registry.cancel("gone", actor=ACTOR)
    for job_id in ("held", "asked"):
        await world.registry.acquire(job_id, owner="worker-7")
    await world.registry.cancel("asked", actor=ACTOR)
    await world.enqueue("succeeded")
    done = await world.registry.acquire("succeeded", owner="worker-7")
    await world.registry.complete(done, Success())
    named = ("waits", "gone", "held", "asked", "succeeded", "nobody", "waits")

    results = await run(world, await planned(world, BulkVerb.CANCEL, *named))

    assert effects(results) == {
        "waits": BulkEffect.DONE,
        "gone": BulkEffect.ALREADY,
        "held": BulkEffect.DONE,
        "asked": BulkEffect.ALREADY,
        "succeeded": BulkEffect.REFUSED,
        "nobody": BulkEffect.REFUSED,
    }
    assert len(results) == 6
    report = BulkReport()
    for one in results:
        report.add(one)
    assert (report.done, report.already, report.refused) == (2, 2, 2)
    assert "There is no job JOB." in report.reasons
    assert isinstance(results[-1].error, NotFound)
    await world.check()


async def test_a_hard_cancel_ends_also_what_was_asked_to_stop(world: World) -> None:
    await world.enqueue("held")
    await world.claim()
    await world.registry.cancel("held", actor=ACTOR)

    assert effects(await run(world, await planned(world, BulkVerb.CANCEL, force=True))) == {
        "held": BulkEffect.DONE
    }
    assert (await world.registry.status("held")).state is State.CANCELLED


async def test_a_job_that_was_replayed_says_by_which_and_is_passed_over(world: World) -> None:
    await failed(world, "job-1", "job-2")
    earlier = await world.registry.replay("job-1", actor=ACTOR, replay_id="mine")

    first, second = await run(world, await planned(world, BulkVerb.REPLAY))

    assert (first.effect, first.other_id) == (BulkEffect.ALREADY, earlier.job_id)
    assert first.note == f"It was replayed as {earlier.job_id}."
    assert second.effect is BulkEffect.DONE
    assert second.job is not None
    assert second.job.spec.replayed_from == "job-2"
    assert await world.registry.replays(["job-2", "nobody", "job-1"]) == [
        *([second.other_id], [], [earlier.job_id]),
    ]
    await world.check()


async def test_with_again_a_replayed_job_is_replayed_once_more(world: World) -> None:
    await failed(world, "job-1")
    [first] = await run(world, await planned(world, BulkVerb.REPLAY))

    [second] = await run(world, await planned(world, BulkVerb.REPLAY, "job-1", again=True))

    assert second.effect is BulkEffect.DONE
    assert await world.registry.replays(["job-1"]) == [[first.other_id, second.other_id]]


async def test_two_people_who_replay_at_once_make_one_job_of_each(world: World) -> None:
    names = [f"job-{n}" for n in range(5)]
    await failed(world, *names)
    plans = [await planned(world, BulkVerb.REPLAY) for _ in range(2)]

    await asyncio.gather(*(run(world, plan) for plan in plans))

    assert [len(one) for one in await world.registry.replays(names)] == [1] * 5
    assert await world.registry.counts() == {"failed": 5, "queued": 5}
    await world.check()


async def test_dead_letters_are_found_by_their_reason_code(world: World) -> None:
    await world.enqueue("tired", retry=Retry(max_failures=1))
    await world.registry.complete(await world.claim(), TRANSIENT)

    plan = await planned(world, BulkVerb.REPLAY, reason_code=ReasonCode.EXHAUSTED_RETRIES)
    other = await planned(world, BulkVerb.REPLAY, reason_code=ReasonCode.TIMEOUT)

    assert effects(await run(world, plan)) == {"tired": BulkEffect.DONE}
    assert await run(world, other) == []


async def test_a_verb_that_applies_to_none_of_the_states_is_refused(world: World) -> None:
    with pytest.raises(Invalid, match="nothing to cancel"):
        await planned(world, BulkVerb.CANCEL, states=(State.FAILED,))


async def test_outputs_are_not_validated_without_an_inspector(world: World) -> None:
    await failed(world, "job-1")

    [result] = await run(world, await planned(world, BulkVerb.VALIDATE))

    assert result.effect is BulkEffect.REFUSED
    assert "an inspector" in (result.note or "")


class _AwayStore(MemoryStore):
    """A store that writes what a commit says, and then is away before it can tell."""

    away = False

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        made = await super().transact(works)
        if self.away:
            self.away = False
            raise Unavailable("The answer was lost.", applied="unknown")
        return made


async def test_a_plan_that_broke_off_is_run_again_and_repeats_nothing() -> None:
    store = _AwayStore(ManualClock(), CountingIds())
    world = World(store, ManualClock(), CountingIds())
    names = [f"job-{n}" for n in range(4)]
    await failed(world, *names)
    plan = await planned(world, BulkVerb.REPLAY, *names, again=True)

    store.away = True
    with pytest.raises(Unavailable, match="lost"):
        await run(world, plan)
    results = await run(world, plan)

    assert set(effects(results).values()) == {BulkEffect.DONE}
    assert [len(one) for one in await world.registry.replays(names)] == [1] * 4
    assert await world.registry.counts() == {"failed": 4, "queued": 4}


async def test_what_came_before_a_break_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches before the one that broke, and in that one the jobs that were done."""
    monkeypatch.setattr(local, "BATCH_ITEMS_MAX", 2)
    store = _AwayStore(ManualClock(), CountingIds())
    world = World(store, ManualClock(), CountingIds())
    for n in range(4):
        await world.enqueue(f"job-{n}")
    plan = await planned(world, BulkVerb.CANCEL)
    seen: list[BulkResult] = []

    async def follow() -> None:
        async for results in run_bulk(world.registry, plan, actor=ACTOR):
            seen.extend(results)
            store.away = True

    with pytest.raises(Unavailable):
        await follow()

    assert effects(seen) == {"job-0": BulkEffect.DONE, "job-1": BulkEffect.DONE}


async def test_a_batch_is_one_commit() -> None:
    class CountedStore(MemoryStore):
        commits = 0

        async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
            self.commits += 1
            return await super().transact(works)

    store = CountedStore(ManualClock(), CountingIds())
    world = World(store, ManualClock(), CountingIds())
    for n in range(300):
        await world.enqueue(f"job-{n}")
    store.commits = 0

    await run(world, await planned(world, BulkVerb.CANCEL))
    cancels, store.commits = store.commits, 0
    await run(world, await planned(world, BulkVerb.REPLAY))

    assert (await world.registry.counts())[State.QUEUED] == 300
    assert cancels == 1
    assert store.commits <= 3  # as its jobs are read a hundred at a time


def test_a_report_counts_the_reasons_without_the_names_of_jobs() -> None:
    report = BulkReport()

    for n in range(3):
        note = f"Job job-{n} is running."
        report.add(BulkResult(job_id=f"job-{n}", effect=BulkEffect.REFUSED, note=note))
    report.add(BulkResult(job_id="job-4", effect=BulkEffect.DONE))
    report.add(BulkResult(job_id="job-5", effect=BulkEffect.ALREADY, note="It is cancelled."))

    assert (report.done, report.already, report.refused) == (1, 1, 3)
    assert report.reasons == {"Job JOB is running.": 3}


def test_a_report_of_a_million_different_reasons_stays_small() -> None:
    report = BulkReport()

    for n in range(100):
        report.add(BulkResult(job_id="j", effect=BulkEffect.REFUSED, note=f"reason {n}"))

    assert (report.refused, len(report.reasons)) == (100, REASONS_MAX)
